"""TLS on bytes: what comes in and goes out of one connection, and what a certificate says.

TLS is done in memory (`ssl.MemoryBIO`, as trio's own stream does it), so that a connection keeps
its ways with sockets: a write is one system call, and nobody waits for it. Version 1.3 only, which
both ends of ours have.
"""

import hashlib
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from plait.broker.access.admission import Certificate, Role
from plait.broker.errors import BrokerError

READ_BYTES: Final = 256 << 10
FIRST_BYTE: Final = 0x16
"""Of whoever begins with TLS; our own frames begin with a length, which is never so large."""

_NAMED: Final = re.compile(r"plait:(broker|client):(.+)", re.DOTALL)
_NAMED_IN_DER: Final = re.compile(
    rb"\x86(?:(?P<short>[\x00-\x7f])|\x81(?P<long>.)|\x82(?P<longer>..))(?=plait:)", re.DOTALL
)
"""Before a name of ours, as a URI among the names of a certificate: the tag, and the length."""
_NOBODY: Final = (None, "")


class TlsError(BrokerError):
    """The two ends cannot come to an understanding; the text says what is to be done."""


class TlsSession:
    """One connection's TLS: ciphertext in and out, without any I/O."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool) -> None:
        self.is_server = is_server
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)

    def shake_hands(self, data: bytes = b"") -> bool:
        """Take in what has come; returns whether both ends understand each other."""
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(self._in_words(error)) from None
        return True

    def take_outgoing(self) -> bytes:
        """What is to be sent."""
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """What is to be sent, so that the other end reads this."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest) :]
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """What the other end has written, as far as it has come; perhaps nothing."""
        self._incoming.write(data)
        parts = []
        try:
            while part := self._object.read(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # it will write no more, which the socket says as well
            pass
        except ssl.SSLError as error:
            raise TlsError(self._in_words(error)) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def peer(self) -> Certificate | None:
        """What the other end has shown, if it has."""
        said = self._object.getpeercert()
        shown = self._object.getpeercert(binary_form=True)
        return None if not said or shown is None else certificate_of(said, shown)

    def _in_words(self, error: ssl.SSLError) -> str:
        """Say what has gone wrong, and what to do."""
        if isinstance(error, ssl.SSLCertVerificationError):
            whose = "the client's" if self.is_server else "the broker's"
            hint = _VERIFICATION.get(error.verify_code, "")
            return f"{whose} certificate is not accepted: {error.verify_message}{hint}"
        reason = error.reason or str(error)
        return _REASONS.get(reason, f"TLS has failed: {reason.lower().replace('_', ' ')}")


_OTHER_AUTHORITY: Final = (
    "; it is of another authority than the one that is trusted here: look at --tls-ca, or have a "
    "certificate issued by the right one"
)
_VERIFICATION: Final[Mapping[int, str]] = {
    10: "; have a new one issued with `plait certs issue`, or look at the clock",
    9: "; look at the clocks of both machines",
    18: _OTHER_AUTHORITY,
    19: _OTHER_AUTHORITY,
    20: _OTHER_AUTHORITY,
    7: _OTHER_AUTHORITY,
}
"""By OpenSSL's numbers of what is wrong with a certificate."""

_REASONS: Final[Mapping[str, str]] = {
    "WRONG_VERSION_NUMBER": "nobody speaks TLS there: leave out the options of TLS, or start the "
    "broker with --tls",
    "RECORD_LAYER_FAILURE": "nobody speaks TLS there: leave out the options of TLS, or start the "
    "broker with --tls",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate was shown where there has to be one: "
    "brokers join with --tls, clients connect to another address",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "a certificate has to be shown there, which is for "
    "brokers: clients connect to the address that --listen names",
    "TLSV1_ALERT_UNKNOWN_CA": "the certificate is of another authority than the one that is "
    "trusted there: have one issued by that, with `plait certs issue`",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate has expired: have a new one issued with "
    "`plait certs issue`",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the certificate is not accepted there: have one issued with "
    "`plait certs issue`",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the certificate is not accepted there: have one issued "
    "with `plait certs issue`",
    "SSL/TLS_ALERT_UNKNOWN_CA": "the certificate is of another authority than the one that is "
    "trusted there",
}
"""By OpenSSL's word for what the other end has said, or has not."""


def client_context(authority: Path, own: tuple[Path, Path | None] | None) -> ssl.SSLContext:
    """What who dials trusts, and shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Any host may come to play any broker, at any address: what counts is that the certificate is
    # a broker's, of the overlay's own authority. See `require_broker`.
    context.check_hostname = False
    _prepare(context, authority, own)
    return context


def server_context(
    own: tuple[Path, Path | None], authority: Path | None, *, is_required: bool
) -> ssl.SSLContext:
    """What who listens shows, and whom it asks for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare(context, authority, own)
    context.num_tickets = 0
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def _prepare(
    context: ssl.SSLContext, authority: Path | None, own: tuple[Path, Path | None] | None
) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if authority is not None:
        context.load_verify_locations(cafile=authority)
    if own is not None:
        context.load_cert_chain(own[0], own[1])


def certificate_of(said: Mapping[str, Any], shown: bytes) -> Certificate:
    """What a certificate that was checked says of who has it."""
    names = [value for kind, value in said.get("subjectAltName", ()) if kind == "URI"]
    role, name = next((found for found in map(_named, names) if found != _NOBODY), _NOBODY)
    return Certificate(
        role=role,
        name=name,
        serial=str(said.get("serialNumber", "")).lstrip("0").lower(),
        digest=end_point_digest(shown),
    )


def _named(uri: str) -> tuple[Role | None, str]:
    found = _NAMED.fullmatch(uri)
    return _NOBODY if found is None else (Role(found[1]), unquote(found[2]))


def own_name(pem: str) -> str:
    """Whose certificate this is, which the library of TLS does not tell; empty if not one of ours.

    It is for convenience only: what counts is what the other end reads.
    """
    der = ssl.PEM_cert_to_DER_cert(_first_certificate(pem)) if _first_certificate(pem) else b""
    found = _NAMED_IN_DER.search(der)
    if found is None:
        return ""
    length = int.from_bytes(found["short"] or found["long"] or found["longer"], "big")
    return _named(der[found.end() : found.end() + length].decode("latin-1"))[1]


def own_digest(pem: str) -> bytes:
    """What the other end computes for channel binding with our own certificate."""
    return end_point_digest(ssl.PEM_cert_to_DER_cert(_first_certificate(pem)))


def _first_certificate(pem: str) -> str:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    at = pem.find(begin)
    return pem[at : pem.find(end, at) + len(end)] + "\n" if at >= 0 else ""


# `tls-server-end-point` of RFC 5929: the digest of a certificate by the hash that its own signature
# uses. That one is named in the second of the three parts that a certificate has.

_HASHES: Final[Mapping[bytes, Callable[[bytes], Any]]] = {
    bytes.fromhex("2a8648ce3d040302"): hashlib.sha256,  # ECDSA
    bytes.fromhex("2a8648ce3d040303"): hashlib.sha384,
    bytes.fromhex("2a8648ce3d040304"): hashlib.sha512,
    bytes.fromhex("2a864886f70d01010b"): hashlib.sha256,  # RSA
    bytes.fromhex("2a864886f70d01010c"): hashlib.sha384,
    bytes.fromhex("2a864886f70d01010d"): hashlib.sha512,
}


def end_point_digest(certificate: bytes) -> bytes:
    """What binds a proof to the broker that has shown this; empty if its hash is not known."""
    _, _, whole = _element(certificate)
    _, after, _ = _element(whole)
    _, _, algorithm = _element(whole[after:])
    _, _, identifier = _element(algorithm)
    hashed = _HASHES.get(identifier)
    return b"" if hashed is None else bytes(hashed(certificate).digest())


def _element(data: bytes) -> tuple[int, int, bytes]:
    """Return the tag of the first element of DER, where the next begins, and what is in it."""
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    return data[0], start + length, data[start : start + length]
