"""Contexts of OpenSSL from Kafka's keys, for listeners and for clients.

Renegotiation and compression are off. A context never changes: changed settings create
another context, which new connections use.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from broker.protocol.config_key import Key
from broker.protocol.errors import ConfigError
from broker.tls.keys import (
    SSL_CIPHER_SUITES,
    SSL_ENABLED_PROTOCOLS,
    SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEYSTORE_TYPE,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
)
from broker.tls.stores import Store, load_key, load_trust

T = TypeVar("T")

_VERSIONS: Final = MappingProxyType(
    {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
)
# Python cannot select among these: OpenSSL offers all of them.
_SUITES_OF_1_3: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    }
)
_VERIFY: Final = MappingProxyType(
    {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }
)


class Values(Protocol):
    """Values by key, of a listener or of a client."""

    def __getitem__(self, key: Key[T]) -> T:
        """Return the value of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Settings of one listener, or of the connections of a client."""

    prefix: str
    keystore: Store
    truststore: Store
    protocols: tuple[str, ...]
    suites: tuple[str, ...]
    checks_host: bool

    @property
    def stamps(self) -> tuple[tuple[int, int] | None, ...]:
        """Return values that change when a store's file is rewritten."""
        return self.keystore.stamp, self.truststore.stamp


def tls_settings(values: Values, prefix: str = "") -> TlsSettings:
    """Return the settings; errors name keys with ``prefix``."""
    return TlsSettings(
        prefix=prefix,
        keystore=Store(
            kind="keystore",
            prefix=prefix,
            type=values[SSL_KEYSTORE_TYPE],
            location=values[SSL_KEYSTORE_LOCATION],
            password=values[SSL_KEYSTORE_PASSWORD],
            inline=values[SSL_KEYSTORE_CERTIFICATE_CHAIN],
            key=values[SSL_KEYSTORE_KEY],
            key_password=values[SSL_KEY_PASSWORD],
        ),
        truststore=Store(
            kind="truststore",
            prefix=prefix,
            type=values[SSL_TRUSTSTORE_TYPE],
            location=values[SSL_TRUSTSTORE_LOCATION],
            password=values[SSL_TRUSTSTORE_PASSWORD],
            inline=values[SSL_TRUSTSTORE_CERTIFICATES],
        ),
        protocols=values[SSL_ENABLED_PROTOCOLS],
        suites=values[SSL_CIPHER_SUITES],
        checks_host=bool(values[SSL_ENDPOINT_IDENTIFICATION_ALGORITHM]),
    )


def server_context(settings: TlsSettings, client_auth: str) -> ssl.SSLContext:
    """Return the context of a listener; raise `ConfigError`."""
    if not settings.keystore.is_set:
        name = settings.keystore.name("location")
        raise ConfigError(name, None, "a key store, as the listener speaks TLS")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A peer that closes its sending side without close_notify still gets responses.
    # Frames have sizes, so the broker detects a truncated one.
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_IGNORE_UNEXPECTED_EOF
    _configure(context, settings)
    load_key(context, settings.keystore)
    context.verify_mode = _VERIFY[client_auth]
    if client_auth != "none":
        _trust(context, settings.truststore, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of connections to brokers; raise `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    _configure(context, settings)
    if settings.keystore.is_set:
        load_key(context, settings.keystore)
    _trust(context, settings.truststore, ssl.Purpose.SERVER_AUTH)
    return context


def trusting_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a connection to this process, which verifies nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    load_key(context, settings.keystore)
    return context


def _trust(context: ssl.SSLContext, store: Store, purpose: ssl.Purpose) -> None:
    if store.is_set:
        load_trust(context, store)
    else:
        context.load_default_certs(purpose)


def _configure(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Set versions and cipher suites."""
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    protocols = settings.protocols or tuple(_VERSIONS)
    if settings.suites:
        protocols = _of_suites(context, settings, protocols)
    context.minimum_version = min(_VERSIONS[it] for it in protocols)
    context.maximum_version = max(_VERSIONS[it] for it in protocols)


def _of_suites(
    context: ssl.SSLContext, settings: TlsSettings, protocols: tuple[str, ...]
) -> tuple[str, ...]:
    """Set the listed suites; return the versions with at least one of them."""
    name = f"{settings.prefix}{SSL_CIPHER_SUITES.name}"
    written = ",".join(settings.suites)
    latest = _SUITES_OF_1_3.intersection(settings.suites)
    if "TLSv1.3" in protocols and latest and latest != _SUITES_OF_1_3:
        all_three = ", ".join(sorted(_SUITES_OF_1_3))
        raise ConfigError(name, written, f"all suites of TLSv1.3 or none: {all_three}")
    older = [it for it in settings.suites if it not in _SUITES_OF_1_3]
    for suite in older:
        try:
            context.set_ciphers(_openssl_name(suite))
        except ssl.SSLError:
            raise ConfigError(name, suite, "suites that OpenSSL has") from None
    if older:
        context.set_ciphers(":".join(map(_openssl_name, older)))
    kept = {"TLSv1.2": bool(older), "TLSv1.3": bool(latest)}
    found = tuple(it for it in protocols if kept[it])
    if not found:
        enabled = ", ".join(protocols)
        raise ConfigError(name, written, f"a suite of {enabled}")
    return found


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLSv1.2.

    >>> _openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    'ECDHE-RSA-AES256-GCM-SHA384'
    >>> _openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA256")
    'AES128-SHA256'
    """
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    cipher = cipher.replace("POLY1305-SHA256", "POLY1305")
    if exchange == "RSA":
        return cipher
    return f"{exchange.replace('_', '-')}-{cipher}"
