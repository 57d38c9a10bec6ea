"""Offsets of open transactions, compared with a model that reads the whole log."""

from __future__ import annotations

import random

import pytest

from broker.groups.committed_offsets import (
    OFFSETS_PER_STEP,
    FetchedOffset,
    Outcomes,
    Position,
    TransactionalCommit,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import InTransaction
from broker.shards.parked_answer import Waiting
from tests.broker.groups.conftest import GroupWorld
from tests.seeds import seeds

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNSTABLE = ErrorCode.unstable_offset_commit
NONE = ErrorCode.none


def committing(
    world: GroupWorld,
    offsets: dict[TopicPartition, int],
    producer_id: int = 7,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
) -> Waiting[Outcomes]:
    request = TransactionalCommit(
        group_id=world.group_id,
        member_id=member_id,
        generation=generation,
        instance_id=instance_id,
        positions={each: Position(at, 5, "m") for each, at in offsets.items()},
        transaction=InTransaction(producer_id, 0, None),
    )
    return world.coordinator.offsets.commit_in_transaction(request)


def commit(
    world: GroupWorld, offsets: dict[TopicPartition, int], producer_id: int = 7
) -> None:
    outcomes = committing(world, offsets, producer_id).answer()
    assert outcomes == dict.fromkeys(offsets, NONE)
    world.coordinator.check()


def end(world: GroupWorld, producer_id: int = 7, *, is_commit: bool = True) -> None:
    """Write the marker, and wait until the offsets are committed or discarded."""
    partition = world.coordinator.partition_for(world.group_id)
    world.log.end(partition, producer_id, is_commit=is_commit)
    ended: list[bool] = []
    world.coordinator.complete_transaction(
        partition, producer_id, is_commit=is_commit, done=lambda: ended.append(True)
    )
    while not ended:
        assert world.coordinator.next_event_ns() == 0
        assert world.coordinator.work()
    world.coordinator.check()


def fetch(world: GroupWorld, target: TopicPartition = T0) -> FetchedOffset:
    offsets = world.coordinator.offsets
    return offsets.fetch("g", [target], require_stable=True)[target]


def test_an_offset_is_unstable_until_its_transaction_ends(world: GroupWorld) -> None:
    world.commit({T0: 3})
    commit(world, {T0: 5})
    assert fetch(world).error is UNSTABLE
    assert world.fetched() == {T0: 3}
    end(world)
    assert fetch(world) == FetchedOffset(5, 5, "m")
    commit(world, {T0: 9})
    end(world, is_commit=False)
    assert fetch(world).offset == 5


def test_a_group_of_an_aborted_transaction_is_gone(world: GroupWorld) -> None:
    commit(world, {T0: 5})
    assert world.coordinator.describe("g") is not None
    end(world, is_commit=False)
    assert world.coordinator.describe("g") is None


def test_the_order_of_the_log_decides(world: GroupWorld) -> None:
    """Kafka compares positions in the log: a later commit is not undone."""
    commit(world, {T0: 5, T1: 5})
    world.commit({T0: 8})
    commit(world, {T1: 9}, producer_id=8)
    end(world, 8)
    assert fetch(world, T1).error is UNSTABLE
    end(world)
    assert world.fetched() == {T0: 8, T1: 9}
    world.start()
    assert world.fetched() == {T0: 8, T1: 9}


def test_a_failed_append_leaves_nothing(world: GroupWorld) -> None:
    world.log.fail_with = ErrorCode.invalid_producer_epoch
    refused = committing(world, {T0: 5}).answer()
    assert refused == {T0: ErrorCode.invalid_producer_epoch}
    assert world.coordinator.describe("g") is None


def test_members_are_fenced_and_others_are_not(world: GroupWorld) -> None:
    (member,) = world.form(1)
    generation = world.group.generation
    assert committing(world, {T0: 1}).answer() == {T0: NONE}
    good = committing(world, {T0: 1}, 7, member, generation)
    assert good.answer() == {T0: NONE}
    for stranger, number, code in (
        (member, generation + 1, ErrorCode.illegal_generation),
        ("stranger", generation, ErrorCode.unknown_member_id),
        ("", generation, ErrorCode.unknown_member_id),
        ("stranger", -1, ErrorCode.unknown_member_id),
    ):
        with pytest.raises(KafkaError) as refused:
            committing(world, {T0: 1}, 7, stranger, number)
        assert refused.value.code is code
    world.group_id = "other"
    with pytest.raises(KafkaError) as refused:
        committing(world, {T0: 1}, 7, member, 1)
    assert refused.value.code is ErrorCode.group_id_not_found


def test_offsets_of_open_transactions_keep_a_group_from_expiring() -> None:
    world = GroupWorld(offsets_retention_ms=1000)
    world.commit({T0: 3, T1: 3})
    commit(world, {T0: 5})
    world.advance(10_000_000)
    assert world.fetched() == {T0: 3}
    end(world, is_commit=False)
    world.advance(10_000_000)
    assert world.coordinator.describe("g") is None


def test_a_deleted_group_takes_offsets_of_transactions_along(world: GroupWorld) -> None:
    commit(world, {T0: 5})
    assert world.coordinator.offsets.delete_group("g").answer() is NONE
    end(world)
    assert world.coordinator.describe("g") is None
    world.start()
    assert world.coordinator.describe("g") is None


def test_a_deleted_topic_takes_offsets_of_transactions_along(world: GroupWorld) -> None:
    other = TopicPartition("u", 0)
    commit(world, {T0: 5, other: 6})
    for _ in world.coordinator.offsets.delete_topics([T0]):
        pass
    end(world)
    assert world.fetched() == {other: 6}
    world.start()
    assert world.fetched() == {other: 6}


def test_many_offsets_are_shown_in_steps(world: GroupWorld) -> None:
    many = {TopicPartition("t", number): 1 for number in range(3 * OFFSETS_PER_STEP)}
    commit(world, many)
    partition = world.coordinator.partition_for("g")
    ended: list[bool] = []
    world.coordinator.complete_transaction(
        partition, 7, is_commit=True, done=lambda: ended.append(True)
    )
    assert len(world.fetched()) == OFFSETS_PER_STEP
    assert not ended
    # A commit between two steps takes precedence.
    last = TopicPartition("t", len(many) - 1)
    world.commit({last: 2})
    while world.coordinator.next_event_ns() == 0:
        world.coordinator.work()
    assert ended
    assert world.fetched() == {**many, last: 2}


def test_a_partition_takes_no_markers_while_it_loads(world: GroupWorld) -> None:
    commit(world, {T0: 5})
    partition = world.coordinator.partition_for("g")
    assert world.coordinator.takes_markers(partition)
    world.coordinator.resign(partition)
    assert not world.coordinator.takes_markers(partition)
    world.coordinator.elect(partition)
    assert not world.coordinator.takes_markers(partition)
    world.coordinator.load_all()
    assert world.coordinator.takes_markers(partition)
    end(world)
    assert world.fetched() == {T0: 5}


class Model:
    """A log that is read from its start for each query."""

    def __init__(self) -> None:
        # A commit: (target, offset, producer or None). An end: (producer, is_commit).
        self.log: list[tuple[object, ...]] = []

    def committed(self) -> dict[TopicPartition, int]:
        places: dict[TopicPartition, tuple[int, int]] = {}
        for number, entry in enumerate(self.log):
            if len(entry) == 2:
                continue
            target, offset, producer = entry
            if producer is not None and self._end_of(producer, number) is not True:
                continue
            places[target] = (number, offset)  # type: ignore[index,assignment]  # entries differ
        return {target: offset for target, (_, offset) in places.items()}

    def unstable(self) -> set[object]:
        return {
            entry[0]
            for number, entry in enumerate(self.log)
            if len(entry) == 3
            and entry[2] is not None
            and self._end_of(entry[2], number) is None
        }

    def _end_of(self, producer: object, number: int) -> object:
        for entry in self.log[number:]:
            if len(entry) == 2 and entry[0] == producer:
                return entry[1]
        return None


@pytest.mark.parametrize("seed", seeds(16, 40))
def test_any_history_reads_as_the_log_says(seed: int) -> None:
    rng, world, model = random.Random(seed), GroupWorld(), Model()
    targets = [TopicPartition("t", number) for number in range(3)]
    for step in range(60):
        target, producer = rng.choice(targets), rng.choice((7, 8, 9))
        kind = rng.choices(("plain", "in", "end", "restart"), (3, 5, 3, 1))[0]
        if kind == "plain":
            world.commit({target: step})
            model.log.append((target, step, None))
        elif kind == "in":
            commit(world, {target: step}, producer)
            model.log.append((target, step, producer))
        elif kind == "end":
            is_commit = rng.random() < 0.6
            end(world, producer, is_commit=is_commit)
            model.log.append((producer, is_commit))
        else:
            world.start()
        assert world.fetched() == model.committed(), (seed, step)
        found = {each for each in targets if fetch(world, each).error is UNSTABLE}
        assert found == model.unstable(), (seed, step)
