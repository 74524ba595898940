"""Tokens: signed, short-lived, checked without asking anybody.

A token is a JWT (RFC 7519), signed with Ed25519 (RFC 8037): who it is for (`sub`), since when and
until when (`iat`, `exp`, in seconds since 1970). Whoever has the private key issues them; brokers
have the public one. Until when a token is valid, the clock of the broker says; one that was issued
for longer than `VALID_MAX_S` is refused, as it cannot be taken back.
"""

import base64
import binascii
import json
from typing import Any, Final

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from plait.broker.access.admission import Token
from plait.broker.access.errors import TokenError
from plait.broker.principals import expected_principal_name

VALID_MAX_S: Final = 86_400
CLOCKS_APART_S: Final = 60
"""So much a token may begin in the future: clocks of machines differ."""
TOKEN_CHARS_MAX: Final = 2048
_ALGORITHM: Final = "EdDSA"
_END_OF_KEY: Final = b"-----END PUBLIC KEY-----"


@attrs.frozen
class TokenKeys:
    """The public keys of those who may issue tokens."""

    keys: tuple[Ed25519PublicKey, ...]

    @classmethod
    def read(cls, pem: bytes) -> "TokenKeys":
        """Read one key, or several behind each other: so keys are changed without a gap."""
        parts = [part + _END_OF_KEY for part in pem.split(_END_OF_KEY)[:-1]]
        try:
            keys = [load_pem_public_key(part.strip()) for part in parts]
        except ValueError as error:
            raise TokenError(f"not a public key: {error}") from None
        found = tuple(key for key in keys if isinstance(key, Ed25519PublicKey))
        if not found or len(found) < len(keys):
            raise TokenError("expected public keys of Ed25519, as `plait certs init` makes them")
        return cls(found)

    def read_token(self, text: str, now_s: float) -> Token:
        """Return what a token says that is valid now; `TokenError` says what is wrong with it."""
        header, claims = self._verified(text)
        if header.get("alg") != _ALGORITHM or "crit" in header:
            raise TokenError(f"a token signed with {_ALGORITHM} is expected")
        name, since, until = (claims.get(claim) for claim in ("sub", "iat", "exp"))
        if not isinstance(name, str) or expected_principal_name(name) is not None:
            raise TokenError("the token does not say whose it is")
        if type(since) is not int or type(until) is not int:
            raise TokenError("the token does not say since when and until when it is valid")
        if until - since > VALID_MAX_S:
            raise TokenError(
                f"the token of {name} is valid for {until - since} s, at most {VALID_MAX_S} allowed"
            )
        if since > now_s + CLOCKS_APART_S:
            raise TokenError(f"the token of {name} is not valid yet: look at the clocks")
        if until <= now_s:
            raise TokenError(f"the token of {name} has expired: have a new one issued")
        return Token(name, until)

    def _verified(self, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        signed, _, signature = text.rpartition(".")
        parts = signed.split(".")
        if len(text) > TOKEN_CHARS_MAX or len(parts) != 2:
            raise TokenError("not a token")
        if not any(_is_signed(key, _decoded(signature), signed.encode()) for key in self.keys):
            raise TokenError("the token is signed with a key that is not accepted here")
        header, claims = (_object(part) for part in parts)
        return header, claims


def _is_signed(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def new_key() -> tuple[bytes, bytes]:
    """Return a private key and its public one, as PEM."""
    key = Ed25519PrivateKey.generate()
    return (
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )


def issue(name: str, private_key: bytes, *, now_s: int, valid_s: int) -> str:
    """Sign a token."""
    key = load_pem_private_key(private_key, None)
    if not isinstance(key, Ed25519PrivateKey):
        raise TokenError("expected a private key of Ed25519, as `plait certs init` makes it")
    if not 0 < valid_s <= VALID_MAX_S:
        raise TokenError(f"a token is valid for at most {VALID_MAX_S} s")
    header = {"alg": _ALGORITHM, "typ": "JWT"}
    claims = {"sub": name, "iat": now_s, "exp": now_s + valid_s}
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{_encoded(key.sign(signed.encode()))}"


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        raise TokenError("not a token") from None
    if not isinstance(found, dict):
        raise TokenError("not a token")
    return found


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return base64.b64decode(padded, b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise TokenError("not a token") from None
