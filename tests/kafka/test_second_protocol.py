"""Java's producers at each ``transaction.version``, and Kafka's tool to change it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import Tools
from tests.kafka.java_tools import NEWEST, KafkaPrograms, Ran
from tests.kafka.peer import Peer
from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

COUNT = 2000
# Names of states in the log.
EMPTY, PREPARE_COMMIT, COMMITTED = "Empty", "PrepareCommit", "CompleteCommit"


def produce(tools: Tools, name: str) -> None:
    """Produce transactions of 50 ms for two seconds."""
    tools(
        "kafka-producer-perf-test",
        *("--topic", "t", "--num-records", str(COUNT), "--record-size", "20"),
        *("--throughput", "1000", "--transactional-id", name),
        *("--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={tools.bootstrap}"),
    )


def epoch(port: int, name: str) -> int:
    """Return the present epoch of a transactional id."""
    peer = Peer("Doorkeeper", port)
    answer = peer.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])
    peer.close()
    (state,) = answer.transaction_states
    return int(state.producer_epoch)


def committed(tools: Tools, count: int) -> int:
    """Return the number of committed records; wait for at least ``count``."""
    consumer = Consumer(
        {
            "bootstrap.servers": tools.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    found = 0
    while found < count and (message := consumer.poll(20)) is not None:
        found += message.error() is None
    while (message := consumer.poll(1)) is not None:
        found += message.error() is None
    consumer.close()
    return found


@pytest.fixture
def programs_of_4(programs_of: Callable[[str], KafkaPrograms]) -> KafkaPrograms:
    """Return programs whose producers support the second protocol."""
    return programs_of(NEWEST)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path)
    yield made
    made.close()


def test_java_producers_follow_the_finalized_level(
    programs_of_4: KafkaPrograms, broker: BrokerProcess, tmp_path: Path
) -> None:
    tools = Tools(programs_of_4, broker, tmp_path / "data")
    tools.create("t", 3)

    def features(*arguments: str) -> Ran:
        # The options of this tool precede the subcommand.
        where = "--bootstrap-server", tools.bootstrap
        return programs_of_4.run("kafka-features", *where, *arguments)

    def described() -> list[str]:
        lines = features("describe").lines
        (row,) = [it for it in lines if "transaction.version" in it]
        return re.split(r"\s{2,}|\t", row)

    assert described()[:4] == [
        "Feature: transaction.version",
        "SupportedMinVersion: 0",
        "SupportedMaxVersion: 2",
        "FinalizedVersionLevel: 2",
    ]
    produce(tools, "second")
    # Every transaction raises the epoch.
    assert epoch(broker.port, "second") > 10
    assert committed(tools, COUNT) == COUNT
    lowered = features("downgrade", "--feature", "transaction.version=0")
    assert lowered.status == 0, lowered
    assert described()[3] == "FinalizedVersionLevel: 0"
    produce(tools, "first")
    assert epoch(broker.port, "first") == 0
    assert committed(tools, 2 * COUNT) == 2 * COUNT
    # The same transactional id continues in the other protocol.
    raised = features("upgrade", "--feature", "transaction.version=2")
    assert raised.status == 0, raised
    produce(tools, "first")
    assert epoch(broker.port, "first") > 10
    assert committed(tools, 3 * COUNT) == 3 * COUNT
    refused = features("upgrade", "--feature", "transaction.version=3")
    assert refused.status != 0
    assert "transaction.version" in refused.out + refused.err


def test_kafka_reads_the_records_of_the_second_protocol(
    programs_of: Callable[[str], KafkaPrograms], broker: BrokerProcess, tmp_path: Path
) -> None:
    tools = Tools(programs_of(NEWEST), broker, tmp_path / "data")
    tools.create("t", 3)
    produce(tools, "tx")
    last = epoch(broker.port, "tx")
    broker.stop()
    logs = tools.files("__transaction_state-*/*.log")
    (log,) = [path for path in logs if path.stat().st_size]
    ran = tools.offline(
        "kafka-dump-log", "--transaction-log-decoder", "--files", str(log)
    )
    found = [json.loads(each) for each in re.findall(r"payload: (.*)", ran.out)]
    assert {each["version"] for each in found} == {"1"}
    begun, *values = [each["data"] for each in found]
    assert (begun["transactionStatus"], begun["producerEpoch"]) == (EMPTY, 0)
    assert {each["clientTransactionVersion"] for each in values} == {2}
    # Each outcome raises the epoch; its completion does not.
    prepared = [each for each in values if each["transactionStatus"] == PREPARE_COMMIT]
    assert [each["producerEpoch"] for each in prepared] == list(range(1, last + 1))
    completed = [each for each in values if each["transactionStatus"] == COMMITTED]
    assert [each["producerEpoch"] for each in completed] == list(range(1, last + 1))
