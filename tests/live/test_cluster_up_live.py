"""``doorkeeper cluster up``: processes start, are supervised, and end together."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from doorkeeper import cli
from tests.live.cluster_process import ClusterProcess, cluster
from tests.live.verifying import Quiet
from tests.web_console.asgi_client import ParsedPage

pytestmark = pytest.mark.live

PATIENCE_S = 30


def produce(running: ClusterProcess, values: list[str]) -> list[object]:
    """Produce with acks=all; return the errors."""
    producer = Producer({"bootstrap.servers": running.bootstrap, "logger": Quiet()})
    errors: list[object] = []
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return errors


def consume(running: ClusterProcess, count: int) -> set[str]:
    """Return the values of ``count`` records, read by a group of one member."""
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "logger": Quiet(),
        }
    )
    consumer.subscribe(["t"])
    values: set[str] = set()
    ends_s = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < ends_s:
        messages = consumer.consume(count, timeout=1)
        values |= {it.value().decode() for it in messages if it.error() is None}
    consumer.close()
    return values


def test_a_cluster_has_replicas_stops_in_order_and_has_all_when_it_is_back(
    tmp_path: Path,
) -> None:
    options = ("--brokers", "2", "--scheduler", "priority", "--data", str(tmp_path))
    values = [str(number) for number in range(100)]
    with cluster(*options) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        metadata = admin.list_topics(timeout=PATIENCE_S)
        assert set(metadata.brokers) == {0, 1}
        admin.create_topics([NewTopic("t", 3)])["t"].result(PATIENCE_S)
        assert produce(running, values) == [None] * len(values)
        partitions = admin.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions
        assert [len(it.replicas) for it in partitions.values()] == [2, 2, 2]
        children = running.children("")
        assert len(children) == 3
        assert running.end(signal.SIGINT) == (0, "")
        assert not any(child.is_running() for child in children)
    for number in range(2):
        # After an orderly stop logs need no recovery.
        assert (tmp_path / f"broker-{number}" / ".kafka_cleanshutdown").exists()
    with cluster(*options) as again:
        assert consume(again, len(values)) == set(values)
        assert again.end() == (0, "")


def test_a_fail_over_can_be_tried_by_hand(tmp_path: Path) -> None:
    """Kill the leader; a producer goes on, and the broker rejoins the ISR."""
    data = tmp_path / ("a-long-name-" * 8)
    with cluster("--brokers", "3", "--data", str(data)) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "logger": Quiet()})
        admin.create_topics([NewTopic("t", 1)])["t"].result(PATIENCE_S)
        old = leader_and_isr(admin)[0]
        assert produce(running, ["before"]) == [None]
        assert command("kill", old, data) == (0, "")
        assert produce(running, [str(number) for number in range(50)]) == [None] * 50
        assert leader_and_isr(admin)[0] != old
        refused = f"Error: broker {old} is not running\n"
        assert command("stop", old, data) == (1, refused)
        assert command("start", old, data) == (0, "")
        assert command("start", old, data) == (
            1,
            f"Error: broker {old} is running already\n",
        )
        assert command("kill", 7, data) == (
            1,
            "Error: there is no broker 7, only 0 to 2\n",
        )
        ends_s = time.monotonic() + PATIENCE_S
        while leader_and_isr(admin)[1] != {0, 1, 2}:
            assert time.monotonic() < ends_s
            time.sleep(0.2)
        other = next(
            each for each in (0, 1, 2) if each not in (old, leader_and_isr(admin)[0])
        )
        assert command("stop", other, data) == (0, "")
        assert (data / f"broker-{other}" / ".kafka_cleanshutdown").exists()
        assert len(consume(running, 51)) == 51
        # An unexpected end is reported, and the other processes go on.
        (victim,) = running.children(f"broker.id={old}")
        victim.kill()
        assert running.process.stderr is not None
        line = running.process.stderr.readline()
        assert line == f"broker-{old} ended with status -9\n"
        assert running.end() == (0, "")
    assert command("stop", 0, data) == (
        1,
        f"Error: no running cluster has its data in {data}\n",
    )


def command(action: str, number: int, data: Path) -> tuple[int, str]:
    """Run `cluster ACTION N`; return its status and output."""
    words = ["cluster", action, str(number), "--data", str(data)]
    done = CliRunner().invoke(cli.main, words)
    return done.exit_code, done.output


def leader_and_isr(admin: AdminClient) -> tuple[int, set[int]]:
    """Return the leader of t-0 and its in-sync replicas."""
    partition = admin.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions[0]
    return partition.leader, set(partition.isrs)


def test_a_controller_goes_to_the_control_planes() -> None:
    with cluster("--brokers", "2", "--scheduler", "planes") as running:
        clients = {int(it.split(":")[1]) for it in running.bootstrap.split(",")}
        for broker in running.children("doorkeeper"):
            sockets = broker.net_connections("inet")
            listening = {it.laddr.port for it in sockets if it.status == "LISTEN"}
            (control,) = listening - clients
            # The brokers' metadata is complete, and the controller keeps its
            # connection.
            assert [it for it in sockets if it.laddr.port == control and it.raddr]
        assert produce(running, ["a"]) == [None]
        assert running.end() == (0, "")


def test_a_console_shows_the_requests_of_all_brokers_and_ends_with_them() -> None:
    with cluster("--brokers", "2", "--set", "doorkeeper.console.port=0") as running:
        assert running.process.stdout is not None
        line = running.process.stdout.readline()
        assert line.startswith("console on http://127.0.0.1:")
        address = f"{line.split()[-1]}clusters/0/requests"
        with urlopen(address, timeout=PATIENCE_S) as answer:
            rows = ParsedPage.of(answer.read().decode()).rows
        found = {it[0]: (it[1], it[3]) for it in rows if len(it) == 4}
        assert found["0"] == found["1"] == ("fifo", "read")
        (console,) = running.children("console")
        assert running.end() == (0, "")
        assert not console.is_running()


def test_an_end_of_the_console_is_reported_and_the_brokers_go_on() -> None:
    with cluster("--brokers", "1", "--set", "doorkeeper.console.port=0") as running:
        assert running.process.stdout is not None
        assert running.process.stderr is not None
        running.process.stdout.readline()
        (console,) = running.children("console")
        console.kill()
        assert running.process.stderr.readline() == "console ended with status -9\n"
        assert produce(running, ["a"]) == [None]
        assert running.end() == (0, "")


@pytest.mark.slow
def test_java_s_zookeeper_or_one_that_runs_will_do() -> None:
    with cluster("--brokers", "1", "--zookeeper", "java") as first:
        assert first.children("QuorumPeerMain")
        within = f"{first.zookeeper}/within"
        with cluster("--brokers", "2", "--zookeeper", within) as second:
            assert second.zookeeper == within
            assert len(second.children("")) == 2
            assert produce(second, ["a"]) == [None]
            assert second.end() == (0, "")
        assert first.end() == (0, "")


def test_a_zookeeper_that_is_none_is_refused() -> None:
    words = ["cluster", "up", "--zookeeper", "one:x"]
    found = CliRunner().invoke(cli.main, words)
    assert found.exit_code == 2
    assert "'one:x' is no host with a port" in found.output


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("num.io.threads=0", "num.io.threads: found '0'"),
        ("log.dirs=/here", "log.dirs is each broker's own"),
        ("log.dir=/here", "log.dir is each broker's own"),
        ("doorkeeper.console.port=65536", "doorkeeper.console.port: found '65536'"),
        ("doorkeeper.metrics.port=x", "doorkeeper.metrics.port: found 'x'"),
        ("no-value", "'no-value' is not KEY=VALUE"),
    ],
)
def test_a_setting_that_no_broker_takes_is_named_before_anything_starts(
    setting: str, complaint: str
) -> None:
    found = CliRunner().invoke(cli.main, ["cluster", "up", "--set", setting])
    assert found.exit_code == 2
    assert complaint in found.output
