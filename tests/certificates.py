"""Certificates for tests, created on demand.

One CA is trusted by brokers and clients, another is not; stores are written to files.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from trustme import KeyType

HOST = "127.0.0.1"
# In the past, in whole seconds, the resolution of certificates.
YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).replace(microsecond=0)


@cache
def authority(name: str = "trusted") -> trustme.CA:
    """Return the CA of a name."""
    return trustme.CA(organization_name=f"{name} CA")


@cache
def leaf(
    host: str = HOST,
    *,
    common_name: str = "broker",
    of: str = "trusted",
    key: KeyType = KeyType.ECDSA,
    expired: bool = False,
) -> trustme.LeafCert:
    """Return a certificate of a host, signed by a CA."""
    return authority(of).issue_cert(
        host,
        common_name=common_name,
        organization_name="Tests",
        organization_unit_name="Unit",
        key_type=key,
        not_before=YESTERDAY - timedelta(days=1),
        not_after=YESTERDAY if expired else None,
    )


def pem(certificate: trustme.LeafCert) -> str:
    """Return the private key in PKCS #8, as Java requires, and the chain."""
    return key_pem(certificate) + chain_pem(certificate)


def key_pem(certificate: trustme.LeafCert) -> str:
    """Return the private key in PKCS #8."""
    return _key(certificate).decode()


def encrypted_key_pem(certificate: trustme.LeafCert, password: str) -> str:
    """Return the private key, encrypted."""
    return _key(certificate, password).decode()


def chain_pem(certificate: trustme.LeafCert) -> str:
    """Return the certificates."""
    return "".join(it.bytes().decode() for it in certificate.cert_chain_pems)


def trusted_pem(of: str = "trusted") -> str:
    """Return the certificate of a CA."""
    return authority(of).cert_pem.bytes().decode()


def pkcs12_key(certificate: trustme.LeafCert, password: str) -> bytes:
    """Return a key store in PKCS #12."""
    loaded = serialization.load_pem_private_key(_key(certificate), None)
    own, *others = x509.load_pem_x509_certificates(chain_pem(certificate).encode())
    return pkcs12.serialize_key_and_certificates(
        b"broker",
        loaded,  # type: ignore[arg-type]
        own,
        others,
        serialization.BestAvailableEncryption(password.encode()),
    )


def pkcs12_trust(password: str) -> bytes:
    """Return a trust store in PKCS #12, as Java's keytool writes it."""
    found = x509.load_pem_x509_certificate(trusted_pem().encode())
    return pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(found, b"ca")],
        serialization.BestAvailableEncryption(password.encode()),
    )


def server_keys(
    directory: Path, certificate: trustme.LeafCert | None = None
) -> dict[str, str]:
    """Write a listener's stores; return the config keys that name them."""
    key, trust = directory / "broker.pem", directory / "ca.pem"
    key.write_text(pem(certificate or leaf()))
    trust.write_text(trusted_pem())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }


def client_context(
    certificate: trustme.LeafCert | None = None, *, trusts: str = "trusted"
) -> ssl.SSLContext:
    """Return a client's TLS context, with or without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted_pem(trusts))
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def _key(certificate: trustme.LeafCert, password: str | None = None) -> bytes:
    written = certificate.private_key_pem.bytes()
    loaded = serialization.load_pem_private_key(written, None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password.encode()),
    )
