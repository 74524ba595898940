"""How whoever dials makes itself known, and knows the other end: a client, a monitor, a broker."""

import base64
import json
import secrets
import ssl
import tomllib
from pathlib import Path
from typing import Any, Final, Protocol, Self

import attrs
import trio

from plait.broker.access.admission import Admission, Applicant, Role, Roll
from plait.broker.access.errors import NotAdmittedError
from plait.broker.access.scram import NONCE_BYTES, ScramClient
from plait.broker.errors import RemoteProtocolError, UnusableFileError
from plait.broker.messages import Challenge
from plait.broker.net.connection import Connection
from plait.broker.net.secret_files import read_secret, read_secret_line
from plait.broker.net.tls import TlsSession, client_context, own_name
from plait.broker.principals import Caller, Door, Principal, Proof

NOT_A_BROKER: Final = (
    "whoever answers there has no certificate of a broker: look at the address and at --tls-ca"
)


def _path(given: Path | str | None) -> Path | None:
    return None if given is None else Path(given)


class Passage(Protocol):
    """What a connection goes through before the core hears of it."""

    def begin(self) -> TlsSession:
        """Return the TLS of one more connection."""

    async def admit(self, connection: Connection) -> Admission:
        """Find out who is at the other end; `NotAdmittedError` if nobody who may be there."""


@attrs.frozen(kw_only=True)
class Credentials:
    """What a client has to show, and whom it trusts: files, so that no secret is anywhere else."""

    tls_ca: Path = attrs.field(converter=Path)
    """The certificate of the authority of brokers."""
    tls_cert: Path | None = attrs.field(default=None, converter=_path)
    """A certificate, with its key in the same file unless `tls_key` has that."""
    tls_key: Path | None = attrs.field(default=None, converter=_path)
    user: str = ""
    password_file: Path | None = attrs.field(default=None, converter=_path)
    token_file: Path | None = attrs.field(default=None, converter=_path)
    """Read again for every connection, so that whoever issues tokens may replace it."""

    @classmethod
    def read(cls, profile: Path) -> Self:
        """Read a profile: these fields in TOML, with dashes; its files lie beside it."""
        try:
            found = tomllib.loads(profile.read_text(encoding="utf-8"))
        except OSError as error:
            raise UnusableFileError(f"{profile}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UnusableFileError(f"{profile}: {error}") from None
        fields = {field.name.replace("_", "-"): field for field in attrs.fields(cls)}
        given: dict[str, Any] = {}
        for name, value in found.items():
            if name not in fields or not isinstance(value, str):
                expected = ", ".join(fields)
                raise UnusableFileError(
                    f"{profile}: found {name} = {value!r}, expected texts called {expected}"
                )
            is_path = name != "user"
            given[fields[name].name] = profile.parent / value if is_path else value
        if "tls_ca" not in given:
            raise UnusableFileError(f"{profile}: expected tls-ca, the authority of the brokers")
        return cls(**given)

    def principal(self) -> str:
        """As whom it is going to be let in, as far as that can be seen from here."""
        if self.user:
            return self.user
        if self.token_file is not None:
            return subject_of(read_secret_line(self.token_file))
        if self.tls_cert is None:
            return ""
        return own_name(self.tls_cert.read_text(encoding="utf-8", errors="replace"))


def subject_of(token: str) -> str:
    """Whose token this is, as it says; nobody has checked that. Empty if it does not say."""
    try:
        claims = token.split(".")[1].encode()
        name = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))["sub"]
    except (IndexError, KeyError, TypeError, ValueError):
        return ""
    return name if isinstance(name, str) else ""


class Approach:
    """The way of who dials with credentials."""

    def __init__(self, credentials: Credentials) -> None:
        """Read what does not change; `UnusableFileError` says which file is of no use."""
        self._credentials = credentials
        self._password = None
        self._scram_keys: dict[tuple[bytes, int], bytes] = {}
        own = None
        if credentials.password_file is not None:
            if not credentials.user:
                raise UnusableFileError("--password-file: say whose it is, with --user")
            self._password = read_secret_line(credentials.password_file)
        if credentials.tls_cert is not None:
            read_secret(credentials.tls_key or credentials.tls_cert)
            own = (credentials.tls_cert, credentials.tls_key)
        self._context = loaded(client_context, credentials.tls_ca, own)

    def begin(self) -> TlsSession:
        """Return the TLS of one more connection."""
        return TlsSession(self._context, is_server=False)

    async def admit(self, connection: Connection) -> Admission:
        """Be let in."""
        principal, digest = require_broker(connection, Roll())
        await apply(connection, self._applicant(digest))
        return Admission(Caller(Door.BROKERS, principal))

    def _applicant(self, digest: bytes) -> Applicant:
        credentials = self._credentials
        if credentials.token_file is not None:
            return Applicant(token=read_secret_line(credentials.token_file))
        if self._password is None:
            return Applicant()
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        scram = ScramClient(
            credentials.user, self._password, nonce, binding=digest or None, keys=self._scram_keys
        )
        return Applicant(scram=scram)


async def pass_through(connection: Connection, passage: Passage, *, within_s: float) -> Admission:
    """Find out who is at the other end; `NotAdmittedError`, or `ConnectionLostError`, if nobody."""
    try:
        with trio.fail_after(within_s):
            await connection.shake_hands(passage.begin())
            admission = await passage.admit(connection)
    except trio.TooSlowError:
        raise NotAdmittedError(f"not shown within {within_s:g} s who it is") from None
    except (UnusableFileError, RemoteProtocolError) as error:
        raise NotAdmittedError(str(error)) from None
    connection.trust()
    return admission


def loaded(make: Any, *arguments: Any, **options: Any) -> ssl.SSLContext:
    """Make what has certificates and keys from files; `UnusableFileError` names them."""
    try:
        context: ssl.SSLContext = make(*arguments, **options)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(found) for found in _paths(arguments))
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise UnusableFileError(
            f"{files}: {str(reason).lower().replace('_', ' ')}; expected certificates and a key as "
            "`plait certs` writes them"
        ) from None
    return context


def _paths(arguments: Any) -> list[Path]:
    found = []
    for argument in arguments:
        if isinstance(argument, tuple):
            found += _paths(argument)
        elif isinstance(argument, Path):
            found.append(argument)
    return found


def require_broker(connection: Connection, roll: Roll) -> tuple[Principal, bytes]:
    """See that a broker of this overlay is at the other end: who it is, and what binds to it."""
    shown = connection.peer_certificate()
    if shown is None or shown.role is not Role.BROKER:
        raise NotAdmittedError(NOT_A_BROKER)
    principal = Principal(shown.name, Proof.CERTIFICATE)
    objection = roll.objection_to(Caller(Door.BROKERS, principal), shown.serial)
    if objection is not None:
        raise NotAdmittedError(objection)
    return principal, shown.digest


async def apply(connection: Connection, applicant: Applicant) -> None:
    """Have the conversation in which one is let in, or not."""
    connection.say(applicant.begin())
    while True:
        message = await connection.receive_one()
        if isinstance(message, Challenge):  # it takes some calculation
            answer = await trio.to_thread.run_sync(applicant.hear, message)
        else:
            answer = applicant.hear(message)
        if answer is None:
            return
        connection.say(answer)
