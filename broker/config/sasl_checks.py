"""Checks between SASL's keys: every enabled mechanism is fully configured.

The start fails for a mechanism that would refuse every client, and for a JAAS line
without a reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

from broker.config.cluster_keys import ZOOKEEPER_CONNECT
from broker.config.listeners import Listener
from broker.config.sasl_listener_keys import (
    LOGIN_MODULES,
    OAUTHBEARER,
    PLAIN,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
)
from broker.protocol.config_key import Key
from broker.protocol.errors import ConfigError
from broker.protocol.sasl.scram import SCRAM_MECHANISMS

T = TypeVar("T")

_HIDDEN: Final = "[hidden]"


class SaslConfig(Protocol):
    """The part of a `BrokerConfig` that these checks read."""

    @property
    def written(self) -> Mapping[str, str]:
        """The keys that are set, as text."""

    @property
    def listeners(self) -> Sequence[Listener]:
        """The listeners that the broker opens."""

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener that other brokers use."""

    @property
    def inter_broker_protocol(self) -> str:
        """The security protocol of that listener."""

    def __getitem__(self, key: Key[T]) -> T:
        """Return the value of a key."""

    def on_listener(self, name: str, key: Key[T]) -> T:
        """Return the value of ``key`` for one listener, or the broker's own."""

    def of_mechanism(self, listener: str, mechanism: str, key: Key[T]) -> T:
        """Return the value of ``key`` for a mechanism, the listener, or the broker."""


def check_sasl(config: SaslConfig) -> None:
    """Raise `ConfigError` for a listener on which no client could authenticate."""
    if SASL_JAAS_CONFIG.name in config.written:
        expected = "listener.name.NAME.MECHANISM.sasl.jaas.config in its place"
        raise ConfigError(SASL_JAAS_CONFIG.name, _HIDDEN, expected)
    for listener in config.listeners:
        if listener.uses_sasl:
            _check_listener(config, listener.name)
    if config[ZOOKEEPER_CONNECT] is not None and config.inter_broker_protocol in (
        "SASL_PLAINTEXT",
        "SASL_SSL",
    ):
        _check_inter_broker(config)


def jaas_key(listener: str, mechanism: str) -> str:
    """Return the name of the key that holds a mechanism's credentials."""
    name = SASL_JAAS_CONFIG.name
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}"


def _check_listener(config: SaslConfig, listener: str) -> None:
    mechanisms = config.on_listener(listener, SASL_ENABLED_MECHANISMS)
    if not mechanisms or not set(mechanisms) <= set(LOGIN_MODULES):
        expected = f"a list of {', '.join(LOGIN_MODULES)} for listener {listener}"
        found = ",".join(mechanisms)
        raise ConfigError(SASL_ENABLED_MECHANISMS.name, found, expected)
    for mechanism in mechanisms:
        _check_module(config, listener, mechanism)
    if OAUTHBEARER in mechanisms:
        _check_tokens(config, listener, mechanisms)


def _check_module(config: SaslConfig, listener: str, mechanism: str) -> None:
    module = config.of_mechanism(listener, mechanism, SASL_JAAS_CONFIG)
    key, wanted = jaas_key(listener, mechanism), LOGIN_MODULES[mechanism]
    if module is not None and module.name != wanted:
        raise ConfigError(key, f"{module.name} ...", wanted)
    if mechanism == PLAIN and (module is None or not all(module.users.values())):
        found = "" if module is None else _HIDDEN
        expected = f'{wanted} required user_NAME="PASSWORD" ...; without empty ones'
        raise ConfigError(key, found, expected)
    if (
        mechanism in SCRAM_MECHANISMS
        and module is not None
        and module.users
        and config[ZOOKEEPER_CONNECT] is not None
    ):
        expected = (
            "no user_NAME: in a cluster, kafka-configs.sh --zookeeper adds the first "
            "credential"
        )
        raise ConfigError(key, _HIDDEN, expected)


def _check_tokens(config: SaslConfig, listener: str, mechanisms: Sequence[str]) -> None:
    handler = config.of_mechanism(
        listener, OAUTHBEARER, SASL_SERVER_CALLBACK_HANDLER_CLASS
    )
    keys = config.on_listener(listener, SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
    if handler is not None and keys is None:
        expected = f"a file: URL, as {SASL_SERVER_CALLBACK_HANDLER_CLASS.name} is set"
        raise ConfigError(SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name, "", expected)


def _check_inter_broker(config: SaslConfig) -> None:
    """Check that brokers authenticate by a mechanism that they accept."""
    key = SASL_MECHANISM_INTER_BROKER_PROTOCOL
    mechanism = config[key]
    enabled = config.on_listener(
        config.inter_broker_listener_name, SASL_ENABLED_MECHANISMS
    )
    if mechanism not in enabled:
        expected = f"one of {SASL_ENABLED_MECHANISMS.name}, {','.join(enabled)}"
        raise ConfigError(key.name, mechanism, expected)
