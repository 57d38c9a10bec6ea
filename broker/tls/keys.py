"""Kafka's TLS keys for brokers and clients (Kafka: ``SslConfigs``)."""

from __future__ import annotations

from typing import Any, Final

from broker.protocol.config_key import (
    ConfigType,
    Key,
    boolean,
    optional_text,
    text,
    words,
)
from broker.tls.principal_mapping import PrincipalMapping


def _secret(name: str, doc: str) -> Key[str | None]:
    return optional_text(name, doc, type=ConfigType.PASSWORD)


def _rules(written: str) -> str:
    PrincipalMapping(written)
    return written


SSL_PROTOCOL: Final = text(
    "ssl.protocol",
    "TLSv1.3",
    "Without effect: ssl.enabled.protocols alone chooses the versions.",
    inert=True,
)
SSL_ENABLED_PROTOCOLS: Final = words(
    "ssl.enabled.protocols",
    ("TLSv1.2", "TLSv1.3"),
    "Versions of TLS.",
    choices=("TLSv1.2", "TLSv1.3"),
)
SSL_CIPHER_SUITES: Final = words(
    "ssl.cipher.suites",
    (),
    "Cipher suites by their IANA names; empty means OpenSSL's choice. Those of TLSv1.3 "
    "can only be listed together.",
)
SSL_CLIENT_AUTH: Final = text(
    "ssl.client.auth",
    "none",
    "Whether a listener asks clients for a certificate, and whether they must have it.",
    choices=("required", "requested", "none"),
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: Final = text(
    "ssl.endpoint.identification.algorithm",
    "https",
    "Whether connections to brokers compare the host with the certificate (https) or "
    "not (empty).",
    choices=("https", "HTTPS", ""),
)
SSL_PRINCIPAL_MAPPING_RULES: Final = text(
    "ssl.principal.mapping.rules",
    "DEFAULT",
    "Rules from a certificate's distinguished name to a principal, the first that "
    "matches: RULE:pattern/replacement/[LU], or DEFAULT.",
    check=_rules,
)
SSL_KEYSTORE_TYPE: Final = text(
    "ssl.keystore.type", "JKS", "Format of the key store: PEM or PKCS12; not JKS."
)
SSL_KEYSTORE_LOCATION: Final = optional_text(
    "ssl.keystore.location", "The file with the private key and its certificates."
)
SSL_KEYSTORE_PASSWORD: Final = _secret(
    "ssl.keystore.password", "The password of a PKCS12 key store."
)
SSL_KEYSTORE_KEY: Final = _secret(
    "ssl.keystore.key", "The private key itself, in PEM (PKCS #8)."
)
SSL_KEYSTORE_CERTIFICATE_CHAIN: Final = _secret(
    "ssl.keystore.certificate.chain",
    "The certificates of ssl.keystore.key, in PEM, its own first.",
)
SSL_KEY_PASSWORD: Final = _secret(
    "ssl.key.password", "The password of an encrypted private key in PEM."
)
SSL_TRUSTSTORE_TYPE: Final = text(
    "ssl.truststore.type", "JKS", "Format of the trust store: PEM or PKCS12; not JKS."
)
SSL_TRUSTSTORE_LOCATION: Final = optional_text(
    "ssl.truststore.location",
    "The file with trusted certificates; without any, those of the system are.",
)
SSL_TRUSTSTORE_PASSWORD: Final = _secret(
    "ssl.truststore.password", "The password of a PKCS12 trust store."
)
SSL_TRUSTSTORE_CERTIFICATES: Final = _secret(
    "ssl.truststore.certificates", "Trusted certificates themselves, in PEM."
)
SSL_ALLOW_DN_CHANGES: Final = boolean(
    "ssl.allow.dn.changes",
    False,
    "Without effect: an altered key store may hold a certificate of another name.",
    inert=True,
)
SSL_ALLOW_SAN_CHANGES: Final = boolean(
    "ssl.allow.san.changes",
    False,
    "Without effect: an altered key store may hold a certificate for other hosts.",
    inert=True,
)

# Keys of key stores and trust stores, for listeners and clients.
STORE_KEYS: Final[tuple[Key[Any], ...]] = (
    SSL_KEYSTORE_TYPE,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEY_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_CERTIFICATES,
)
CLIENT_KEYS: Final[tuple[Key[Any], ...]] = (
    *STORE_KEYS,
    SSL_ENABLED_PROTOCOLS,
    SSL_CIPHER_SUITES,
    SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
)
# Keys that a listener may override.
LISTENER_KEYS: Final = frozenset(
    {*CLIENT_KEYS, SSL_CLIENT_AUTH, SSL_PRINCIPAL_MAPPING_RULES}
)
