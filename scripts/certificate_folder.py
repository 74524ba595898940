"""The folder of an overlay's certificates, as `plait certs` keeps it and `--tls` reads it.

Beside what `broker/net/security.py` lists, it has the keys of both authorities, the private key of
tokens, and a folder `clients`: for each client a certificate and a profile. Brokers need neither of
these, and are better off without (`for_broker`).
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from plait.broker.access.admission import Role
from plait.broker.net.secret_files import read_secret, write_secret
from plait.broker.net.security import (
    BROKER_FILE,
    BROKERS_AUTHORITY,
    CLIENTS_AUTHORITY,
    OPERATORS,
    REVOKED,
    RULES,
    TOKEN_KEYS,
    USERS,
)
from plait.broker.principals import expected_principal_name
from plait.scripts.errors import BadInputError
from plait.scripts.extras import needing

CLIENTS: Final = "clients"
TRUSTED: Final = "brokers-ca.crt"
"""The authority of brokers once more, beside the profiles; no client's file ends like that."""
TOKEN_SECRET: Final = "tokens.key"  # noqa: S105 - a file's name
_AUTHORITIES: Final = {Role.BROKER: BROKERS_AUTHORITY, Role.CLIENT: CLIENTS_AUTHORITY}
RULES_BEGIN: Final = """\
# Who may do what: allow or deny PRINCIPAL publish, subscribe, monitor or operate, and a filter.
# What no line allows is refused; `plait can` explains, `plait check` finds mistakes."""
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


@attrs.frozen
class CertificateFolder:
    """One such folder."""

    path: Path

    def begin(self) -> None:
        """Make both authorities, and the keys of tokens; what is there already stays as it is."""
        with needing("tls"):
            from plait.broker.access.tokens import new_key
            from plait.scripts.certificates import new_authority
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(mode=0o700, parents=True)
        (self.path / CLIENTS).mkdir(mode=0o700, exist_ok=True)
        for role, name in _AUTHORITIES.items():
            if not (self.path / name).exists():
                issued = new_authority(role)
                write_secret(self._key_of(role), issued.key)
                write_secret(self.path / name, issued.certificate)
        if not (self.path / TOKEN_KEYS).exists():
            private, public = new_key()
            write_secret(self.path / TOKEN_SECRET, private)
            write_secret(self.path / TOKEN_KEYS, public)

    def begin_rules(self, clients: Sequence[str]) -> None:
        """Let these clients publish and subscribe, and nobody else; if nobody has said who may."""
        rules = self.path / RULES
        if rules.exists() or not clients:
            return
        lines = [f"allow {name} {right}" for name in clients for right in ("publish", "subscribe")]
        text = "\n".join((RULES_BEGIN, *lines, "allow * monitor", ""))
        write_secret(rules, text.encode())

    def issue(self, role: Role, name: str, *, days: float, hosts: Sequence[str] = ()) -> Path:
        """Issue a certificate, in place of the one that there may be; returns its file.

        Of a client it returns the profile, which names the certificate.
        """
        expected = expected_principal_name(name)
        if expected or name.startswith("."):
            raise BadInputError(f"name {name!r}: expected {expected or 'no dot at its beginning'}")
        with needing("tls"):
            from plait.scripts.certificates import Issued, issue
        key = self._key_of(role)
        if not key.exists():
            raise BadInputError(f"{key} is not there: `plait certs init {self.path}` makes it")
        authority = Issued((self.path / _AUTHORITIES[role]).read_bytes(), read_secret(key))
        hosts = (*LOCAL_HOSTS, *hosts) if role is Role.BROKER else ()
        issued = issue(authority, role, name, days=days, hosts=hosts)
        file = self.certificate_of(role, name)
        write_secret(file, issued.certificate + issued.key, replace=True)
        if role is Role.BROKER:
            return file
        profile = file.with_suffix(".toml")
        write_secret(file.parent / TRUSTED, self._brokers_authority(), replace=True)
        # What JSON writes of a text, TOML reads.
        text = f"tls-ca = {json.dumps(TRUSTED)}\ntls-cert = {json.dumps(file.name)}\n"
        write_secret(profile, text.encode(), replace=True)
        return profile

    def certificate_of(self, role: Role, name: str) -> Path:
        """Return where a certificate is, with its key."""
        if role is Role.BROKER:
            return self.path / BROKER_FILE.format(name)
        return self.path / CLIENTS / f"{name}.pem"

    def revoke(self, what: str, remark: str) -> None:
        """Add a line to the list of what is not accepted any more."""
        revoked = self.path / REVOKED
        before = revoked.read_bytes() if revoked.exists() else b""
        write_secret(revoked, before + f"{what}  # {remark}\n".encode(), replace=True)

    def for_broker(self, name: str) -> dict[str, bytes]:
        """Return the files that one broker needs, by their names, and no others."""
        names = (BROKERS_AUTHORITY, CLIENTS_AUTHORITY, USERS, TOKEN_KEYS, RULES, REVOKED, OPERATORS)
        files = [self.certificate_of(Role.BROKER, name), *(self.path / each for each in names)]
        return {file.name: file.read_bytes() for file in files if file.exists()}

    def _brokers_authority(self) -> bytes:
        return (self.path / BROKERS_AUTHORITY).read_bytes()

    def _key_of(self, role: Role) -> Path:
        return (self.path / _AUTHORITIES[role]).with_suffix(".key")
