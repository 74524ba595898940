"""Being let in at a guarded door: what is said before the core hears of a connection.

Whoever has dialled says `Authenticate` first: by what it will show who it is. A certificate has
been shown by TLS already, a token is in the message, a password takes one more `Challenge` and
answer. `Admitted` says as whom it is let in. `Goodbye` says why not, in one sentence with what to
do.

Both ends are here, as machines without I/O; the simulator has no use for them, as nobody there has
to prove anything.
"""

import enum
from collections.abc import Mapping
from typing import Final, Protocol

import attrs

from plait.broker.access.errors import NotAdmittedError, ScramError
from plait.broker.access.scram import ScramClient, ScramServer, Verifier, nobody
from plait.broker.messages import Admitted, Authenticate, Challenge, Goodbye, Mechanism, Message
from plait.broker.principals import Caller, Door, Principal, Proof

NOT_KNOWN: Final = (
    "the name or the password is not right: `plait users list` has the names, "
    "`plait users add NAME` sets a password"
)


SAID_OUTSIDE: Final = frozenset({Authenticate})
"""What whoever has dialled may say, beside `Goodbye`, before it is let in;"""
SAID_INSIDE: Final = frozenset({Challenge, Admitted})
"""and what may be said to it. Once somebody is let in, none of these is legal."""


class Role(enum.StrEnum):
    """What a certificate is for."""

    BROKER = "broker"
    CLIENT = "client"


@attrs.frozen(kw_only=True)
class Certificate:
    """What a certificate says that TLS has checked: its authority, its dates, its key."""

    role: Role | None
    """None if it is none of ours."""
    name: str
    serial: str
    """In hexadecimal, without zeros before it."""
    digest: bytes = b""
    """For channel binding; empty where there is none."""


@attrs.frozen
class Token:
    """What a valid token says."""

    name: str
    expires_at: int
    """Seconds since 1970."""


class Tokens(Protocol):
    """Whoever can read tokens."""

    def read_token(self, text: str, now_s: float) -> Token:
        """Return what a token says that is valid now; `TokenError` says what is wrong with it."""


@attrs.frozen(kw_only=True)
class Roll:
    """Who may be let in, beside those who have a certificate of the right authority."""

    users: Mapping[str, Verifier] = attrs.field(factory=dict)
    tokens: Tokens | None = None
    operators: frozenset[str] = frozenset()
    """Principals who may have brokers played elsewhere."""
    revoked: frozenset[str] = frozenset()
    """Serial numbers of certificates, and of `client:alice` or `broker:b2` all."""
    secret: bytes = b""
    """From which is made what is asked of users that do not exist."""

    def objection_to(self, caller: Caller, serial: str = "") -> str | None:
        """Why somebody is not to be here (any more)."""
        role = Role.BROKER if caller.door is Door.BROKERS else Role.CLIENT
        name, proof = caller.principal.name, caller.principal.proof
        if serial and serial in self.revoked:
            return (
                f"this certificate of {name} has been revoked: have another one issued, with "
                f"`plait certs issue {name}`"
            )
        if f"{role}:{name}" in self.revoked:
            return f"whatever {role} {name} shows has been revoked: ask whoever keeps the list"
        if proof is Proof.PASSWORD and name not in self.users:
            return NOT_KNOWN
        if proof is Proof.TOKEN and self.tokens is None:
            return "tokens are not accepted here: show a certificate or a password"
        return None


@attrs.frozen
class Admission:
    """Somebody has been let in."""

    caller: Caller
    serial: str = ""
    """Of the certificate, if that was shown."""
    expires_at: int | None = None
    """Until when, in seconds since 1970."""


class Doorkeeper:
    """The end where somebody comes in."""

    def __init__(
        self, door: Door, roll: Roll, shown: Certificate | None, *, binding: bytes, nonce: str
    ) -> None:
        """Guard one connection, on which TLS was `shown` a certificate, or none."""
        self._door = door
        self._roll = roll
        self._shown = shown
        self._scram = ScramServer(nonce, binding=binding or None)
        self._is_challenged = False
        self.admission: Admission | None = None
        """Once it is decided."""

    def hear(self, message: Message, now_s: float) -> Challenge | Admitted:
        """What is answered; `NotAdmittedError` says why nobody is let in."""
        match message:
            case Authenticate(mechanism=mechanism, proof=proof):
                pass
            case Goodbye(reason=reason):
                raise NotAdmittedError(reason)
            case _:
                raise NotAdmittedError(
                    "whoever comes here shows first who it is: with a certificate (--tls-cert), a "
                    "password (--user and --password-file) or a token (--token-file)"
                )
        if self._door is Door.BROKERS and mechanism is not Mechanism.CERTIFICATE:
            raise NotAdmittedError("brokers show a certificate, and nothing else will do")
        match mechanism:
            case Mechanism.CERTIFICATE:
                return self._admit_by_certificate()
            case Mechanism.TOKEN:
                return self._admit_by_token(proof, now_s)
            case _:
                return self._hear_scram(mechanism, proof)

    def _admit_by_certificate(self) -> Admitted:
        wanted = Role.BROKER if self._door is Door.BROKERS else Role.CLIENT
        shown = self._shown
        if shown is None:
            raise NotAdmittedError(
                "no certificate was shown: give one with --tls-cert, or a password or a token"
            )
        if shown.role is not wanted:
            raise NotAdmittedError(
                f"the certificate is not that of a {wanted}: `plait certs issue` makes one"
            )
        return self._admit(Principal(shown.name, Proof.CERTIFICATE), serial=shown.serial)

    def _admit_by_token(self, proof: str, now_s: float) -> Admitted:
        if self._roll.tokens is None:
            raise NotAdmittedError("tokens are not accepted here: show a certificate or a password")
        token = self._roll.tokens.read_token(proof, now_s)
        return self._admit(Principal(token.name, Proof.TOKEN), expires_at=token.expires_at)

    def _hear_scram(self, mechanism: Mechanism, proof: str) -> Challenge | Admitted:
        if not self._is_challenged:
            self._is_challenged = True
            user = self._scram.on_first(proof)
            is_bound = mechanism is Mechanism.SCRAM_PLUS
            if is_bound is not self._scram.is_bound:
                raise ScramError(f"{mechanism} was said, and another mechanism meant")
            verifier = self._roll.users.get(user) or nobody(user, self._roll.secret)
            return Challenge(proof=self._scram.challenge(verifier))
        try:
            answer = self._scram.on_final(proof)
        except ScramError as error:
            raise NotAdmittedError(f"{NOT_KNOWN} ({error})") from None
        return self._admit(Principal(self._scram.user, Proof.PASSWORD), proof=answer)

    def _admit(
        self,
        principal: Principal,
        *,
        proof: str = "",
        serial: str = "",
        expires_at: int | None = None,
    ) -> Admitted:
        is_operator = principal.name in self._roll.operators
        caller = Caller(self._door, attrs.evolve(principal, is_operator=is_operator))
        objection = self._roll.objection_to(caller, serial)
        if objection is not None:
            raise NotAdmittedError(objection)
        self.admission = Admission(caller, serial, expires_at)
        return Admitted(principal=principal.name, proof=proof)


class Applicant:
    """The end that has dialled, and shows who it is."""

    def __init__(self, *, token: str = "", scram: ScramClient | None = None) -> None:
        """Show a token, or that a password is known; else there is the certificate."""
        self._token = token
        self._scram = scram
        self.principal = ""
        """As whom it was let in, once it is."""

    def begin(self) -> Authenticate:
        """What is said first."""
        if self._scram is not None:
            mechanism = Mechanism(self._scram.mechanism)
            return Authenticate(mechanism=mechanism, proof=self._scram.first())
        if self._token:
            return Authenticate(mechanism=Mechanism.TOKEN, proof=self._token)
        return Authenticate(mechanism=Mechanism.CERTIFICATE)

    def hear(self, message: Message) -> Authenticate | None:
        """What is answered; nothing, once it is let in. `NotAdmittedError` says why it is not."""
        match message:
            case Challenge(proof=proof) if self._scram is not None:
                mechanism = Mechanism(self._scram.mechanism)
                return Authenticate(mechanism=mechanism, proof=self._scram.final(proof))
            case Admitted(principal=principal, proof=proof):
                if self._scram is not None:
                    self._scram.check(proof)
                self.principal = principal
                return None
            case Goodbye(reason=reason):
                raise NotAdmittedError(reason)
            case _:
                raise NotAdmittedError(f"{type(message).__name__} instead of being let in")
