"""SCRAM-SHA-256 (RFC 5802, RFC 7677): both sides of the conversation, without I/O.

The broker keeps nothing from which a password could be had without guessing (`Verifier`), and the
one who connects proves that it has the password without telling it. With *channel binding* the
proof is about this very TLS connection, and worth nothing on another one: `tls-server-end-point`
(RFC 5929), the digest of the certificate that the broker has shown.

Nonces and salts come from outside. Whatever the other side sends, the outcome is an answer or a
`ScramError`, and no more work than `ITERATIONS_MAX` allows.
"""

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from typing import Final

import attrs

from plait.broker.access.errors import ScramError
from plait.broker.limits import PROOF_CHARS_MAX

MECHANISM: Final = "SCRAM-SHA-256"
MECHANISM_PLUS: Final = "SCRAM-SHA-256-PLUS"
BINDING_TYPE: Final = "tls-server-end-point"

ITERATIONS: Final = 100_000
"""Some 30 ms for who connects, once for each password; as much for each guess at a stolen file."""
ITERATIONS_MIN: Final = 4096
"""RFC 7677."""
ITERATIONS_MAX: Final = 2_000_000
"""More, and whoever claims to be a broker could have a client calculate for ever."""
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18

_DIGEST: Final = "sha256"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"

_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>(?P<binding>n|y|p=[A-Za-z0-9.-]+),(?:a=[^,]*)?,)"
    rf"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>{_PRINTABLE})(?:,.*)?)",
    re.DOTALL,
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}})(?:,.*)?",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,.*)?)"
    rf",p=(?P<proof>{_BASE64})",
    re.DOTALL,
)
_SERVER_FINAL: Final = re.compile(rf"v=(?P<signature>{_BASE64})(?:,.*)?", re.DOTALL)


@attrs.frozen(kw_only=True)
class Verifier:
    """What a broker keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, password: str, *, salt: bytes, iterations: int = ITERATIONS) -> "Verifier":
        """Make that of a password."""
        return cls.of_salted(salted(password, salt, iterations), salt=salt, iterations=iterations)

    @classmethod
    def of_salted(cls, salted_password: bytes, *, salt: bytes, iterations: int) -> "Verifier":
        """Make it of what the long calculation has come to."""
        return cls(
            salt=salt,
            iterations=iterations,
            stored_key=hashlib.sha256(_hmac(salted_password, b"Client Key")).digest(),
            server_key=_hmac(salted_password, b"Server Key"),
        )

    def accepts(self, password: str) -> bool:
        """Whether this is the password: for those who cannot but send it, within TLS."""
        guess = Verifier.of(password, salt=self.salt, iterations=self.iterations)
        return hmac.compare_digest(guess.stored_key, self.stored_key)


def nobody(user: str, key: bytes) -> Verifier:
    """What is asked of somebody who does not exist: always the same, and nothing answers it.

    So whoever has no password does not learn who has one.
    """
    salt = _hmac(key, b"salt " + user.encode())[:SALT_BYTES]
    unknown = _hmac(key, b"key " + user.encode())
    return Verifier(salt=salt, iterations=ITERATIONS, stored_key=unknown, server_key=unknown)


def salted(password: str, salt: bytes, iterations: int) -> bytes:
    """The long calculation that makes guessing slow."""
    return hashlib.pbkdf2_hmac(_DIGEST, prepared(password).encode(), salt, iterations)


def prepared(text: str) -> str:
    """Normalise what people type, by SASLprep (RFC 4013), or say what it may not have."""
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if not normal:
        raise ScramError("expected at least one character")
    if any(is_in(c) for c in normal for is_in in _PROHIBITED):
        raise ScramError("expected no control characters")
    right_to_left = [c for c in normal if stringprep.in_table_d1(c)]
    if right_to_left and (
        any(map(stringprep.in_table_d2, normal))
        or not (stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1]))
    ):
        raise ScramError("expected text in one direction")
    return normal


_PROHIBITED: Final = (
    *(stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4),
    *(stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7),
    *(stringprep.in_table_c8, stringprep.in_table_c9),
)
"""Not what Unicode 3.2 did not have yet: later versions have made characters of it."""


class ScramClient:
    """The side that knows the password."""

    def __init__(
        self,
        user: str,
        password: str,
        nonce: str,
        *,
        binding: bytes | None = None,
        keys: dict[tuple[bytes, int], bytes] | None = None,
    ) -> None:
        """Prove to be `user`; about the connection with this `binding`, if there is one.

        Long calculations are kept in `keys`, by salt and iterations, and not made again.
        """
        self._password = password
        self._nonce = nonce
        self._binding = binding
        kind = "n" if binding is None else f"p={BINDING_TYPE}"
        self._gs2 = f"{kind},,"
        self._bare = f"n={_escaped(prepared(user))},r={nonce}"
        self._signature: bytes | None = None
        self._keys = {} if keys is None else keys

    @property
    def mechanism(self) -> str:
        """What it is called."""
        return MECHANISM if self._binding is None else MECHANISM_PLUS

    def first(self) -> str:
        """What is said first."""
        return self._gs2 + self._bare

    def final(self, server_first: str) -> str:
        """The proof, in answer to what the broker asks for."""
        found = _matched(_SERVER_FIRST, server_first, "the broker's first message")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the broker's nonce does not go on from ours")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(
                f"{iterations} iterations, {ITERATIONS_MIN} to {ITERATIONS_MAX} expected"
            )
        salt = _decoded(found["salt"])
        salted_password = self._keys.get((salt, iterations))
        if salted_password is None:
            salted_password = salted(self._password, salt, iterations)
            self._keys[salt, iterations] = salted_password
        bound = _encoded(self._gs2.encode() + (self._binding or b""))
        without_proof = f"c={bound},r={nonce}"
        message = ",".join((self._bare, server_first, without_proof)).encode()
        client_key = _hmac(salted_password, b"Client Key")
        signature = _hmac(hashlib.sha256(client_key).digest(), message)
        self._signature = _hmac(_hmac(salted_password, b"Server Key"), message)
        return f"{without_proof},p={_encoded(_xor(client_key, signature))}"

    def check(self, server_final: str) -> None:
        """See that the broker has known the password, too: `ScramError` if it has not."""
        found = _matched(_SERVER_FINAL, server_final, "the broker's last message")
        if self._signature is None or not hmac.compare_digest(
            _decoded(found["signature"]), self._signature
        ):
            raise ScramError("the broker does not know the password itself")


class ScramServer:
    """The side that has verifiers."""

    def __init__(self, nonce: str, *, binding: bytes | None = None) -> None:
        """Ask for a proof, which has to be about this `binding` where that is offered."""
        self._nonce = nonce
        self._binding = binding
        self._first = ""
        self._bare = ""
        self._gs2 = ""
        self.is_bound = False
        """Whether the other end means this very connection."""
        self._verifier: Verifier | None = None
        self.user = ""

    def on_first(self, client_first: str) -> str:
        """Hear who it wants to be; returns that name, for which a verifier is needed next."""
        found = _matched(_CLIENT_FIRST, client_first, "the first message")
        kind = found["binding"]
        self.is_bound = kind.startswith("p=")
        if self.is_bound and (kind != f"p={BINDING_TYPE}" or self._binding is None):
            raise ScramError(f"channel binding {kind[2:]!r}, which is not to be had here")
        if kind == "y" and self._binding is not None:
            # It could, and was made to believe that this side cannot.
            raise ScramError("channel binding was offered and not taken up")
        self._gs2, self._bare = found["gs2"], found["bare"]
        self._nonce = found["nonce"] + self._nonce
        self.user = prepared(_unescaped(found["user"]))
        return self.user

    def challenge(self, verifier: Verifier) -> str:
        """What is asked of it."""
        self._verifier = verifier
        self._first = f"r={self._nonce},s={_encoded(verifier.salt)},i={verifier.iterations}"
        return self._first

    def on_final(self, client_final: str) -> str:
        """Check the proof: returns what proves to it that this side is the right one."""
        found = _matched(_CLIENT_FINAL, client_final, "the last message")
        verifier = self._verifier
        if verifier is None:
            raise ScramError("the last message before the first")
        if found["nonce"] != self._nonce:
            raise ScramError("the nonce is not the one of this conversation")
        bound = (self._binding or b"") if self.is_bound else b""
        if _decoded(found["binding"]) != self._gs2.encode() + bound:
            raise ScramError("the proof is about another connection")
        message = ",".join((self._bare, self._first, found["without_proof"])).encode()
        proof = _decoded(found["proof"])
        signature = _hmac(verifier.stored_key, message)
        if len(proof) != len(signature) or not hmac.compare_digest(
            hashlib.sha256(_xor(proof, signature)).digest(), verifier.stored_key
        ):
            raise ScramError("the password is not right")
        return f"v={_encoded(_hmac(verifier.server_key, message))}"


def _matched(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    found = pattern.fullmatch(text) if len(text) <= PROOF_CHARS_MAX else None
    if found is None:
        raise ScramError(f"{what} is not as RFC 5802 has it")
    return found


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _DIGEST)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("something in it is not base64") from None


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescaped(user: str) -> str:
    if re.search("=(?!2C|3D)", user):
        raise ScramError("the name is not escaped as RFC 5802 has it")
    return user.replace("=2C", ",").replace("=3D", "=")
