"""TLS of a listener: Kafka's keys, with or without ``listener.name.NAME.``."""

from __future__ import annotations

from typing import Final, TypeVar

from broker.config.broker_config import BrokerConfig
from broker.config.listeners import Listener
from broker.protocol.config_key import Key
from broker.tls.contexts import TlsSettings, server_context, tls_settings
from broker.tls.keys import (
    LISTENER_KEYS,
    SSL_CLIENT_AUTH,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_TYPE,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_TYPE,
)

T = TypeVar("T")

# Keys of a listener that can be altered at runtime. Keys of secrets are excluded, since
# altered values are stored as plain text.
ALTERABLE_TLS: Final = frozenset(
    {
        SSL_KEYSTORE_LOCATION,
        SSL_KEYSTORE_TYPE,
        SSL_TRUSTSTORE_LOCATION,
        SSL_TRUSTSTORE_TYPE,
    }
)


class _OfListener:
    """Values of one listener."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener

    def __getitem__(self, key: Key[T]) -> T:
        return self._config.on_listener(self._listener, key)


def listener_tls(config: BrokerConfig, listener: str) -> TlsSettings:
    """Return the settings of a listener.

    Errors name keys with the listener's prefix if any of its keys is set.
    """
    own = any(
        (listener.upper(), it.name) in config.listener_values for it in LISTENER_KEYS
    )
    prefix = f"listener.name.{listener.lower()}." if own else ""
    return tls_settings(_OfListener(config, listener), prefix)


def client_auth(config: BrokerConfig, listener: Listener) -> str:
    """Return whether a listener requests client certificates, as ``ssl.client.auth``.

    A SASL_SSL listener requests them only if its own key is set, as in Kafka.
    """
    if listener.security_protocol == "SSL":
        return config.on_listener(listener.name, SSL_CLIENT_AUTH)
    own = config.listener_values.get((listener.name, SSL_CLIENT_AUTH.name))
    return "none" if own is None else str(own)


def check_altered_stores(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `ConfigError` if an altered store cannot be loaded."""
    for listener in after.listeners:
        if not listener.uses_tls:
            continue
        settings = listener_tls(after, listener.name)
        if settings != listener_tls(before, listener.name):
            server_context(settings, client_auth(after, listener))
