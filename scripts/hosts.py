"""The machines that brokers run on: this one, or others that are reached through ssh.

A broker is the same program everywhere, and tied to its launcher by its standard input, which ssh
hands on. What ssh does not hand on are signals; so on another machine `kill` sends them.
"""

import io
import re
import shlex
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

import attrs

from plait.broker.principals import Protection
from plait.faulttol.files import naming
from plait.faulttol.history import HISTORY_FOLDER
from plait.scripts.errors import BadInputError, EnvironmentFailedError, ProblemsFoundError
from plait.topologies.configuration import Configuration
from plait.topologies.declarations import address_in
from plait.topologies.errors import Position, Problem, ScriptError, nearest
from plait.topologies.files import load
from plait.topologies.language import lines, quoted
from plait.topologies.overlay import Overlay

SSH_OPTIONS: Final = ("-T", "-o", "BatchMode=yes")
"""No terminal, and no question that nobody is there to answer."""

PRIVATE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700

REMOTE_RUNS: Final = ".plait-runs"
"""Below the home directory there; what a run leaves in it is fetched and removed."""


# Not an option of ssh, above all: what begins with a dash.
HOST: Final = re.compile(r"(\w[\w.-]*@)?\w[\w.-]*(=[\w.:-]+)?")


class Host(Protocol):
    """A machine that processes can be started on."""

    @property
    def listen(self) -> str:
        """Where a broker there is to listen, on any port."""

    def command(self, *arguments: str) -> list[str]:
        """Return what starts `plait` with these arguments there."""

    @property
    def suffix(self) -> str:
        """What tells files of that machine from those of the same name here."""

    def run_directory(self, directory: Path, run_id: str) -> Path:
        """Return where a run writes to there, given where it does here."""

    def send(self, number: signal.Signals, pid: int, child: subprocess.Popen[bytes]) -> None:
        """Send a signal to a process there, which `child` stands for here."""

    def bring(self, files: Mapping[str, bytes], folder: Path) -> None:
        """Leave files in a folder there that nobody else may read."""

    def fetch(self, directory: Path, run_id: str) -> None:
        """Bring here what a run has written there."""


@attrs.frozen
class ThisHost:
    """The machine we run on ourselves."""

    listen: str = "127.0.0.1:0"
    suffix: str = ""

    def command(self, *arguments: str) -> list[str]:
        """Return what starts `plait` with our own interpreter."""
        return [sys.executable, "-P", "-m", "plait", *arguments]

    def run_directory(self, directory: Path, run_id: str) -> Path:
        """Return the directory itself."""
        return directory

    def send(self, number: signal.Signals, pid: int, child: subprocess.Popen[bytes]) -> None:
        """Send a signal; to one that has ended it is none."""
        child.send_signal(number)

    def bring(self, files: Mapping[str, bytes], folder: Path) -> None:
        """Leave files in a folder that nobody else may read."""
        # Not before: a script that is wrong is reported faster than the network is imported.
        from plait.broker.net.secret_files import write_secret

        folder.mkdir(mode=PRIVATE_FOLDER, parents=True)
        for name, data in files.items():
            write_secret(folder / name, data)

    def fetch(self, directory: Path, run_id: str) -> None:
        """Do nothing: it is here."""


@attrs.frozen
class SshHost:
    """A machine that ssh reaches."""

    name: str
    """As ssh knows it, with the user perhaps."""
    address: str
    """As the other machines know it."""
    ssh: tuple[str, ...]
    plait: tuple[str, ...]
    """What starts `plait` there."""

    @property
    def listen(self) -> str:
        """The machine's own address: others have to reach it."""
        return f"[{self.address}]:0" if ":" in self.address else f"{self.address}:0"

    @property
    def suffix(self) -> str:
        """The machine's address."""
        return f"@{self.address}"

    def command(self, *arguments: str) -> list[str]:
        """Return what starts `plait` there, and makes the folder for its runs."""
        command = shlex.join([*self.plait, *arguments])
        return self._there(f"mkdir -p {REMOTE_RUNS} && exec {command}")

    def run_directory(self, directory: Path, run_id: str) -> Path:
        """Return a directory below the home directory there."""
        return Path(REMOTE_RUNS) / run_id

    def send(self, number: signal.Signals, pid: int, child: subprocess.Popen[bytes]) -> None:
        """Have a signal sent there."""
        subprocess.run(  # noqa: S603 - what the user named
            self._there(shlex.join(["kill", f"-{number.name.removeprefix('SIG')}", str(pid)])),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )

    def bring(self, files: Mapping[str, bytes], folder: Path) -> None:
        """Leave files in a folder there: what is in them is said on standard input only."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), PRIVATE
                archive.addfile(member, io.BytesIO(data))
        there = shlex.quote(str(folder))
        result = subprocess.run(  # noqa: S603 - what the user named
            self._there(f"umask 077 && mkdir -p {there} && tar -xf - -C {there}"),
            input=packed.getvalue(),
            capture_output=True,
            check=False,
        )
        if result.returncode:
            reason = result.stderr.decode(errors="replace").strip()
            raise EnvironmentFailedError(
                f"{self.name}: certificates cannot be left there: {reason}"
            )

    def fetch(self, directory: Path, run_id: str) -> None:
        """Unpack here what the run has written there, and remove it there."""
        there = shlex.quote(str(self.run_directory(directory, run_id)))
        result = subprocess.run(  # noqa: S603 - what the user named
            self._there(f"rm -rf -- {there}/tls && tar -cf - -C {there} . && rm -rf -- {there}"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if result.returncode:
            reason = result.stderr.decode(errors="replace").strip()
            raise EnvironmentFailedError(f"{self.name}: the history cannot be fetched: {reason}")
        try:
            self._unpack(result.stdout, directory)
        except tarfile.TarError as error:
            raise EnvironmentFailedError(
                f"{self.name}: the history that it sent is damaged: {error}"
            ) from error

    def _unpack(self, packed: bytes, directory: Path) -> None:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                file = archive.extractfile(member)
                parts = PurePosixPath(member.name).parts
                # What it calls its files is the other machine's word; where they go is ours.
                if file is not None and parts[:-1] in ((), (HISTORY_FOLDER,)):
                    target = directory.joinpath(*parts)
                    if not target.exists():
                        with naming(target):
                            target.write_bytes(file.read())

    def _there(self, command: str) -> list[str]:
        """Return what has the shell there execute a command; what is in it has to be quoted."""
        return [*self.ssh, *SSH_OPTIONS, self.name, command]


def urls_as_addresses(configuration: Configuration) -> dict[str, str]:
    """Return where the brokers listen whose URL says so; all bad URLs are one error."""
    brokers = [
        name for name in configuration.overlay.broker_processes if name in configuration.urls
    ]
    problems = [
        f"broker {name}: found URL {quoted(configuration.urls[name])}, "
        "expected one like tcp://host:port/name"
        for name in brokers
        if address_in(configuration.urls[name]) is None
    ]
    if problems:
        raise ProblemsFoundError("\n".join(problems))
    return {name: address_in(configuration.urls[name]) or "" for name in brokers}


def read_hosts(path: str, overlay: Overlay, *, ssh: str, plait: str) -> Mapping[str, Host]:
    """Return the host of every broker, from a file that names one host a line.

    `[user@]host[=address] [site ...]`: the brokers of these sites run there. Sites that no line
    names are spread over all hosts, one after the other. `address` is what the other machines call
    the host, if that is not what ssh calls it.
    """
    problems: list[Problem] = []
    hosts: list[SshHost] = []
    by_site: dict[str, Host] = {}
    known = {site.name for site in overlay.sites}
    try:
        text = load(path)
    except ScriptError as error:
        raise ProblemsFoundError(str(error)) from error
    for line in lines(text, path):
        if not HOST.fullmatch(line.peek()):
            problems += line.wrong("a host: [user@]host[=address]").problems
            continue
        name, _, address = line.word("a host").partition("=")
        address = address or name.rpartition("@")[2]
        host = SshHost(name, address, tuple(shlex.split(ssh)), tuple(shlex.split(plait)))
        hosts.append(host)
        while not (line.is_at_end or line.is_at_remark):
            at, site = line.here, line.word("a site")
            if site not in known:
                expected = "a site of the configuration"
                problems.append(Problem(at, quoted(site), expected, nearest(site, known)))
            elif site in by_site:
                expected = "a site that no other line names"
                problems.append(Problem(at, quoted(site), expected))
            by_site[site] = host
    if not hosts:
        problems.append(Problem(Position(path, 0, 0), "no host", "a line '[user@]host [site ...]'"))
    if problems:
        raise ProblemsFoundError("\n".join(map(str, problems)))
    left = [site.name for site in overlay.sites if site.name not in by_site]
    by_site |= {name: hosts[number % len(hosts)] for number, name in enumerate(left)}
    return {broker: by_site[overlay.site_of(broker).name] for broker in overlay.broker_processes}


def places(
    configuration: Configuration,
    hosts: str | None,
    ssh: str,
    remote_plait: str,
    *,
    use_urls: bool,
    insecure: bool,
) -> dict[str, Any]:
    """Return what `machine_options` of scripts/options.py were given, as a `RunPlan` takes it."""
    if hosts is not None and use_urls:
        raise BadInputError("--use-urls and --hosts both say where brokers are: choose one.")
    if hosts is not None:
        found = read_hosts(hosts, configuration.overlay, ssh=ssh, plait=remote_plait)
        protection = Protection.INSECURE if insecure else Protection.TLS
        return {"hosts": found, "protection": protection}
    if not use_urls:
        return {}
    protection = Protection.INSECURE if insecure else Protection.LOOPBACK
    return {"addresses": urls_as_addresses(configuration), "protection": protection}
