"""SASL's keys: a listener without a usable mechanism stops the start."""

from __future__ import annotations

import pytest

from broker.config import (
    CONNECTIONS_MAX_REAUTH_MS,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    BrokerConfig,
)
from broker.protocol.errors import ConfigError

PREFIX = "listener.name.clients"
JAAS = f"{PREFIX}.{{}}.sasl.jaas.config"
PLAIN = 'a.PlainLoginModule required user_alice="hunter2";'
LISTENERS = {
    "listeners": "CLIENTS://h:1,BROKERS://h:2",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def loaded(**settings: str) -> BrokerConfig:
    return BrokerConfig.load(None, {**LISTENERS, **settings})


@pytest.mark.parametrize(
    ("settings", "key", "expected"),
    [
        ({}, "sasl.enabled.mechanisms", "for listener CLIENTS"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms", "a list of PLAIN"),
        (
            {"sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "sasl.enabled.mechanisms",
            "a list of PLAIN",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            JAAS.format("plain"),
            "user_NAME",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                JAAS.format("plain"): 'a.PlainLoginModule required user_alice="";',
            },
            JAAS.format("plain"),
            "without empty ones",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                JAAS.format("plain"): 'ScramLoginModule required user_a="hunter2";',
            },
            JAAS.format("plain"),
            "PlainLoginModule",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": PLAIN},
            "sasl.jaas.config",
            "in its place",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                JAAS.format("scram-sha-256"): (
                    'ScramLoginModule required user_a="hunter2";'
                ),
                "zookeeper.connect": "z:1",
            },
            JAAS.format("scram-sha-256"),
            "kafka-configs.sh --zookeeper",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.server.callback.handler.class": (
                    "a.OAuthBearerValidatorCallbackHandler"
                ),
            },
            "sasl.oauthbearer.jwks.endpoint.url",
            "a file: URL",
        ),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "https://h/keys"},
            "sasl.oauthbearer.jwks.endpoint.url",
            "a URL of a local file",
        ),
    ],
)
def test_a_listener_that_could_admit_no_client_stops_the_start(
    settings: dict[str, str], key: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(**settings)
    assert caught.value.key == key
    assert expected in caught.value.expected
    assert "hunter2" not in str(caught.value)


def test_keys_of_listeners_and_mechanisms() -> None:
    config = loaded(
        **{
            "sasl.enabled.mechanisms": "GSSAPI",
            f"{PREFIX}.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            JAAS.format("plain"): PLAIN,
            "connections.max.reauth.ms": "1",
            f"{PREFIX}.connections.max.reauth.ms": "2",
            f"{PREFIX}.oauthbearer.connections.max.reauth.ms": "3",
        }
    )
    assert config.without_effect == ()
    mechanisms = config.on_listener("CLIENTS", SASL_ENABLED_MECHANISMS)
    assert mechanisms == ("PLAIN", "OAUTHBEARER")
    module = config.of_mechanism("CLIENTS", "PLAIN", SASL_JAAS_CONFIG)
    assert module is not None
    assert module.users == {"alice": "hunter2"}
    assert config.of_mechanism("CLIENTS", "OAUTHBEARER", SASL_JAAS_CONFIG) is None
    times = [
        config.of_mechanism(listener, mechanism, CONNECTIONS_MAX_REAUTH_MS)
        for listener, mechanism in (
            ("BROKERS", "PLAIN"),
            ("CLIENTS", "PLAIN"),
            ("CLIENTS", "OAUTHBEARER"),
        )
    ]
    assert times == [1, 2, 3]
    assert "hunter2" not in repr(config.values) + repr(config.listener_values)
