"""Apache Kafka 3.9 and its ZooKeeper shell with Doorkeeper's ZooKeeper server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from experiments.processes.own_zookeeper import start_own_zookeeper
from tests.kafka.java_tools import KafkaPrograms, need_kafka
from tests.kafka.mixed_cluster import (
    VERSION,
    Cluster,
    controller,
    create,
    isr,
    make_controller,
    produce,
    until,
    values_kept,
)

pytestmark = [pytest.mark.kafka, pytest.mark.live, pytest.mark.slow]

VALUES = [str(number) for number in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_kafka(VERSION)
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("mixed"), stack, start_own_zookeeper)


def test_kafka_leads_follows_and_governs(cluster: Cluster) -> None:
    assert controller(cluster) == 0
    create(cluster, "led-by-kafka", [0, 1])
    create(cluster, "led-by-ours", [1, 0])
    for name in ("led-by-kafka", "led-by-ours"):
        produce(cluster.bootstrap, name, VALUES)
        assert values_kept(cluster, name) == VALUES
    make_controller(cluster, 1)
    create(cluster, "made-by-ours", [0, 1])
    make_controller(cluster, 0)


def test_kafka_goes_on_after_a_kill_of_zookeeper(cluster: Cluster) -> None:
    admin = create(cluster, "before", [0, 1])
    cluster.zookeeper.kill()
    # Producing needs no ZooKeeper.
    produce(cluster.bootstrap, "before", VALUES)
    cluster.start_zookeeper()
    created = admin.create_topics([NewTopic("after", 1, replica_assignment=[[1, 0]])])
    created["after"].result(60)
    until(lambda: isr(admin, "after") == {0, 1}, "both in sync")
    produce(cluster.bootstrap, "after", VALUES)
    assert values_kept(cluster, "after") == VALUES
    # No broker's session has expired.
    assert controller(cluster) == 0
    told = AdminClient({"bootstrap.servers": cluster.ours.bootstrap})
    assert set(told.list_topics(timeout=10).brokers) == {0, 1}


def test_the_shell_reads_and_writes(cluster: Cluster) -> None:
    """Run commands with Java's client; each is followed by its expected output."""
    script = {
        "ls /brokers/ids": "[0, 1]",
        "get /brokers/ids/0": '"host":"127.0.0.1"',
        "stat /brokers/ids": "numChildren = 2",
        "create /shell data": "Created /shell",
        "get -s /shell": "data\n",
        "set /shell more": "",
        "create -s /shell/n-": "Created /shell/n-0000000000",
        "create -e /shell/e": "Created /shell/e",
        "ls /shell": "[e, n-0000000000]",
        "ls -s /shell": "dataVersion = 1",
        "sync /shell": "Sync is OK",
        "getAcl /shell": "'world,'anyone",
        'create /locked "" digest:a:b:r': "InvalidACL",
        "deleteall /shell": "",
        "get /shell": "Node does not exist: /shell",
    }
    programs = KafkaPrograms(VERSION)
    server = f"127.0.0.1:{cluster.ports.zookeeper}"
    done = subprocess.run(
        programs.command("zookeeper-shell", "-server", server),
        input="\n".join([*script, "quit"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    rest = done.stdout
    for command, printed in script.items():
        if printed:
            _, found, rest = rest.partition(printed)
            assert found, (command, done.stdout)
