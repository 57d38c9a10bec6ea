"""Transactional batches are verified before a transaction begins, as in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import batch, produce_fields

TRANSACTIONAL = 0x10
NONE = ErrorCode.none


class Verifier:
    """A coordinator that answers from a table and records its calls."""

    def __init__(self) -> None:
        self.answers: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[tuple[str, int, int, set[TopicPartition]]] = []
        self.added: list[bool] = []

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.added.append(adds)
        question = (transactional_id, producer_id, producer_epoch, set(partitions))
        self.asked.append(question)
        return {each: self.answers.get(each, NONE) for each in partitions}


@pytest.fixture
def world() -> World:
    world = World()
    world.create("t", 2)
    world.broker.verify_transaction = Verifier()
    return world


def verifier(world: World) -> Verifier:
    found = world.broker.verify_transaction
    assert isinstance(found, Verifier)
    return found


def sent(sequence: int = 0, producer_id: int = 7, epoch: int = 0) -> bytes:
    producer = (producer_id, epoch, sequence)
    return batch(b"v", producer=producer, attributes=TRANSACTIONAL)


def produce(
    world: World,
    batches: Mapping[tuple[str, int], bytes],
    version: int = 11,
    transactional_id: str | None = "tx",
) -> dict[int, ErrorCode]:
    call = world.start(
        ApiKey.PRODUCE,
        version,
        transactional_id=transactional_id,
        **produce_fields(batches, acks=-1),
    )
    while not call.done:
        world.pass_ms(1)
    rows = call.answer.responses[0].partition_responses
    return {each.index: each.error_code for each in rows}


def test_the_coordinator_is_asked_once_for_each_transaction(world: World) -> None:
    both = {("t", 0): sent(), ("t", 1): sent()}
    assert produce(world, both) == {0: NONE, 1: NONE}
    partitions = {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert verifier(world).asked == [("tx", 7, 0, partitions)]
    assert produce(world, {("t", 0): sent(1)}) == {0: NONE}
    assert len(verifier(world).asked) == 1
    world.check()


def test_a_partition_that_was_not_added_fails_alone(world: World) -> None:
    refused = ErrorCode.transaction_abortable
    verifier(world).answers[TopicPartition("t", 1)] = refused
    both = {("t", 0): sent(), ("t", 1): sent()}
    assert produce(world, both) == {0: NONE, 1: refused}
    log = world.broker.logs.logs[TopicPartition("t", 1)]
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.transaction_abortable, 11, ErrorCode.transaction_abortable),
        (ErrorCode.transaction_abortable, 10, ErrorCode.invalid_txn_state),
        (ErrorCode.producer_fenced, 11, ErrorCode.invalid_producer_epoch),
        (ErrorCode.not_coordinator, 11, ErrorCode.not_enough_replicas),
        (ErrorCode.concurrent_transactions, 9, ErrorCode.not_enough_replicas),
        (ErrorCode.concurrent_transactions, 11, ErrorCode.not_enough_replicas),
        (ErrorCode.concurrent_transactions, 12, ErrorCode.concurrent_transactions),
        (ErrorCode.not_coordinator, 12, ErrorCode.not_enough_replicas),
        (ErrorCode.producer_fenced, 12, ErrorCode.invalid_producer_epoch),
        (
            ErrorCode.invalid_producer_id_mapping,
            9,
            ErrorCode.invalid_producer_id_mapping,
        ),
    ],
)
def test_errors_are_those_that_producers_know(
    world: World, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    verifier(world).answers[TopicPartition("t", 0)] = said
    assert produce(world, {("t", 0): sent()}, version) == {0: told}
    assert set(verifier(world).added) == {version >= 12}


@pytest.mark.parametrize(
    ("settings", "version", "times_ms"),
    [
        # Kafka's `handleProduceAppend`: every 20 ms, until 100 ms have passed.
        ({}, 12, [0, 20, 40, 60, 80, 100]),
        ({"add.partitions.to.txn.retry.backoff.ms": "70"}, 12, [0, 70, 140]),
        ({"add.partitions.to.txn.retry.backoff.max.ms": "0"}, 12, [0]),
        ({"request.timeout.ms": "30"}, 12, [0, 20, 40]),
        # A verification is not repeated.
        ({}, 11, [0]),
    ],
)
def test_an_addition_is_tried_again_as_often_as_kafka_does(
    settings: dict[str, str], version: int, times_ms: list[int]
) -> None:
    world = World(settings)
    world.create("t", 2)
    asked: list[int] = []

    class Timed(Verifier):
        async def __call__(self, *args: Any, **fields: Any) -> Any:
            asked.append(world.now_ns // 1_000_000)
            return await super().__call__(*args, **fields)

    world.broker.verify_transaction = Timed()
    verifier(world).answers[TopicPartition("t", 0)] = ErrorCode.concurrent_transactions
    # The other partition is not affected.
    found = produce(world, {("t", 0): sent(), ("t", 1): sent()}, version)
    assert found[0] is not NONE
    assert found[1] is NONE
    assert asked == times_ms
    world.check()


def test_a_transactional_batch_needs_a_transactional_id(world: World) -> None:
    both = {("t", 0): sent(), ("t", 1): batch(b"plain")}
    code = ErrorCode.transactional_id_authorization_failed
    assert produce(world, both, transactional_id=None) == {0: code, 1: code}
    # A single batch is handled at once.
    assert produce(world, {("t", 0): sent()}, transactional_id=None) == {0: code}


def test_one_request_is_of_one_producer(world: World) -> None:
    both = {("t", 0): sent(), ("t", 1): sent(producer_id=8)}
    code = ErrorCode.invalid_producer_id_mapping
    assert produce(world, both) == {0: code, 1: code}


def test_without_verification_nobody_is_asked() -> None:
    world = World({"transaction.partition.verification.enable": "false"})
    world.create("t")
    world.broker.verify_transaction = Verifier()
    assert produce(world, {("t", 0): sent()}) == {0: NONE}
    assert verifier(world).asked == []
    # The addition is still needed for a coordinator to end the transaction.
    assert produce(world, {("t", 0): sent(producer_id=8)}, 12) == {0: NONE}
    assert verifier(world).added == [True]


def test_an_epoch_of_one_transaction_begins_at_zero(world: World) -> None:
    """Otherwise a retry of a failed first batch could follow the second batch."""
    code = ErrorCode.out_of_order_sequence_number
    assert produce(world, {("t", 0): sent(1)}, 12) == {0: code}
    assert produce(world, {("t", 0): sent(0)}, 12) == {0: NONE}
    assert produce(world, {("t", 0): sent(1)}, 12) == {0: NONE}
    # A producer's state may expire within an epoch of many transactions.
    assert produce(world, {("t", 0): sent(1, producer_id=8)}, 11) == {0: NONE}


def test_without_a_coordinator_no_transaction_begins() -> None:
    world = World()
    world.create("t")
    code = ErrorCode.not_enough_replicas
    assert produce(world, {("t", 0): sent()}) == {0: code}
    stable: Any = world.fetch("t").last_stable_offset
    assert stable == 0
