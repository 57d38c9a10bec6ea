"""Security keys that are not supported stop the start; errors hide secret values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.config import KEYS, SUPER_USERS, BrokerConfig, ConfigType
from broker.protocol.errors import ConfigError

KAFKA = json.loads((Path(__file__).parent / "kafka-keys.json").read_text())
OF_SECURITY = sorted(
    name
    for name, key in KEYS.items()
    if name.startswith(("ssl.", "sasl.")) and key.doc.startswith("Refused: ")
)


@pytest.mark.parametrize(
    "name",
    [
        "principal.builder.class",
        "delegation.token.secret.key",
        *OF_SECURITY,
    ],
)
def test_unserved_security_keys_stop_the_start(name: str) -> None:
    for written in (name, f"listener.name.plaintext.{name}"):
        with pytest.raises(ConfigError) as caught:
            BrokerConfig.load(None, {written: "something"})
        assert caught.value.key == name
        assert "not served" in caught.value.expected
    assert BrokerConfig.load(None, {name: ""}).without_effect == (name,)


def test_only_kafkas_own_authorizers_can_be_named() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {"authorizer.class.name": "com.example.Ours"})
    assert str(caught.value) == (
        "authorizer.class.name: found 'com.example.Ours', expected empty, "
        "kafka.security.authorizer.AclAuthorizer or "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    )


def test_super_users_stand_between_semicolons() -> None:
    config = BrokerConfig.load(
        None, {"super.users": " User:alice; User:CN=b,O=example:eu ;"}
    )
    named = ["User:alice", "User:CN=b,O=example:eu"]
    assert [str(each) for each in config[SUPER_USERS]] == named
    with pytest.raises(ConfigError, match=r"super\.users: found 'alice', expected a"):
        BrokerConfig.load(None, {"super.users": "alice"})


def test_an_error_does_not_tell_a_password() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {"sasl.jaas.config": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_passwords_are_those_of_kafka() -> None:
    theirs = {name for name, (kind, *_) in KAFKA.items() if kind == "PASSWORD"}
    ours = {n for n, key in KEYS.items() if key.type is ConfigType.PASSWORD}
    assert theirs == ours & KAFKA.keys()
