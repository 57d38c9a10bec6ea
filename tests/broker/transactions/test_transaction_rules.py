"""Kafka's rules for a transactional id, one per test."""

from __future__ import annotations

import pytest

from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import NS_PER_MS
from broker.transactions.transaction import ProducerIdAndEpoch, TransactionValue
from broker.transactions.transaction_coordinator import InitRequest
from broker.transactions.transaction_records import transaction_record
from broker.transactions.transaction_state import TransactionState
from tests.broker.transactions.transaction_world import (
    START_MS,
    TIMEOUT_MS,
    TransactionWorld,
    marked,
)

NONE = ErrorCode.none


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def stored(world: TransactionWorld, name: str = "x", **fields: object) -> None:
    """Write a value to the log and load it."""
    given: dict[str, object] = {
        "producer_id": 5,
        "epoch": 0,
        "timeout_ms": TIMEOUT_MS,
        "updated_ms": START_MS,
    }
    value = TransactionValue(**(given | fields))  # type: ignore[arg-type]
    partition = world.coordinator.partition_for(name)
    record = transaction_record(name, value, 2)
    world.log.partitions.setdefault(partition, []).append(record)
    world.start()


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_ended_and_every_partition_marked(
    world: TransactionWorld, is_commit: bool
) -> None:
    producer = world.producer()
    assert world.add(producer, 0, 1) is NONE
    assert world.add(producer, 2) is NONE
    assert world.end(producer, is_commit) is NONE
    for outcome in (is_commit, not is_commit):
        assert world.end(producer, outcome) is ErrorCode.concurrent_transactions
    assert world.add(producer, 3) is ErrorCode.concurrent_transactions
    rows = world.answer()
    assert marked(rows) == dict.fromkeys((0, 1, 2), is_commit)
    assert {row.ending.producer for row in rows} == {producer}
    assert {row.ending.coordinator_epoch for row in rows} == {world.epoch}
    assert world.end(producer, is_commit) is NONE
    assert world.end(producer, not is_commit) is ErrorCode.invalid_txn_state
    # Begin the next transaction with the same producer.
    assert world.add(producer, 3) is NONE
    assert world.end(producer) is NONE


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(
    world: TransactionWorld,
) -> None:
    first = world.producer()
    assert world.add(first, 0) is NONE
    assert world.init() is ErrorCode.concurrent_transactions
    assert world.add(first, 1) is ErrorCode.concurrent_transactions
    assert world.end(first) is ErrorCode.producer_fenced
    assert world.init() is ErrorCode.concurrent_transactions
    rows = world.answer()
    assert marked(rows) == {0: False}
    assert world.add(first, 1) is ErrorCode.producer_fenced
    # The marker fences batches of the first producer.
    assert rows[0].ending.producer == (first.producer_id, first.epoch + 1)
    second = world.producer()
    assert second == (first.producer_id, first.epoch + 2)
    assert world.end(second) is ErrorCode.invalid_txn_state


def test_the_epoch_of_a_fence_that_was_not_written_is_not_raised_twice(
    world: TransactionWorld,
) -> None:
    producer = world.producer()
    assert world.add(producer, 0) is NONE
    world.log.fail_with = ErrorCode.not_enough_replicas
    for _ in range(3):
        assert world.init() is ErrorCode.coordinator_not_available
        assert world.coordinator.describe("x").value.epoch == producer.epoch + 1
    world.log.fail_with = NONE
    assert world.init() is ErrorCode.concurrent_transactions
    world.finish()
    second = world.producer()
    assert second.epoch == producer.epoch + 2
    # Another fence raises the epoch again.
    assert world.add(second, 0) is NONE
    assert world.init() is ErrorCode.concurrent_transactions
    assert world.coordinator.describe("x").value.epoch == second.epoch + 1


def test_a_fence_of_the_second_protocol_raises_the_epoch_once() -> None:
    """As in Kafka 4.4's ``endTransaction`` at level 2, also after a failed write."""
    world = TransactionWorld(transaction_version=2)
    first = world.producer()
    assert world.add(first, 0) is NONE
    world.log.fail_with = ErrorCode.not_enough_replicas
    for _ in range(3):
        assert world.init() is ErrorCode.coordinator_not_available
        assert world.coordinator.describe("x").value.producer == first
    world.log.fail_with = NONE
    assert world.init() is ErrorCode.concurrent_transactions
    value = world.coordinator.describe("x").value
    assert (value.epoch, value.last_epoch) == (first.epoch + 1, first.epoch)
    (row,) = world.answer()
    assert marked([row]) == {0: False}
    assert row.ending.producer == (first.producer_id, first.epoch + 1)
    assert row.ending.transaction_version == 2
    # The fenced producer may abort, as after a time-out, and continue.
    resumed = world.end_5(first, False)
    assert resumed == (first.producer_id, first.epoch + 1)
    second = world.producer()
    assert second == (first.producer_id, first.epoch + 2)
    assert isinstance(resumed, ProducerIdAndEpoch)
    assert world.add(resumed, 0) is ErrorCode.producer_fenced


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_level_decides_by_which_protocol_a_time_out_aborts(level: int) -> None:
    world = TransactionWorld(transaction_version=level)
    producer = world.producer()
    assert world.add(producer, 4) is NONE
    world.advance(TIMEOUT_MS + 10_000)
    (row,) = world.answer()
    assert row.ending.producer == (producer.producer_id, producer.epoch + 1)
    assert row.ending.transaction_version == (2 if level == 2 else 0)
    # Only in the second protocol may the late producer continue.
    known = world.init(known=producer)
    if level == 2:
        assert known == (producer.producer_id, producer.epoch + 1)
    else:
        assert known is ErrorCode.producer_fenced


def test_a_fence_of_the_last_epoch_takes_a_new_producer_id() -> None:
    world = TransactionWorld(transaction_version=2)
    stored(world, epoch=32_766)
    last = ProducerIdAndEpoch(5, 32_766)
    assert world.add(last, 0) is NONE
    assert world.init() is ErrorCode.concurrent_transactions
    (row,) = world.answer()
    assert row.ending.producer == (5, 32_767)
    assert world.coordinator.describe("x").value.producer == (world.last_id, 0)
    assert world.producer() == (world.last_id, 1)


def test_a_time_out_at_the_last_epoch_leaves_the_new_id_to_the_next_producer() -> None:
    world = TransactionWorld(transaction_version=2)
    stored(world, epoch=32_766)
    assert world.add(ProducerIdAndEpoch(5, 32_766), 0) is NONE
    world.advance(TIMEOUT_MS + 10_000)
    (row,) = world.answer()
    assert row.ending.producer == (5, 32_767)
    assert world.coordinator.describe("x").value.producer == (5, 32_767)
    assert world.producer() == (world.last_id, 0)


def test_a_producer_raises_its_own_epoch_and_may_ask_twice(
    world: TransactionWorld,
) -> None:
    first = world.producer()
    second = world.init(known=first)
    assert second == (first.producer_id, first.epoch + 1)
    assert world.init(known=first) == second
    assert isinstance(second, ProducerIdAndEpoch)
    third = world.init(known=second)
    assert world.init(known=first) is ErrorCode.producer_fenced
    stranger = ProducerIdAndEpoch(999, 0)
    assert world.init(known=stranger) is ErrorCode.producer_fenced
    # Another producer came in between, so the request cannot be repeated.
    world.producer()
    assert isinstance(third, ProducerIdAndEpoch)
    assert world.init(known=second) is ErrorCode.producer_fenced


def test_an_exhausted_epoch_gets_a_new_producer_id(world: TransactionWorld) -> None:
    stored(world, epoch=32_765)
    last = world.producer()
    assert last == (5, 32_766)
    assert world.add(last, 0) is NONE
    # The last epoch is reserved for fencing.
    assert world.init() is ErrorCode.concurrent_transactions
    world.finish()
    assert world.coordinator.describe("x").value.epoch == 32_767
    fresh = world.producer()
    assert fresh == (world.last_id, 0)
    assert world.end(last) is ErrorCode.invalid_producer_id_mapping


def test_a_producer_of_an_exhausted_epoch_may_ask_twice_for_its_new_id(
    world: TransactionWorld,
) -> None:
    stored(world, epoch=32_766)
    known = ProducerIdAndEpoch(5, 32_766)
    fresh = world.init(known=known)
    assert fresh == (world.last_id, 0)
    assert world.init(known=known) == fresh


@pytest.mark.parametrize("state", ["PREPARE_COMMIT", "PREPARE_ABORT"])
def test_a_prepared_transaction_is_completed_after_a_restart(
    world: TransactionWorld, state: str
) -> None:
    partitions = frozenset({TopicPartition("t", 0), TopicPartition("u", 1)})
    prepared = TransactionState[state]
    stored(world, state=prepared, partitions=partitions, started_ms=START_MS)
    rows = world.answer()
    assert {key for row in rows for key in row.partitions} == partitions
    assert world.state().label == state.title().replace("_", "").replace(
        "Prepare", "Complete"
    )
    world.start()
    assert world.answer() == []


def test_a_transaction_that_is_decided_after_a_load_is_marked_once(
    world: TransactionWorld,
) -> None:
    stored(world, state=TransactionState.ONGOING, started_ms=START_MS)
    producer = ProducerIdAndEpoch(5, 0)
    assert world.add(producer, 0) is NONE
    assert world.end(producer) is NONE
    assert len(world.answer()) == 1


def test_a_loaded_transaction_without_partitions_ends_with_the_term(
    world: TransactionWorld,
) -> None:
    stored(world, state=TransactionState.PREPARE_ABORT, started_ms=START_MS)
    partition = world.coordinator.partition_for("x")
    world.coordinator.resign(partition)
    assert world.answer() == []
    world.coordinator.elect(partition, 9)
    world.finish()


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_outcome_raises_the_epoch_and_its_repetition_does_not(
    world: TransactionWorld, is_commit: bool
) -> None:
    first = world.producer()
    assert world.add(first, 0) is NONE
    second = world.end_5(first, is_commit)
    assert second == (first.producer_id, first.epoch + 1)
    assert isinstance(second, ProducerIdAndEpoch)
    assert world.end_5(first, is_commit) is ErrorCode.concurrent_transactions
    assert world.add(second, 1) is ErrorCode.concurrent_transactions
    (row,) = world.answer()
    # The marker has the new epoch, which fences late batches of the transaction.
    assert (row.ending.producer, row.ending.is_commit) == (second, is_commit)
    assert world.end_5(first, is_commit) == second
    assert world.end_5(first, not is_commit) is ErrorCode.invalid_txn_state
    assert world.add(first, 1) is ErrorCode.producer_fenced
    assert world.add(second, 1) is NONE
    # After the next transaction the retry belongs to a former producer.
    assert world.end_5(first, is_commit) is ErrorCode.producer_fenced


def test_a_transaction_without_partitions_is_aborted_and_not_committed(
    world: TransactionWorld,
) -> None:
    producer = world.producer()
    assert world.end(producer, False) is ErrorCode.invalid_txn_state
    for _ in range(3):
        assert world.end_5(producer) is ErrorCode.invalid_txn_state
        after = world.end_5(producer, False)
        assert after == (producer.producer_id, producer.epoch + 1)
        assert world.state() is TransactionState.COMPLETE_ABORT
        assert world.coordinator.describe("x").value.started_ms == START_MS
        assert isinstance(after, ProducerIdAndEpoch)
        producer = after
    assert world.answer() == []


@pytest.mark.parametrize("restarts", [True, False])
def test_the_last_epoch_is_followed_by_a_new_producer_id(restarts: bool) -> None:
    world = TransactionWorld(transaction_version=1)
    stored(world, epoch=32_766)
    last = ProducerIdAndEpoch(5, 32_766)
    assert world.add(last, 0) is NONE
    fresh = world.end_5(last)
    assert fresh == (world.last_id, 0)
    assert isinstance(fresh, ProducerIdAndEpoch)
    if restarts:
        world.start()
    # The new id is not valid before the markers are written, under the old id.
    assert world.add(fresh, 1) is ErrorCode.concurrent_transactions
    (row,) = world.answer()
    assert row.ending.producer == (5, 32_767)
    if restarts:
        world.start()
    assert world.end_5(last) == fresh
    assert world.add(fresh, 1) is NONE
    assert world.end_5(last) is ErrorCode.invalid_producer_id_mapping


def test_a_transaction_that_is_open_for_too_long_is_aborted(
    world: TransactionWorld,
) -> None:
    producer = world.producer()
    assert world.add(producer, 4) is NONE
    world.advance(TIMEOUT_MS)
    assert world.state() is TransactionState.ONGOING
    world.advance(10_000)
    assert world.state() is TransactionState.PREPARE_ABORT
    assert world.add(producer, 5) is ErrorCode.concurrent_transactions
    assert marked(world.answer()) == {4: False}
    assert world.add(producer, 5) is ErrorCode.producer_fenced
    assert world.coordinator.aborted_by_time_out == 1


def test_an_idle_id_is_forgotten_and_an_open_one_is_not() -> None:
    day_ms = 86_400_000
    world = TransactionWorld(transactional_id_expiration_ms=day_ms)
    world.producer("idle")
    stored(
        world,
        "open",
        state=TransactionState.ONGOING,
        started_ms=START_MS,
        timeout_ms=2**31 - 1,
    )
    world.advance(day_ms + 3_600_000)
    with pytest.raises(KafkaError) as unknown:
        world.coordinator.describe("idle")
    assert unknown.value.code is ErrorCode.transactional_id_not_found
    assert world.state("open") is TransactionState.ONGOING
    world.start()
    assert {each.name for each in world.coordinator.all()} == {"open"}


def test_nothing_is_due_without_open_transactions_and_ids() -> None:
    """Otherwise every idle broker would wake several times per second."""
    world = TransactionWorld()
    assert world.coordinator.next_event_ns() is None
    producer = world.producer()
    expiry_ns = world.coordinator.next_event_ns()
    assert expiry_ns == world.config.remove_expired_interval_ms * NS_PER_MS
    world.add(producer, 0)
    assert world.coordinator.next_event_ns() == (
        world.config.abort_timed_out_interval_ms * NS_PER_MS
    )
    world.end(producer)
    world.finish()
    world.advance(world.config.abort_timed_out_interval_ms)
    assert world.coordinator.next_event_ns() == expiry_ns
    world.start()
    assert world.coordinator.next_event_ns() is not None
    # One step expires the idle id, the next one finds nothing to do.
    world.advance(world.config.transactional_id_expiration_ms * 2)
    assert world.coordinator.next_event_ns() is None


def test_markers_are_sent_again_until_each_is_written(world: TransactionWorld) -> None:
    producer = world.producer()
    assert world.add(producer, 0, 1, 2) is NONE
    gone, leaderless = TopicPartition("t", 0), TopicPartition("t", 1)
    world.gone.add(gone)
    world.leaderless.add(leaderless)
    assert world.end(producer) is NONE
    assert marked(world.answer(ErrorCode.not_leader_or_follower)) == {2: True}
    world.advance(50)
    assert marked(world.answer(ErrorCode.network_exception)) == {2: True}
    world.leaderless.clear()
    world.advance(50)
    assert marked(world.answer()) == {1: True, 2: True}
    assert world.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_enough_replicas,
        ErrorCode.request_timed_out,
        # A full disk: the broker remains the coordinator.
        ErrorCode.kafka_storage_error,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_server_error,
    ],
)
def test_an_end_that_is_not_written_is_written_later(
    world: TransactionWorld, error: ErrorCode
) -> None:
    producer = world.producer()
    assert world.add(producer, 0) is NONE
    assert world.end(producer) is NONE
    world.log.fail_with = error
    world.answer()
    assert world.state() is TransactionState.PREPARE_COMMIT
    assert world.coordinator.markers.resting_ends == 1
    world.log.fail_with = NONE
    world.advance(50)
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_a_refused_marker_ends_the_attempts(world: TransactionWorld) -> None:
    producer = world.producer()
    assert world.add(producer, 0) is NONE
    assert world.end(producer) is NONE
    world.answer(ErrorCode.transaction_coordinator_fenced)
    world.advance(10_000)
    assert world.sent == []
    assert world.state() is TransactionState.PREPARE_COMMIT


def test_an_outcome_of_a_former_term_changes_nothing(world: TransactionWorld) -> None:
    producer = world.producer()
    assert world.add(producer, 0) is NONE
    assert world.end(producer) is NONE
    world.advance(0)
    former, world.sent = world.sent, []
    partition = world.coordinator.partition_for("x")
    world.coordinator.resign(partition)
    assert world.end(producer) is ErrorCode.not_coordinator
    world.coordinator.elect(partition, 9)
    assert world.end(producer) is ErrorCode.coordinator_load_in_progress
    world.advance(0)
    (again,) = world.sent
    assert again.ending.coordinator_epoch == 9
    world.coordinator.markers.failed(former[0], NONE)
    world.advance(0)
    assert world.state() is TransactionState.PREPARE_COMMIT
    world.finish()


def test_a_write_that_ends_after_a_resignation_is_not_the_coordinators(
    world: TransactionWorld,
) -> None:
    producer = world.producer()
    world.log.hold = True
    waiting = world.coordinator.add_partitions(
        "x", producer, frozenset({TopicPartition("t", 0)})
    )
    assert world.add(producer, 1) is ErrorCode.concurrent_transactions
    assert world.init() is ErrorCode.concurrent_transactions
    partition = world.coordinator.partition_for("x")
    world.coordinator.resign(partition)
    world.coordinator.elect(partition, 9)
    world.advance(0)
    world.log.hold = False
    world.log.release()
    assert waiting.answer() is ErrorCode.not_coordinator


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_beyond_the_longest_is_refused(
    world: TransactionWorld, timeout_ms: int
) -> None:
    with pytest.raises(KafkaError) as refused:
        world.coordinator.needs_producer_id(
            InitRequest(transactional_id="x", timeout_ms=timeout_ms)
        )
    assert refused.value.code is ErrorCode.invalid_transaction_timeout
