"""Configs that a running broker can alter, compared with Kafka's list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.config import KEYS, BrokerConfig
from broker.config.alterable import check_threads, is_alterable, is_of_one_broker
from broker.protocol.errors import ConfigError

HERE = Path(__file__).parent
# Printed by Kafka 3.9.1 (KafkaUpdateModes.java), without read-only configs.
KAFKA = dict(
    line.split() for line in (HERE / "kafka-update-modes.txt").read_text().splitlines()
)
# Kafka's ``DynamicConfig.Broker``: alterable, but not in Kafka's table of keys.
THROTTLES = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
# Configs of tiered storage that Kafka 4.1 added.
LATER = {
    "remote.list.offsets.request.timeout.ms",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.reader.threads",
}
# Settings of policies that are alterable according to their documentation.
OURS = {name for name, key in KEYS.items() if "Altered while the broker" in key.doc}


def test_keys_that_kafka_alters_for_all_brokers_are_alterable_and_no_others() -> None:
    for_all = {name for name, mode in KAFKA.items() if mode == "cluster-wide"}
    assert {n for n in KEYS if is_alterable(n)} == for_all | THROTTLES | LATER | OURS
    assert sorted(OURS) == ["doorkeeper.priority.ageing.ms", "doorkeeper.wfq.weights"]


def test_keys_altered_for_one_broker_only_concern_listeners_and_security() -> None:
    for_one = {name for name, mode in KAFKA.items() if mode == "per-broker"}
    of_listeners = {
        "advertised.listeners",
        "listener.security.protocol.map",
        "listeners",
    }
    of_security = {n for n in for_one if n.startswith(("ssl.", "sasl."))}
    assert for_one - of_security == {*of_listeners, "principal.builder.class"}


def test_of_a_listener_stores_are_alterable_but_not_their_secrets() -> None:
    of_tls = {n for n in KEYS if n.startswith("ssl.")}
    altered = {n for n in of_tls if is_alterable(f"listener.name.x.{n}")}
    assert altered == {
        f"ssl.{kind}.{end}"
        for kind in ("keystore", "truststore")
        for end in ("location", "type")
    }
    assert not any(map(is_alterable, of_tls))
    assert all(is_of_one_broker(f"listener.name.x.{n}") for n in altered)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("listener.name.plaintext.max.connections", True),
        ("listener.name.plaintext.num.network.threads", True),
        ("listener.name.plaintext.max.connection.creation.rate", True),
        ("listener.name.plaintext.num.io.threads", False),
        ("listener.name.plaintext.no.such", False),
        ("no.such", False),
    ],
)
def test_a_listener_has_three_of_its_own(name: str, expected: bool) -> None:
    assert is_alterable(name) is expected


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (8, 16, ""),
        (8, 17, "value should not be greater than double the current value 8"),
        (8, 4, ""),
        (8, 3, "value should be at least half the current value 8"),
        (7, 3, ""),
        (1, 2, ""),
    ],
)
def test_threads_are_at_most_halved_or_doubled(
    before: int, after: int, refused: str
) -> None:
    """The error messages are those of Kafka's ``DynamicThreadPool``."""
    old = BrokerConfig.load(None, {"num.io.threads": str(before)})
    new = old.updated({"num.io.threads": str(after)})
    if not refused:
        check_threads(old, new)
        return
    failed = f"Dynamic thread count update validation failed for num.io.threads={after}"
    with pytest.raises(ConfigError) as caught:
        check_threads(old, new)
    assert str(caught.value) == f"{failed}, {refused}"


def test_internal_keys_of_kafka_and_of_other_releases_are_internal() -> None:
    told = {
        name
        for name in json.loads((HERE / "kafka-keys.json").read_text())
        if KAFKA.get(name) != "internal"
    }
    ours = {name for name in KEYS if name.startswith("doorkeeper.")}
    assert {name for name, key in KEYS.items() if not key.internal} == told | ours


def test_the_cleaner_keeps_a_thread() -> None:
    old = BrokerConfig.load(None)
    with pytest.raises(ConfigError, match=r"log\.cleaner\.threads"):
        check_threads(old, old.updated({"log.cleaner.threads": "0"}))
