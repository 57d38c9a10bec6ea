"""The APIs of a transactional producer, in every version that is served."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import World
from tests.broker.apis.transaction_client import (
    NAME,
    SETTINGS,
    TIMEOUT_MS,
    TransactionClient,
    committed,
)

NONE = ErrorCode.none
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> World:
    world = World(SETTINGS)
    world.create("t", 2)
    return world


@pytest.fixture
def client(world: World) -> TransactionClient:
    client = TransactionClient(world)
    client.begin()
    return client


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_all_or_nothing(
    world: World, client: TransactionClient, is_commit: bool
) -> None:
    assert client.add(T0, T1) == {T0: NONE, T1: NONE}
    assert client.produce(T0, b"a") is NONE
    assert client.produce(T1, b"b") is NONE
    assert client.end(is_commit) is NONE
    world.pass_ms(0)
    assert committed(world, T0) == [b"a"] * is_commit
    assert committed(world, T1) == [b"b"] * is_commit
    # The next transaction of the same producer.
    assert client.add(T0) == {T0: NONE}
    assert client.produce(T0, b"c") is NONE
    assert client.end(True) is NONE
    world.pass_ms(0)
    assert committed(world, T0) == [b"a"] * is_commit + [b"c"]
    world.check()


def test_every_outcome_raises_the_epoch_and_fences_late_batches(
    world: World, client: TransactionClient
) -> None:
    first = client.producer_id, client.epoch
    for number in range(4):
        assert client.add(T0) == {T0: NONE}
        assert client.produce(T0, b"%d" % number) is NONE
        late = dict(client.sequences)
        assert client.end(number % 2 == 0, version=5) is NONE
        world.pass_ms(0)
        assert (client.producer_id, client.epoch) == (first[0], first[1] + number + 1)
        client.epoch, client.sequences = client.epoch - 1, late
        assert client.produce(T0, b"late") is ErrorCode.invalid_producer_epoch
        # The client repeats an EndTxn whose answer was lost.
        assert client.end(number % 2 == 0, version=5) is NONE
    assert committed(world, T0) == [b"0", b"2"]
    # The abort of a transaction that has not begun.
    assert client.end(False, version=5) is NONE
    assert client.end(True, version=5) is ErrorCode.invalid_txn_state
    world.check()


def test_leaders_add_their_partitions_to_the_transaction(
    world: World, client: TransactionClient
) -> None:
    def offset() -> int:
        answer = world.send(
            ApiKey.OFFSET_FETCH,
            7,
            group_id="g",
            topics=[{"name": "t", "partition_indexes": [0]}],
            require_stable=True,
        )
        found: int = answer.topics[0].partitions[0].committed_offset
        return found

    # The first request creates the offsets topic, and the second finds it.
    for _ in range(2):
        world.send(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    for number, is_commit in enumerate((True, False, True), 1):
        assert client.commit_offset(T0, number) is NONE
        assert client.produce(T0, b"%d" % number, version=12) is NONE
        assert client.produce(T1, b"%d" % number, version=12) is NONE
        (transaction,) = world.broker.transactions.all()
        assert {T0, T1} < transaction.value.partitions
        assert len(transaction.value.partitions) == 3
        assert client.end(is_commit, version=5) is NONE
        world.pass_ms(0)
        assert offset() == {1: 1, 2: 1, 3: 3}[number]
    assert committed(world, T0) == committed(world, T1) == [b"1", b"3"]
    # A late batch begins no transaction.
    client.epoch -= 1
    assert client.produce(T1, b"late", version=12) is ErrorCode.invalid_producer_epoch
    assert client.commit_offset(T0, 9) is ErrorCode.invalid_producer_epoch
    assert committed(world, T1) == [b"1", b"3"]
    assert offset() == 3
    world.check()


def test_a_leader_adds_a_partition_only_after_the_transaction_before(
    world: World, client: TransactionClient
) -> None:
    busy = ErrorCode.concurrent_transactions
    for _ in range(2):
        world.send(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    assert client.produce(T0, b"a", version=12) is NONE
    world.broker.transactions.markers.send = lambda *_: None
    assert client.end(True, version=5) is NONE
    waiting = client.start_produce(T0, b"b")
    world.pass_ms(99)
    assert not waiting.done
    world.pass_ms(20)
    assert waiting.answer.responses[0].partition_responses[0].error_code is busy
    assert client.commit_offset(T0, 1) is busy


def test_a_batch_waits_for_the_markers_of_the_transaction_before(
    world: World, client: TransactionClient
) -> None:
    assert client.produce(T0, b"a", version=12) is NONE
    markers = world.broker.transactions.markers
    kept: list[Any] = []
    send, markers.send = markers.send, lambda *each: kept.append(each)
    assert send is not None
    assert client.end(True, version=5) is NONE
    waiting = client.start_produce(T0, b"b")
    world.pass_ms(30)
    assert not waiting.done
    for each in kept:
        send(*each)
    world.pass_ms(0)
    world.pass_ms(20)
    assert waiting.answer.responses[0].partition_responses[0].error_code is NONE
    # A waiting request is released when its client disconnects.
    markers.send = lambda *_: None
    assert client.end(True, version=5) is NONE
    gone = client.start_produce(T1, b"c")
    gone.request.abandon()
    assert gone.done
    assert world.broker.addition_purgatory.size == 0
    world.check()


def test_the_last_epoch_is_followed_by_a_new_producer_id(world: World) -> None:
    client = TransactionClient(world)
    client.begin()
    (transaction,) = world.broker.transactions.all()
    transaction.value = replace(transaction.value, epoch=32_766)
    client.epoch = 32_766
    former = client.producer_id
    assert client.add(T0) == {T0: NONE}
    assert client.produce(T0, b"a") is NONE
    assert client.end(True, version=5) is NONE
    world.pass_ms(0)
    assert client.producer_id > former
    assert client.epoch == 0
    assert client.add(T0) == {T0: NONE}
    assert client.produce(T0, b"b") is NONE
    assert client.end(True, version=5) is NONE
    world.pass_ms(0)
    assert committed(world, T0) == [b"a", b"b"]
    world.check()


def test_the_topic_of_transactions_is_kafkas(
    world: World, client: TransactionClient
) -> None:
    (log, *_) = (
        log
        for key, log in world.broker.logs.logs.items()
        if key.topic == "__transaction_state"
    )
    topic = world.broker.coordinator.admin.topics["__transaction_state"]
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        # At most the number of brokers.
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert len(topic.partitions) == 2
    assert log.config.compacts


@pytest.mark.parametrize("version", range(6))
def test_a_batch_of_a_fenced_producer_is_refused(world: World, version: int) -> None:
    first, second = TransactionClient(world), TransactionClient(world)
    first.begin()
    assert first.add(T0) == {T0: NONE}
    assert first.produce(T0, b"lost") is NONE
    assert second.init(version) is ErrorCode.concurrent_transactions
    world.pass_ms(0)
    assert second.init(version) is NONE
    assert second.producer_id == first.producer_id
    assert second.epoch == first.epoch + 2
    assert first.produce(T0, b"late") is ErrorCode.invalid_producer_epoch
    assert committed(world, T0) == []


@pytest.mark.parametrize("key", [ApiKey.END_TXN, ApiKey.ADD_OFFSETS_TO_TXN])
def test_old_clients_know_no_fenced_producer(
    client: TransactionClient, key: ApiKey
) -> None:
    client.epoch -= 1
    for version in APIS[key].served:
        fields: dict[str, Any] = {"committed": True, "group_id": "g"}
        answer = client.world.send(key, version, **client.identity, **fields)
        expected = (
            ErrorCode.producer_fenced
            if version >= 2
            else ErrorCode.invalid_producer_epoch
        )
        assert answer.error_code is expected
    for version in range(4):
        (code,) = client.add(T0, version=version).values()
        expected = (
            ErrorCode.producer_fenced
            if version >= 2
            else ErrorCode.invalid_producer_epoch
        )
        assert code is expected


def test_one_partition_that_does_not_exist_prevents_all(
    client: TransactionClient,
) -> None:
    missing = TopicPartition("nope", 3)
    assert client.add(T0, missing) == {
        T0: ErrorCode.operation_not_attempted,
        missing: ErrorCode.unknown_topic_or_partition,
    }
    assert client.end(True) is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_may_verify_partitions(
    client: TransactionClient, version: int
) -> None:
    assert client.add(T0) == {T0: NONE}
    transaction = {
        **client.identity,
        "verify_only": True,
        "topics": [{"name": "t", "partitions": [0, 1]}],
    }
    answer = client.world.send(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        transactions=[
            transaction,
            {**transaction, "producer_epoch": 9, "transactional_id": NAME},
            {**transaction, "transactional_id": "unknown"},
        ],
    )
    codes = [
        [row.partition_error_code for row in each.topic_results[0].results_by_partition]
        for each in answer.results_by_transaction
    ]
    assert codes == [
        [NONE, ErrorCode.transaction_abortable],
        [ErrorCode.producer_fenced] * 2,
        [ErrorCode.invalid_producer_id_mapping] * 2,
    ]


def test_operators_see_transactions(world: World, client: TransactionClient) -> None:
    assert client.add(T0, T1) == {T0: NONE, T1: NONE}
    world.pass_ms(5_000)
    described = world.send(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME, "unknown", ""]
    )
    found, unknown, empty = described.transaction_states
    assert unknown.error_code is ErrorCode.transactional_id_not_found
    assert empty.error_code is ErrorCode.invalid_request
    assert found.transaction_state == "Ongoing"
    assert found.transaction_timeout == timedelta(milliseconds=TIMEOUT_MS)
    assert (found.producer_id, found.producer_epoch) == (
        client.producer_id,
        client.epoch,
    )
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", (0, 1))]

    def listed(version: int = 1, **filters: Any) -> list[tuple[str, str]]:
        answer = world.send(ApiKey.LIST_TRANSACTIONS, version, **filters)
        assert answer.error_code is NONE
        return [
            (each.transactional_id, each.transaction_state)
            for each in answer.transaction_states
        ]

    row = [(NAME, "Ongoing")]
    assert listed(duration_filter=-1) == row
    assert listed(duration_filter=4_999) == row
    assert listed(duration_filter=5_000) == []
    assert listed(duration_filter=-1, state_filters=["Ongoing", "Empty"]) == row
    assert listed(duration_filter=-1, state_filters=["Empty"]) == []
    assert listed(duration_filter=-1, producer_id_filters=[client.producer_id]) == row
    assert listed(duration_filter=-1, producer_id_filters=[1 << 40]) == []
    for pattern, expected in (
        (None, row),
        ("", row),
        (NAME, row),
        (NAME[:-1], []),
        (f"{NAME[:1]}.*", row),
        (f"{NAME}|other", row),
        ("[^0-9]+", row),
        ("(?i)" + NAME.upper(), row),
    ):
        assert listed(version=2, transactional_id_pattern=pattern) == expected
    for pattern in ("(", "a**", "(?=a)", r"\1", "x{1001}"):
        refused = world.send(
            ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern
        )
        assert refused.error_code is ErrorCode.invalid_regular_expression
    strange = world.send(
        ApiKey.LIST_TRANSACTIONS, 0, state_filters=["Ongoing", "Strange"]
    )
    assert strange.unknown_state_filters == ("Strange",)


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
def test_a_time_out_that_is_too_long_is_refused(
    client: TransactionClient, timeout_ms: int
) -> None:
    answer = client.world.send(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=NAME,
        transaction_timeout=timedelta(milliseconds=timeout_ms),
    )
    assert answer.error_code is ErrorCode.invalid_transaction_timeout
