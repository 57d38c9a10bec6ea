"""Authentication to other brokers, by the keys of the inter-broker listener."""

from __future__ import annotations

from broker.client.client_login import make_login
from broker.client.client_sasl import authenticated
from broker.client.network_client import Connect
from broker.config import (
    SASL_JAAS_CONFIG,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL,
    ZOOKEEPER_CONNECT,
    BrokerConfig,
    Listener,
)
from broker.config.sasl_checks import jaas_key


def logged_in_by(listener: Listener, connect: Connect, config: BrokerConfig) -> Connect:
    """Return a function that opens authenticated connections to other brokers.

    ``listener`` is the inter-broker listener. A single broker opens none. Raises
    `ConfigError`.
    """
    if not listener.uses_sasl or config[ZOOKEEPER_CONNECT] is None:
        return connect
    mechanism = config[SASL_MECHANISM_INTER_BROKER_PROTOCOL]
    login = make_login(
        mechanism,
        config.of_mechanism(listener.name, mechanism, SASL_JAAS_CONFIG),
        config[SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL],
        jaas_key(listener.name, mechanism),
    )
    return authenticated(connect, login, f"broker-{config.node_id}")
