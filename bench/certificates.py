"""A certificate for listeners with TLS, and the settings of both sides.

Self-signed: brokers present the certificate, and brokers and clients trust it.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST: Final = "127.0.0.1"
# The private key and the certificate, and the certificate alone.
_KEY_STORE, _TRUST_STORE = "broker.pem", "trusted.pem"
_VALID: Final = timedelta(days=2)


def write_stores(directory: Path) -> None:
    """Create a key and a certificate for the loopback address; write both stores."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string("CN=broker")
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    written_key = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (directory / _KEY_STORE).write_bytes(written_key + certificate)
    (directory / _TRUST_STORE).write_bytes(certificate)


def listener_settings(stores: Path) -> dict[str, str]:
    """Return the broker's keys that turn TLS on for its listener, PLAINTEXT."""
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores / _KEY_STORE),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores / _TRUST_STORE),
    }


def client_settings(stores: Path) -> dict[str, str]:
    """Return the settings of librdkafka's client."""
    return {
        "security.protocol": "ssl",
        "ssl.ca.location": str(stores / _TRUST_STORE),
    }


def client_context(stores: Path) -> ssl.SSLContext:
    """Return the context of a client with plain sockets."""
    return ssl.create_default_context(cafile=str(stores / _TRUST_STORE))
