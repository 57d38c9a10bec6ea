"""Whole configurations: files, overrides, listeners, and values from several keys."""

import itertools
from pathlib import Path
from typing import Any, Final

import pytest

from broker.config import (
    ADVERTISED_LISTENERS,
    AUTO_CREATE_TOPICS_ENABLE,
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    MAX_CONNECTIONS,
    NUM_IO_THREADS,
    NUM_NETWORK_THREADS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    QUEUED_MAX_REQUESTS,
    BrokerConfig,
    Key,
    Listener,
)
from broker.config.broker_config import SAME_SETTING
from broker.protocol.errors import ConfigError
from tests.broker.config.told import given, refused

# The files that ship with each release, without their comments.
ZOOKEEPER_3_9 = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
KRAFT_3_9 = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
KRAFT_4_1 = KRAFT_3_9.replace(
    "controller.quorum.voters=1@localhost:9093",
    "controller.quorum.bootstrap.servers=localhost:9093",
) + (
    "share.coordinator.state.topic.replication.factor=1\n"
    "share.coordinator.state.topic.min.isr=1\n"
)

# Two values per key that takes no small number, and the listeners that they name.
VALUES: Final = {
    "log.dir": ("/a", "/b"),
    "log.dirs": ("/a", "/b"),
    "inter.broker.listener.name": ("A", "B"),
    "security.inter.broker.protocol": ("PLAINTEXT", "PLAINTEXT"),
}
LISTENERS: Final = {
    "listeners": "PLAINTEXT://h:1,A://h:2,B://h:3",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT",
}


def plaintext(host: str, port: int, name: str = "PLAINTEXT") -> Listener:
    return Listener(name=name, host=host, port=port, security_protocol="PLAINTEXT")


def load(tmp_path: Path, text: str, **overrides: str) -> BrokerConfig:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return BrokerConfig.load(path, overrides)


# ---- files ----


def test_without_a_file_the_broker_is_one_for_a_laptop() -> None:
    config = BrokerConfig.load(None)
    assert config.listeners == config.advertised == (plaintext("127.0.0.1", 9092),)
    assert config.log_dirs == ("./data",)
    assert config.node_id == 0
    assert config[AUTO_CREATE_TOPICS_ENABLE] is True
    assert config[OFFSETS_TOPIC_REPLICATION_FACTOR] == 1
    assert config[QUEUED_MAX_REQUESTS] == 500
    assert config.control_plane_listener is None
    assert config.without_effect == ()


def test_stock_zookeeper_file_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, ZOOKEEPER_3_9)
    assert config.listeners == (plaintext("", 9092),)
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config[GROUP_INITIAL_REBALANCE_DELAY_MS] == 0
    assert config.node_id == 0


@pytest.mark.parametrize("text", [KRAFT_3_9, KRAFT_4_1], ids=["3.9", "4.1"])
def test_stock_kraft_file_is_read_without_its_controller(
    tmp_path: Path, text: str
) -> None:
    config = load(tmp_path, text)
    assert config.listeners == (plaintext("", 9092),)
    assert config.advertised == (plaintext("localhost", 9092),)
    assert config.node_id == 1
    assert any(name.startswith("controller.quorum") for name in config.without_effect)


def test_keys_that_a_file_leaves_out_have_kafkas_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert config.listeners == (plaintext("", 9092),)
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config[OFFSETS_TOPIC_REPLICATION_FACTOR] == 3


def test_override_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.io.threads=4\nnum.network.threads=2")
    config = BrokerConfig.load(path, {"num.io.threads": "6"})
    assert (config[NUM_IO_THREADS], config[NUM_NETWORK_THREADS]) == (6, 2)


@pytest.mark.parametrize("row", SAME_SETTING, ids=lambda row: row[0].name)
def test_override_wins_over_every_name_of_its_setting(
    row: tuple[Key[Any], ...], tmp_path: Path
) -> None:
    """An override wins over a file, and over the defaults used without a file."""
    values = {key.name: VALUES.get(key.name, ("1", "2")) for key in row}
    for in_file, over in itertools.product(values, repeat=2):
        first, second = values[in_file][0], values[over][1]
        alone = BrokerConfig.from_written({**LISTENERS, over: second})
        path = tmp_path / "server.properties"
        path.write_text(f"{in_file}={first}")
        config = BrokerConfig.load(path, {**LISTENERS, over: second})
        assert settings(config) == settings(alone), (in_file, over)
        without_file = BrokerConfig.load(None, {**LISTENERS, over: second})
        assert settings(without_file)[1:] == settings(alone)[1:]
        if over in ("log.dir", "log.dirs"):
            assert without_file.log_dirs == (second,)


def settings(config: BrokerConfig) -> tuple[object, ...]:
    """Return the value of each setting with several keys, log directories first."""
    return (
        config.log_dirs,
        config.retention_ms,
        config.roll_ms,
        config.roll_jitter_ms,
        config.node_id,
        config.inter_broker_listener_name,
    )


# ---- unknown keys ----


def test_all_unknown_keys_are_named_at_once(tmp_path: Path) -> None:
    text = "num.io.thread=1\nbroker.id=1\nconfluent.license=secret\nlog.dirss=/a\n"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **{"no.such": "1"})
    assert str(caught.value) == (
        "unknown keys: num.io.thread (the nearest is num.io.threads), "
        "confluent.license, log.dirss (the nearest is log.dirs), no.such. Correct or "
        "remove them, or set doorkeeper.unknown.configs=warn to ignore them"
    )


def test_unknown_keys_are_ignored_where_that_is_configured(tmp_path: Path) -> None:
    text = "num.io.thread=1\ndoorkeeper.unknown.configs=warn\n=2\nlistener.name.a.b=1\n"
    config = load(tmp_path, text)
    assert config.unknown == ("num.io.thread", "", "listener.name.a.b")
    assert config[NUM_IO_THREADS] == 8
    assert config.updated({"x.y": "1"}).unknown == (*config.unknown, "x.y")
    with pytest.raises(ConfigError, match=r"num\.io\.threads: found 'x'"):
        config.updated({"num.io.threads": "x"})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<<<<<<< HEAD\n", "<<<<<<<"),
        ("\x00\x01=\x02\n", r"'\x00\x01'"),
        ("{\n", "{"),
        ("broker.id=1\n =x", "''"),
    ],
)
def test_garbage_is_refused_as_unknown_keys(
    text: str, named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"unknown key: {named}. ")


def test_missing_file_is_the_operators_fault_as_the_system_says_it() -> None:
    with pytest.raises(FileNotFoundError):
        BrokerConfig.load("/nonexistent/server.properties")


# ---- listeners ----


def test_control_plane_is_a_listener_of_its_own() -> None:
    config = given(
        listeners="PLAINTEXT://h:1,CONTROL://h:2",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        control_plane_listener_name="CONTROL",
    )
    assert config.control_plane_listener == plaintext("h", 2, "CONTROL")
    assert config.inter_broker_listener_name == "PLAINTEXT"


def test_addresses_may_be_ipv6_and_names_of_any_case() -> None:
    config = given(listeners="plaintext://[::1]:0")
    assert config.listeners == (plaintext("::1", 0),)
    assert str(config.listeners[0]) == "PLAINTEXT://[::1]:0"


def test_same_port_is_allowed_on_an_ipv4_and_an_ipv6_host() -> None:
    config = given(
        listeners="PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092,ANY://h:0,MORE://h:0",
        listener_security_protocol_map=(
            "PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT,ANY:PLAINTEXT,MORE:PLAINTEXT"
        ),
    )
    assert [listener.port for listener in config.listeners] == [9092, 9092, 0, 0]


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("127.0.0.1:9092", "NAME://host:port"),
        ("PLAINTEXT://127.0.0.1", "NAME://host:port"),
        ("PLAINTEXT://h:x", "NAME://host:port"),
        ("PLAINTEXT://h:65536", "a port from 0 to 65535"),
        ("PLAINTEXT://h:" + "9" * 5000, "a port from 0 to 65535"),
        ("PLAINTEXT://h:\u0663", "NAME://host:port"),
        ("PLAINTEXT://*:9092", "NAME://host:port"),
        ("PLAINTEXT://h\u00fc:9092", "NAME://host:port"),
        ("PLAINTEXT://h:1,", "NAME://host:port"),
        ("", "at least one listener"),
        ("OTHER://h:1", "a name in listener.security.protocol.map"),
        ("PLAINTEXT://h:1,PLAINTEXT://h:2", "each listener once"),
    ],
)
def test_bad_listeners_are_refused(listeners: str, expected: str) -> None:
    refused("listeners", expected, listeners=listeners)


@pytest.mark.parametrize("host", ["h", "", "127.0.0.1"])
def test_two_listeners_on_one_port_are_refused(host: str) -> None:
    refused(
        "listeners",
        "each port once, not 9 twice",
        listeners=f"PLAINTEXT://{host}:9,B://:9",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("PLAINTEXT", "a list of NAME:PROTOCOL"),
        ("PLAINTEXT:TLS", "a list of NAME:PROTOCOL"),
        ("PLAINTEXT:PLAINTEXT,plaintext:SSL", "each listener once"),
    ],
)
def test_bad_protocol_map_is_refused(written: str, expected: str) -> None:
    refused(
        "listener.security.protocol.map",
        expected,
        listener_security_protocol_map=written,
    )


def test_address_that_no_client_can_reach_is_not_advertised() -> None:
    refused(
        "advertised.listeners", "an address that", listeners="PLAINTEXT://0.0.0.0:1"
    )
    config = given(
        listeners="PLAINTEXT://0.0.0.0:1", advertised_listeners="PLAINTEXT://me:1"
    )
    assert config.advertised == (plaintext("me", 1),)


def test_only_open_listeners_are_advertised() -> None:
    refused(
        ADVERTISED_LISTENERS.name,
        "a listener named in listeners",
        listeners="PLAINTEXT://h:1",
        advertised_listeners="SSL://h:1",
    )


def test_control_plane_listener_is_advertised_and_not_the_brokers_own() -> None:
    key = "control.plane.listener.name"
    refused(key, "a listener named in", control_plane_listener_name="CONTROL")
    refused(key, "another one", control_plane_listener_name="PLAINTEXT")


def test_inter_broker_listener_is_advertised() -> None:
    refused(
        "inter.broker.listener.name",
        "a listener named in advertised.listeners",
        inter_broker_listener_name="INTERNAL",
    )


# ---- values of several keys ----


def test_key_of_one_listener_falls_back_to_the_brokers() -> None:
    config = BrokerConfig.load(
        None,
        {"max.connections": "9", "listener.name.plaintext.max.connections": "4"},
    )
    assert config.on_listener("PLAINTEXT", MAX_CONNECTIONS) == 4
    assert config.on_listener("other", MAX_CONNECTIONS) == 9
    assert config[MAX_CONNECTIONS] == 9


def test_key_under_a_listeners_prefix_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"max\.connections"):
        BrokerConfig.load(None, {"listener.name.plaintext.max.connections": "x"})
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {"listener.name.plaintext.max.connection": "1"})
    assert "listener.name.plaintext.max.connections)" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {"listener.name.ssl.plain.sasl.jaas.config": "any"})
    assert caught.value.key == "sasl.jaas.config"


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log_retention_hours": "1"}, 3_600_000),
        ({"log_retention_hours": "1", "log_retention_minutes": "2"}, 120_000),
        ({"log_retention_minutes": "2", "log_retention_ms": "3"}, 3),
        ({"log_retention_ms": "-1"}, -1),
        ({"log_retention_hours": "-1"}, -1),
    ],
)
def test_finest_retention_key_wins(settings: dict[str, str], retention_ms: int) -> None:
    assert given(**settings).retention_ms == retention_ms


def test_retention_of_zero_is_refused() -> None:
    for key in ("log.retention.hours", "log.retention.minutes", "log.retention.ms"):
        refused(key, "a positive number, or -1", **{key.replace(".", "_"): "0"})


def test_finer_roll_keys_win() -> None:
    assert given().roll_ms == 604_800_000
    assert given(log_roll_hours="2", log_roll_ms="5").roll_ms == 5
    assert given(log_roll_jitter_hours="1").roll_jitter_ms == 3_600_000
    assert given(log_roll_jitter_ms="0", log_roll_jitter_hours="1").roll_jitter_ms == 0


def test_broker_id_and_node_id_are_one() -> None:
    assert given(broker_id="3").node_id == 3
    assert given(node_id="4").node_id == 4
    assert given(node_id="4", broker_id="4").node_id == 4
    refused("node.id", "the same as broker.id, 3", node_id="4", broker_id="3")
    # Kafka requires: "greater than or equal to -1".
    refused("broker.id", "a whole number from -1", broker_id="-2")
    refused("node.id", "a whole number from -1", node_id="-2")


def test_log_dirs_win_over_log_dir() -> None:
    assert given(log_dirs="/a, /b", log_dir="/c").log_dirs == ("/a", "/b")
    config = BrokerConfig.from_written({"log.dir": "/c"})
    assert config.log_dirs == ("/c",)


def test_log_dirs_are_places_that_the_operator_named(tmp_path: Path) -> None:
    """Kafka's rules: empty entries are skipped, duplicates and empty lists rejected."""
    assert given(log_dirs="/a,, /b/ ,").log_dirs == ("/a", "/b")
    assert given(log_dirs="/").log_dirs == ("/",)
    for empty in ("", " ", ","):
        refused("log.dirs", "at least one directory", log_dirs=empty)
    with pytest.raises(ConfigError, match=r"log\.dir: found ''"):
        load(tmp_path, "log.dir=")
    for twice in ("/a,/a", "/a,/a/", "/a, /b/../a"):
        refused("log.dirs", "each directory once", log_dirs=twice)


def test_updated_configuration_is_checked_and_leaves_the_old_one() -> None:
    config = given(num_io_threads="2")
    changed = config.updated({"max.connections": "5", "num.io.threads": None})
    assert (changed[MAX_CONNECTIONS], changed[NUM_IO_THREADS]) == (5, 8)
    assert config[NUM_IO_THREADS] == 2
    with pytest.raises(ConfigError):
        config.updated({"max.connections": "-1"})


def test_the_listener_between_brokers_is_missed_by_the_key_that_was_set() -> None:
    key = "security.inter.broker.protocol"
    with pytest.raises(ConfigError, match=rf"^{key}: found 'SSL'"):
        BrokerConfig.load(None, {key: "SSL"})
