"""Configs that clients change while the broker runs, and their effect on clients.

Each is set by an admin client and takes effect without a restart, as does its reset.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.live.broker_process import BrokerProcess
from tests.live.group_members import wait_until

pytestmark = pytest.mark.live

# ApiVersions v0, without a client id.
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@pytest.fixture(scope="module")
def metrics_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, metrics_port: int
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("dynamic"),
        log_initial_task_delay_ms="100",
        log_retention_check_interval_ms="100",
        log_segment_delete_delay_ms="0",
        # Rates are averaged over the last second instead of ten.
        quota_window_num="2",
        doorkeeper_metrics_port=str(metrics_port),
    )
    yield process
    process.close()


@contextlib.contextmanager
def changed(
    broker: BrokerProcess, kind: str, name: str, **configs: str
) -> Iterator[AdminClient]:
    """Change configs through an admin client, and reset them at the end."""
    # The admin client connects before any limit on connections applies.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    alter(admin, kind, name, AlterConfigOpType.SET, configs)
    try:
        yield admin
    finally:
        alter(admin, kind, name, AlterConfigOpType.DELETE, configs)


def alter(
    admin: AdminClient,
    kind: str,
    name: str,
    operation: AlterConfigOpType,
    configs: dict[str, str],
) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def answers(connection: socket.socket, seconds: float) -> bool | None:
    """Return whether a request is answered, None if the connection is closed."""
    connection.settimeout(seconds)
    try:
        connection.sendall(API_VERSIONS)
        return True if connection.recv(4) else None
    except TimeoutError:
        return False
    except ConnectionError:
        return None


def connect(broker: BrokerProcess, source: str = "127.0.0.1") -> socket.socket:
    address = ("127.0.0.1", broker.port)
    return socket.create_connection(address, 5, source_address=(source, 0))


def open_connections(broker: BrokerProcess, source: str, most: int) -> int:
    """Open connections until one is refused; return the number of accepted ones."""
    with contextlib.ExitStack() as stack:
        for count in range(most):
            connection = stack.enter_context(connect(broker, source))
            if answers(connection, 5) is None:
                return count
    return most


def test_max_connections_per_ip_and_its_overrides(broker: BrokerProcess) -> None:
    # Other loopback addresses, since the admin client uses 127.0.0.1.
    with changed(
        broker,
        "broker",
        "0",
        max_connections_per_ip="6",
        max_connections_per_ip_overrides="127.0.0.2:3,127.0.0.3:0",
    ):
        assert open_connections(broker, "127.0.0.4", 20) == 6
        assert open_connections(broker, "127.0.0.2", 20) == 3
        assert open_connections(broker, "127.0.0.3", 20) == 0
    assert open_connections(broker, "127.0.0.2", 20) == 20


def test_max_connections_makes_the_next_one_wait(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    alter(admin, "broker", "0", AlterConfigOpType.SET, {"max_connections": "8"})
    with contextlib.ExitStack() as stack:
        served = 0
        while True:
            last = stack.enter_context(connect(broker))
            if not answers(last, 1):
                break
            served += 1
        # Connections of the admin client count, too.
        assert 8 - 4 <= served < 8
        alter(admin, "broker", "0", AlterConfigOpType.DELETE, {"max_connections": "8"})
        # The pending request is answered once the connection is accepted.
        last.settimeout(5)
        assert last.recv(4)


def test_max_connection_creation_rate_slows_newcomers(
    broker: BrokerProcess, metrics_port: int
) -> None:
    def blocked_when_some_come() -> float:
        """Return the share of time in which the acceptor was blocked."""
        blocked_percent(metrics_port)
        for _ in range(12):
            with connect(broker) as connection:
                assert answers(connection, 5)
        return blocked_percent(metrics_port)

    with changed(broker, "broker", "0", max_connection_creation_rate="5"):
        assert blocked_when_some_come() > 0
    assert blocked_when_some_come() == 0


def blocked_percent(port: int) -> float:
    """Return the acceptor's blocked share since the last scrape, in percent."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        text = page.read().decode()
    for family in text_string_to_metric_families(text):
        if family.name == "kafka_network_acceptor_acceptorblockedpercent":
            (sample,) = family.samples
            return float(sample.value)
    raise AssertionError(text)


def new_topic(broker: BrokerProcess, name: str, **configs: str) -> Producer:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    written = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=written)])[name].result(20)
    return Producer(
        {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 5_000_000}
    )


def sent(producer: Producer, topic: str, size: int) -> str | None:
    """Produce a record and return the name of the error, if there is one."""
    found: list[str | None] = []

    def delivered(error: object, _: object) -> None:
        found.append(error.name() if error is not None else None)  # type: ignore[attr-defined] # confluent's KafkaError

    producer.produce(topic, b"x" * size, on_delivery=delivered)
    assert producer.flush(20) == 0
    return found[0]


@pytest.mark.parametrize("kind", ["topic", "broker"])
def test_max_message_bytes(broker: BrokerProcess, kind: str) -> None:
    producer = new_topic(broker, f"bounded-{kind}")
    assert sent(producer, f"bounded-{kind}", 2000) is None
    if kind == "topic":
        change = changed(broker, kind, f"bounded-{kind}", max_message_bytes="1000")
    else:
        change = changed(broker, kind, "0", message_max_bytes="1000")
    with change:
        assert sent(producer, f"bounded-{kind}", 2000) == "MSG_SIZE_TOO_LARGE"
        assert sent(producer, f"bounded-{kind}", 500) is None
    assert sent(producer, f"bounded-{kind}", 2000) is None


def offset(admin: AdminClient, topic: str, spec: OffsetSpec) -> int:
    target = TopicPartition(topic, 0)
    found = admin.list_offsets({target: spec})[target].result(20)
    return int(found.offset)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("topic", {"retention_bytes": "4000"}),
        ("topic", {"retention_ms": "1000"}),
        ("broker", {"log_retention_bytes": "4000"}),
        ("broker", {"log_retention_ms": "1000"}),
    ],
)
def test_retention(broker: BrokerProcess, kind: str, config: dict[str, str]) -> None:
    (key,) = config
    name = f"kept-{kind}-{key}"
    # A segment holds three records, whose timestamps are less than a week old.
    producer = new_topic(broker, name, segment_bytes="3500")
    hour_ago_ms = round(time.time() * 1000) - 3_600_000
    for _ in range(20):
        producer.produce(name, b"x" * 1000, timestamp=hour_ago_ms)
        assert producer.flush(20) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    time.sleep(0.3)
    assert offset(admin, name, OffsetSpec.earliest()) == 0
    with changed(broker, kind, name if kind == "topic" else "0", **config):
        wait_until(lambda: offset(admin, name, OffsetSpec.earliest()) > 0)
        start = 0
        while start != (start := offset(admin, name, OffsetSpec.earliest())):
            time.sleep(0.3)
    # By size, segments of three and of two records remain. By time even the active
    # segment goes, after a roll, as in Kafka.
    assert start == (15 if key.endswith("bytes") else 20)
    assert offset(admin, name, OffsetSpec.latest()) == 20


def test_impossible_configs_are_refused(broker: BrokerProcess) -> None:
    for configs in (
        {"max_connections": "many"},
        {"num_io_threads": "3"},
        {"max_connections_per_ip_overrides": "no.such.host.invalid:1"},
    ):
        with (
            pytest.raises(KafkaException, match="INVALID"),
            changed(broker, "broker", "0", **configs),
        ):
            pytest.fail("it was taken")
