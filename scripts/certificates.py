"""Authorities and certificates for an overlay, for people who have none of their own.

There are two authorities, one for brokers and one for clients, so that a client's certificate never
opens the door of brokers. A name stands in its certificate as a URI, `plait:broker:b1` or
`plait:client:alice`. Keys are ECDSA on P-256.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plait.broker.access.admission import Role

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
CLOCKS_APART: Final = datetime.timedelta(minutes=5)
COMMON_NAME_CHARS_MAX: Final = 64
"""RFC 5280; the whole name is in the URI."""


@attrs.frozen
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes = attrs.field(repr=False)


def new_authority(role: Role) -> Issued:
    """Make the authority of all brokers, or of all clients, of an overlay."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name(f"plait authority of {role}s")
    certificate = (
        _dated(x509.CertificateBuilder(), AUTHORITY_DAYS)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return _issued(certificate, key)


def issue(
    authority: Issued,
    role: Role,
    name: str,
    *,
    days: float = CERTIFICATE_DAYS,
    hosts: Sequence[str] = (),
) -> Issued:
    """Make a certificate for a name; `hosts` are for those who ask brokers over HTTP."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = load_pem_private_key(authority.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    uri = x509.UniformResourceIdentifier(f"plait:{role}:{quote(name, safe='')}")
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role is Role.BROKER:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    certificate = (
        _dated(x509.CertificateBuilder(), days)
        .subject_name(_common_name(name))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName([uri, *map(_host, hosts)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, SHA256())
    )
    return _issued(certificate, key)


def serial_of(pem: bytes) -> str:
    """Return the number by which a certificate is revoked."""
    return f"{x509.load_pem_x509_certificate(pem).serial_number:x}"


def _dated(builder: x509.CertificateBuilder, days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return builder.not_valid_before(now - CLOCKS_APART).not_valid_after(
        now + datetime.timedelta(days=days)
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_CHARS_MAX])])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
