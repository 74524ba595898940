"""What a broker shows at its doors, and by what it lets somebody in: the files of one folder.

| file | what it has |
| --- | --- |
| `brokers-ca.pem` | the authority of brokers |
| `broker-NAME.pem` | this broker's certificate, and its key |
| `clients-ca.pem` | the authority of clients, if they may show certificates |
| `users` | what is kept of passwords, if they may say one |
| `tokens.pem` | the public keys of those who issue tokens, if they may show one |
| `rules` | who may do what, for `--rules` where no other file is named |
| `operators` | without rules, principals who may have brokers played elsewhere, one a line |
| `revoked` | serial numbers of certificates, and `client:NAME` or `broker:NAME`, one a line |

They are looked at every second. What has changed holds from then on, also for those who are there;
what cannot be read changes nothing, and is said in the log.
"""

import base64
import binascii
import secrets
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import trio

from plait.broker.access.admission import (
    Admission,
    Applicant,
    Doorkeeper,
    Role,
    Roll,
    Tokens,
)
from plait.broker.access.errors import NotAdmittedError
from plait.broker.access.scram import NONCE_BYTES, nobody
from plait.broker.access.users import UsersError, read_users
from plait.broker.effects import Level
from plait.broker.errors import UnusableFileError
from plait.broker.net.connection import Connection
from plait.broker.net.credentials import apply, loaded, require_broker
from plait.broker.net.logs import Log
from plait.broker.net.secret_files import read_secret
from plait.broker.net.tls import (
    TlsSession,
    certificate_of,
    client_context,
    own_digest,
    own_name,
    server_context,
)
from plait.broker.principals import Caller, Door, Principal, Proof

LOOK_S: Final = 1.0
BROKERS_AUTHORITY: Final = "brokers-ca.pem"
CLIENTS_AUTHORITY: Final = "clients-ca.pem"
USERS: Final = "users"
TOKEN_KEYS: Final = "tokens.pem"  # noqa: S105 - a file's name
RULES: Final = "rules"
OPERATORS: Final = "operators"
REVOKED: Final = "revoked"
BROKER_FILE: Final = "broker-{}.pem"
"""A broker may be called anything, `brokers-ca` too."""
REALM: Final = 'Basic realm="plait"'


@attrs.frozen(kw_only=True)
class Keys:
    """What the files have said when they were read last."""

    contexts: dict[Door, ssl.SSLContext]
    dialling: ssl.SSLContext
    digest: bytes
    """Of this broker's certificate, for channel binding."""
    roll: Roll


class Security:
    """All of that, of one broker."""

    def __init__(self, folder: Path, node: str) -> None:
        """Read the folder; `UnusableFileError` says what is wrong with it."""
        self._node = node
        self._own = folder / BROKER_FILE.format(node)
        self._folder = folder
        self._secret = secrets.token_bytes(32)
        self._seen = self._looks()
        self.keys = self._load()

    def door(self, door: Door) -> "GuardedDoor":
        """Where clients, or brokers, are let in."""
        return GuardedDoor(self, door)

    def objection_to(self, admission: Admission) -> str | None:
        """Why somebody who was let in is not to stay."""
        return self.keys.roll.objection_to(admission.caller, admission.serial)

    async def watch(self, on_change: Callable[[], None], log: Log) -> None:
        """Read the files again whenever they have changed."""
        while True:
            await trio.sleep(LOOK_S)
            looks = self._looks()
            if looks == self._seen:
                continue
            self._seen = looks
            try:
                self.keys = self._load()
            except UnusableFileError as error:
                log(Level.ERROR, "keys not read again", {"reason": str(error)})
                continue
            log(Level.INFO, "keys read again", {"folder": str(self._folder)})
            on_change()

    def _looks(self) -> tuple[tuple[int, int] | None, ...]:
        """By what it can be seen that a file has changed."""
        names = (
            *(BROKERS_AUTHORITY, CLIENTS_AUTHORITY, USERS, TOKEN_KEYS),
            *(RULES, OPERATORS, REVOKED),
        )
        found: list[tuple[int, int] | None] = []
        for path in (self._own, *(self._folder / name for name in names)):
            try:
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size))
            except OSError:
                found.append(None)
        return tuple(found)

    def _load(self) -> Keys:
        folder = self._folder
        authority = folder / BROKERS_AUTHORITY
        if not (authority.exists() and self._own.exists()):
            raise UnusableFileError(
                f"{folder}: expected {BROKERS_AUTHORITY} and {self._own.name}, as `plait certs "
                f"init {folder}` and `plait certs issue --broker {self._node}` write them"
            )
        pem = read_secret(self._own).decode(errors="replace")
        if own_name(pem) != self._node:
            raise UnusableFileError(
                f"{self._own} is the certificate of {own_name(pem) or 'nobody'}, and {self._node} "
                f"needs its own: plait certs issue --broker {self._node}"
            )
        clients = folder / CLIENTS_AUTHORITY
        roll = self._roll()
        if not (clients.exists() or roll.users or roll.tokens):
            raise UnusableFileError(
                f"{folder}: no client could be let in: expected {CLIENTS_AUTHORITY}, {USERS} or "
                f"{TOKEN_KEYS}, as `plait certs init` and `plait users add` write them"
            )
        own = (self._own, None)
        return Keys(
            contexts={
                Door.CLIENTS: loaded(
                    server_context, own, clients if clients.exists() else None, is_required=False
                ),
                Door.BROKERS: loaded(server_context, own, authority, is_required=True),
            },
            dialling=loaded(client_context, authority, own),
            digest=own_digest(pem),
            roll=roll,
        )

    def _roll(self) -> Roll:
        users = self._folder / USERS
        try:
            known = read_users(read_secret(users).decode()) if users.exists() else {}
        except (UsersError, UnicodeDecodeError) as error:
            raise UnusableFileError(f"{users}: {error}") from None
        return Roll(
            users=known,
            tokens=_tokens(self._folder / TOKEN_KEYS),
            operators=frozenset(_words(self._folder / OPERATORS)),
            revoked=frozenset(map(_canonical, _words(self._folder / REVOKED))),
            secret=self._secret,
        )

    # --- as who dials -------------------------------------------------------------------------

    def begin(self) -> TlsSession:
        """Return the TLS of a connection to another broker."""
        return TlsSession(self.keys.dialling, is_server=False)

    async def admit(self, connection: Connection) -> Admission:
        """Be let in there, by whoever has the certificate of a broker."""
        principal, _ = require_broker(connection, self.keys.roll)
        await apply(connection, Applicant())
        serial = getattr(connection.peer_certificate(), "serial", "")
        return Admission(Caller(Door.BROKERS, principal), serial)


@attrs.frozen
class GuardedDoor:
    """Where somebody is let in who has shown who it is."""

    _security: Security
    _door: Door

    def begin(self) -> TlsSession:
        """Return the TLS of one more connection."""
        return TlsSession(self._security.keys.contexts[self._door], is_server=True)

    async def admit(self, connection: Connection) -> Admission:
        """Hear who it is."""
        keys = self._security.keys
        keeper = Doorkeeper(
            self._door,
            keys.roll,
            connection.peer_certificate(),
            binding=keys.digest,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
        )
        while keeper.admission is None:
            message = await connection.receive_one()
            connection.say(keeper.hear(message, time.time()))
        return keeper.admission


@attrs.frozen
class GuardedPages:
    """Where somebody asks over HTTPS: with a certificate, or a password or token in each request.

    This is what those have who gather metrics: client certificates, `Basic` and `Bearer`.
    """

    _security: Security
    _guessing: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """A password takes a long calculation: whoever guesses has one core at most."""

    def wrap(self, stream: trio.SocketStream) -> trio.SSLStream[trio.SocketStream]:
        """Speak TLS."""
        context = self._security.keys.contexts[Door.CLIENTS]
        return trio.SSLStream(stream, context, server_side=True, https_compatible=True)

    async def admits(self, stream: trio.SSLStream[trio.SocketStream], authorization: str) -> bool:
        """Whether whoever asks may be told."""
        keys = self._security.keys
        proven = await self._proven(stream, authorization.strip(), keys.roll)
        if proven is None:
            return False
        principal, serial = proven
        return keys.roll.objection_to(Caller(Door.CLIENTS, principal), serial) is None

    async def _proven(
        self, stream: trio.SSLStream[trio.SocketStream], authorization: str, roll: Roll
    ) -> tuple[Principal, str] | None:
        said, shown = stream.getpeercert(), stream.getpeercert(binary_form=True)
        if said and shown:
            certificate = certificate_of(said, shown)
            if certificate.role is Role.CLIENT:
                return Principal(certificate.name, Proof.CERTIFICATE), certificate.serial
        scheme, _, proof = authorization.partition(" ")
        try:
            match scheme.lower():
                case "basic":
                    user, _, password = (
                        base64.b64decode(proof, validate=True).decode().partition(":")
                    )
                    verifier = roll.users.get(user) or nobody(user, roll.secret)
                    if await trio.to_thread.run_sync(
                        verifier.accepts, password, limiter=self._guessing
                    ):
                        return Principal(user, Proof.PASSWORD), ""
                case "bearer" if roll.tokens is not None:
                    token = roll.tokens.read_token(proof, time.time())
                    return Principal(token.name, Proof.TOKEN), ""
        except (binascii.Error, UnicodeDecodeError, NotAdmittedError):
            pass
        return None


def _words(path: Path) -> list[str]:
    """The lines of a file, without remarks; none if it is not there."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFileError(f"{path}: {error}") from None
    words = (line.partition("#")[0].strip() for line in lines)
    return [word for word in words if word]


def _tokens(path: Path) -> Tokens | None:
    if not path.exists():
        return None
    try:
        from plait.broker.access.tokens import TokenKeys
    except ModuleNotFoundError:
        raise UnusableFileError(
            f"{path}: tokens are checked with the library cryptography: pip install 'plait[tls]', "
            f"or remove the file"
        ) from None
    try:
        return TokenKeys.read(path.read_bytes())
    except NotAdmittedError as error:
        raise UnusableFileError(f"{path}: {error}") from None


def _canonical(word: str) -> str:
    """A serial number as it is compared; `client:alice` is that already."""
    is_named = word.partition(":")[0] in (Role.BROKER, Role.CLIENT)
    return word if is_named else word.replace(":", "").lower().lstrip("0")
