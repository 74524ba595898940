"""Certificates of one run: for its brokers, its clients and its launcher, and for nobody else.

They are made when a run begins whose brokers are on other machines, brought there, and removed when
it ends. `plait status --run` and `plait move --run` use the launcher's.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from plait.broker.access.admission import Role
from plait.broker.net.credentials import Approach, Credentials
from plait.broker.net.security import OPERATORS
from plait.scripts.certificate_folder import CLIENTS, CertificateFolder
from plait.scripts.hosts import Host
from plait.topologies.overlay import Overlay

FOLDER: Final = "tls"
LAUNCHER: Final = "launcher"
DAYS: Final = 30
"""No run takes so long."""


@attrs.frozen
class RunSecurity:
    """The certificates of a run."""

    _folder: CertificateFolder

    def credentials_of(self, client: str) -> Credentials:
        """What a client of the run shows."""
        return Credentials.read(self._folder.path / CLIENTS / f"{client}.toml")

    @property
    def approach(self) -> Approach:
        """How the launcher itself comes to brokers."""
        return Approach(self.credentials_of(LAUNCHER))


@contextlib.contextmanager
def opened(
    directory: Path, run_id: str, overlay: Overlay, hosts: Mapping[str, Host]
) -> Iterator[RunSecurity]:
    """Make all certificates, and bring those of brokers where these are; remove them at the end."""
    folder = CertificateFolder(directory / FOLDER)
    try:
        folder.begin()
        (folder.path / OPERATORS).write_text(f"{LAUNCHER}\n")
        for client in (*overlay.publishers, *overlay.subscribers, LAUNCHER):
            folder.issue(Role.CLIENT, client, days=DAYS)
        for broker in overlay.broker_processes:
            folder.issue(Role.BROKER, broker, days=DAYS)
            host = hosts[broker]
            there = host.run_directory(directory, run_id) / FOLDER / broker
            host.bring(folder.for_broker(broker), there)
        yield RunSecurity(folder)
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)


def approach_for(run_directory: Path | None, given: Credentials | None) -> Approach | None:
    """How somebody comes who asks brokers: with what is given, else as the launcher of a run."""
    if given is None and run_directory is not None:
        profile = run_directory / FOLDER / CLIENTS / f"{LAUNCHER}.toml"
        given = Credentials.read(profile) if profile.exists() else None
    return None if given is None else Approach(given)
