"""Keys that promise security stop the start, and what they hold is not told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.config import KEYS, BrokerConfig, ConfigType
from broker.protocol.errors import ConfigError

KAFKA = json.loads((Path(__file__).parent / "kafka-keys.json").read_text())
OF_SECURITY = sorted(
    name
    for name in KEYS
    if name.startswith(("ssl.", "sasl.")) and KEYS[name].doc.startswith("Refused: ")
)


@pytest.mark.parametrize(
    "name",
    [
        "authorizer.class.name",
        "super.users",
        "principal.builder.class",
        "delegation.token.secret.key",
        *OF_SECURITY,
    ],
)
def test_what_promises_security_stops_the_start(name: str) -> None:
    for written in (name, f"listener.name.plaintext.{name}"):
        with pytest.raises(ConfigError) as caught:
            BrokerConfig.load(None, {written: "something"})
        assert caught.value.key == name
        assert "not served" in caught.value.expected
    assert BrokerConfig.load(None, {name: ""}).without_effect == (name,)


@pytest.mark.parametrize(
    ("name", "harmless", "promise"),
    [
        ("allow.everyone.if.no.acl.found", "true", "false"),
        ("ssl.client.auth", "none", "required"),
    ],
)
def test_a_value_that_promises_nothing_is_let_pass(
    name: str, harmless: str, promise: str
) -> None:
    BrokerConfig.load(None, {name: harmless})
    with pytest.raises(ConfigError, match=f"{harmless}, as"):
        BrokerConfig.load(None, {name: promise})


def test_an_error_does_not_tell_a_password() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {"ssl.key.password": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_what_kafka_calls_a_password_is_one() -> None:
    theirs = {name for name, (kind, *_) in KAFKA.items() if kind == "PASSWORD"}
    ours = {n for n, key in KEYS.items() if key.type is ConfigType.PASSWORD}
    assert theirs == ours & KAFKA.keys()
