"""Partitions of ``__consumer_offsets`` are loaded and unloaded in bounded steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from broker.groups.group_coordinator import GroupCoordinator
from broker.groups.group_loading import GroupLoading
from broker.groups.state.group_messages import MemberIdentity
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Record
from broker.shards.parked_answer import Waiting
from tests.broker.groups.all_offsets import fetch_all
from tests.broker.groups.conftest import GroupWorld, MemoryGroupLog
from tests.fuzzing.starvation import StarvationProbe
from tests.seeds import seeds

BUDGET_CALLS = 20_000
# A step takes a fraction of a millisecond, except for records of whole groups.
STEP_CALLS = 4_000
MANY = 10_000


def fetched(world: GroupWorld, group_id: str) -> dict[tuple[str, int], int]:
    answers = fetch_all(world.coordinator.offsets, group_id, require_stable=False)
    return {tuple(target): one.offset for target, one in answers.items()}


def load(world: GroupWorld, probe: StarvationProbe) -> int:
    """Run all steps of the load; return their number."""
    steps = 0
    with probe.counting():
        while world.coordinator.loading.work():
            probe.end("step")
            steps += 1
    return steps


# ---- bounded steps ------------------------------------------------------------------


def test_many_groups_are_unloaded_and_loaded_in_steps() -> None:
    world = GroupWorld(offsets_topic_num_partitions=1)
    for number in range(MANY):
        world.commit({("t", 0): number}, group_id=f"g{number}")
    probe = StarvationProbe()
    with probe.counting():
        world.coordinator.resign(0)
        probe.end("resignation")
        world.coordinator.elect(0)
        probe.end("election")
    assert load(world, probe) > MANY // 32
    assert probe.most_calls["resignation"] < 20
    assert probe.most_calls["election"] < 20
    assert probe.most_calls["step"] < STEP_CALLS
    assert fetched(world, "g77") == {("t", 0): 77}
    assert world.coordinator.statistics().groups == MANY


def test_a_group_of_many_members_is_unloaded_and_loaded_in_steps() -> None:
    count = 500
    world = GroupWorld()
    members = world.form(count)
    waiting = [world.join(member) for member in members[: count // 2]]
    probe = StarvationProbe()
    partition = world.coordinator.partition_for("g")
    world.coordinator.resign(partition)
    world.coordinator.elect(partition)
    assert load(world, probe) > count // 50
    assert probe.most_calls["step"] < STEP_CALLS
    assert {one.answer().error for one in waiting} == {ErrorCode.not_coordinator}
    assert list(world.group.roster.members) == members
    world.coordinator.check()
    world.advance(9_999)
    assert len(world.group.roster) == count
    world.advance(1)
    assert world.state == "Empty"


def test_a_group_of_many_offsets_is_looked_at_for_expiry_in_steps() -> None:
    world = GroupWorld(offsets_topic_num_partitions=1)
    world.commit({("t", n): 1 for n in range(10 * MANY)})
    world.now_ms += world.config.offsets_retention_check_interval_ms
    probe = StarvationProbe()
    with probe.counting():
        while world.coordinator.next_event_ns() == 0 or probe.most_calls["work"] < 1:
            world.coordinator.work()
            probe.end("work")
    assert probe.most_calls["work"] < BUDGET_CALLS
    assert len(fetched(world, "g")) == 10 * MANY


def test_many_members_that_do_not_join_are_lost_in_steps() -> None:
    count = 1_000
    world = GroupWorld()
    members = world.form(count, rebalance_timeout_ms=5_000)
    joined = world.join(members[0], rebalance_timeout_ms=5_000)
    world.now_ms += 5_000
    probe = StarvationProbe()
    steps = 0
    with probe.counting():
        while world.coordinator.work():
            probe.end("work")
            steps += 1
    assert steps > count // 64
    assert probe.most_calls["work"] < BUDGET_CALLS
    assert joined.answer().error is ErrorCode.none
    assert list(world.group.roster.members) == [members[0]]
    world.coordinator.check()


def test_many_members_that_do_not_sync_are_lost_in_steps() -> None:
    world = GroupWorld()
    joins = [
        world.join(client_id=f"c{n}", rebalance_timeout_ms=5_000) for n in range(999)
    ]
    world.advance(6_000)
    members = [join.answer().member_id for join in joins]
    leader = joins[0].answer().leader
    waiting = world.sync(members[-1] if members[0] == leader else members[0], 1)
    world.now_ms += 5_000
    probe = StarvationProbe()
    with probe.counting():
        while world.coordinator.work():
            probe.end("work")
    assert probe.most_calls["work"] < BUDGET_CALLS
    assert waiting.answer().error is ErrorCode.rebalance_in_progress
    assert len(world.group.roster) == 1
    world.coordinator.check()


# ---- requests during a load ---------------------------------------------------------


def test_groups_are_refused_while_they_come_and_go() -> None:
    world = GroupWorld()
    (member,) = world.form(1)
    partition = world.coordinator.partition_for("g")
    world.coordinator.resign(partition)
    with pytest.raises(KafkaError) as away:
        world.coordinator.describe("g")
    assert away.value.code is ErrorCode.not_coordinator
    world.coordinator.elect(partition)
    while True:
        with pytest.raises(KafkaError) as loading:
            world.coordinator.describe("g")
        assert loading.value.code is ErrorCode.coordinator_load_in_progress
        world.coordinator.loading.work()
        world.coordinator.check()
        if world.coordinator.loading.next_ns() is None:
            break
    assert world.heartbeat(member, 1) is ErrorCode.none


def test_a_topic_that_is_deleted_during_a_load_is_forgotten_with_it() -> None:
    world = GroupWorld()
    world.commit({("gone", n): 1 for n in range(600)} | {("t", 0): 1})
    partition = world.coordinator.partition_for("g")
    world.coordinator.resign(partition)
    world.coordinator.elect(partition)
    for _ in range(3):
        world.coordinator.loading.work()
    gone = [TopicPartition("gone", n) for n in range(600)]
    written = list(world.coordinator.offsets.delete_topics(gone))
    assert partition in written
    woken: list[None] = []
    assert world.coordinator.loading.register(lambda: woken.append(None))
    world.advance(0)
    assert woken == [None]
    assert not world.coordinator.loading.register(lambda: woken.append(None))
    assert fetched(world, "g") == {("t", 0): 1}
    world.start()
    assert fetched(world, "g") == {("t", 0): 1}


def test_a_load_that_is_overtaken_wakes_who_waits_for_its_deletions() -> None:
    world = GroupWorld(offsets_topic_num_partitions=1)
    world.commit({("gone", 0): 1})
    world.coordinator.resign(0)
    world.coordinator.elect(0)
    list(world.coordinator.offsets.delete_topics([TopicPartition("gone", 0)]))
    woken: list[None] = []
    assert world.coordinator.loading.register(lambda: woken.append(None))
    world.coordinator.resign(0)
    assert woken == [None]


def test_a_group_that_is_being_unloaded_writes_nothing() -> None:
    """Otherwise a record of the old term could follow the records of the next term."""
    world = GroupWorld(offsets_topic_num_partitions=1)
    world.form(300)
    before = len(world.log.partitions[0])
    world.now_ms += 9_000
    leader = next(iter(world.group.roster.members))
    group = world.group
    world.coordinator.resign(0)
    world.coordinator.elect(0)
    effects = world.coordinator._membership.leave(
        group, [MemberIdentity(m) for m in list(group.roster.members)], world.instant()
    )[1]
    assert effects.writes
    world.coordinator._perform(group, effects)
    assert len(world.log.partitions[0]) == before
    world.advance(0)
    assert leader in world.group.roster
    assert len(world.group.roster) == 300


class Broken(Exception):
    pass


def test_a_load_that_fails_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(offsets_topic_num_partitions=1)
    members = world.form(100)
    world.commit({("t", 0): 7}, members[0], 1)
    world.coordinator.resign(0)
    world.coordinator.elect(0)
    revive = GroupLoading._revive

    def fail(self: GroupLoading, group: object) -> Iterator[None]:
        for number, _ in enumerate(revive(self, group)):  # type: ignore[arg-type]  # it is a group
            if number == 0:
                raise Broken
            yield

    monkeypatch.setattr(GroupLoading, "_revive", fail)
    with pytest.raises(Broken):
        load(world, StarvationProbe())
    monkeypatch.undo()
    world.advance(0)
    assert fetched(world, "g") == {("t", 0): 7}
    assert sorted(world.group.roster.members) == sorted(members)
    world.coordinator.check()


# ---- elections in any order, and a naive model --------------------------------------


class ReplicatedLog(MemoryGroupLog):
    """A log whose appends are written at once, and perhaps acknowledged later."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.led: set[int] = set()
        self.waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
        transaction: object = None,
    ) -> None:
        if partition not in self.led:
            done(ErrorCode.not_leader_or_follower)
            return
        self.partitions.setdefault(partition, []).extend(records)
        if self.rng.random() < 0.5:
            self.waiting.append((partition, done))
        else:
            self.acknowledge(partition)
            done(ErrorCode.none)

    def acknowledge(self, partition: int, error: ErrorCode = ErrorCode.none) -> None:
        """Acknowledge the appends to a partition, in their order."""
        mine = [done for at, done in self.waiting if at == partition]
        self.waiting = [(at, done) for at, done in self.waiting if at != partition]
        for done in mine:
            done(error)


class Interleaving:
    """One coordinator under commands and requests in any order, and its model."""

    groups = tuple(f"g{number}" for number in range(6))

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = GroupWorld(offsets_topic_num_partitions=2)
        self.world.log = self.log = ReplicatedLog(self.rng)
        self.world.coordinator = GroupCoordinator(
            self.world.config,
            log=self.log,
            clock=self.world.instant,
            rng=random.Random(7),
        )
        self.is_elected = [False, False]
        # The model: the last commit of each partition, by group.
        self.committed: dict[str, dict[tuple[str, int], int]] = {
            group: {} for group in self.groups
        }
        # Commits of a topic that was deleted during an overtaken load: their tombstones
        # may or may not be in the log.
        self.perhaps: dict[str, dict[tuple[str, int], int]] = {
            group: {} for group in self.groups
        }
        # Commits of a topic that was deleted during the current load or before it.
        self.deleted: dict[str, dict[tuple[str, int], int]] = {
            group: {} for group in self.groups
        }
        self.requests: list[Waiting[Any]] = []

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.world.coordinator

    def play(self, steps: int) -> None:
        acts = (
            self.elect,
            self.resign,
            *[self.work] * 12,
            *[self.commit] * 3,
            self.join,
            self.delete_topic,
            self.pass_time,
        )
        for _ in range(steps):
            self.rng.choice(acts)()
            self.coordinator.check()
            self.look()
        for partition in range(2):
            self.resign(partition)
            self.elect(partition)
        self.work_all()
        for group in self.groups:
            self.expect(group, fetched(self.world, group))
        self.coordinator.check()
        self.world.advance(1_000_000)
        assert all(request.answered for request in self.requests)

    def elect(self, partition: int | None = None) -> None:
        at = self.rng.randrange(2) if partition is None else partition
        self.log.led.add(at)
        self.is_elected[at] = True
        self.coordinator.elect(at)

    def resign(self, partition: int | None = None) -> None:
        at = self.rng.randrange(2) if partition is None else partition
        for group in self.groups:
            if self.coordinator.partition_for(group) != at:
                continue
            if self.is_loading(group):
                self.perhaps[group].update(self.deleted[group])
            self.deleted[group].clear()
        self.log.led.discard(at)
        self.is_elected[at] = False
        self.coordinator.resign(at)
        if self.rng.random() < 0.5:
            self.log.acknowledge(at, ErrorCode.not_leader_or_follower)

    def work(self) -> None:
        if self.rng.random() < 0.7:
            self.coordinator.loading.work()
        else:
            self.coordinator.work()

    def work_all(self) -> None:
        self.world.advance(0)
        for partition in range(2):
            self.log.acknowledge(partition)
        self.world.advance(0)

    def commit(self) -> None:
        group = self.rng.choice(self.groups)
        target = (self.rng.choice("tu"), self.rng.randrange(40))
        offset = self.rng.randrange(1_000_000)
        try:
            described = self.coordinator.describe(group)
            if described is not None and described.roster:
                return
            # The append may wait for the other replicas.
            self.requests.append(
                self.world.committing({target: offset}, group_id=group)
            )
        except KafkaError as refused:
            self.expect_refusal(group, refused)
        else:
            self.committed[group][target] = offset
            self.perhaps[group].pop(target, None)

    def join(self) -> None:
        waiting = self.world.join(
            group_id="members", requires_known_member_id=False, client_id="c"
        )
        self.requests.append(waiting)

    def delete_topic(self) -> None:
        if self.log.waiting:
            return
        for group in self.groups:
            if not self.is_elected[self.coordinator.partition_for(group)]:
                continue
            for offsets in (self.committed[group], self.perhaps[group]):
                for target in [target for target in offsets if target[0] == "u"]:
                    self.deleted[group][target] = offsets.pop(target)
        gone = [TopicPartition("u", number) for number in range(40)]
        for _ in self.coordinator.offsets.delete_topics(gone):
            pass
        for partition in range(2):
            self.log.acknowledge(partition)

    def pass_time(self) -> None:
        self.world.now_ms += self.rng.choice((1, 1_000, 20_000))

    def look(self) -> None:
        """Fetch from a random group: it has all committed offsets, or is refused."""
        group = self.rng.choice(self.groups)
        try:
            seen = fetched(self.world, group)
        except KafkaError as refused:
            self.expect_refusal(group, refused)
            return
        assert self.refusal(group) is not ErrorCode.not_coordinator
        if not self.log.waiting:
            self.expect(group, seen)

    def expect(self, group: str, seen: dict[tuple[str, int], int]) -> None:
        committed, perhaps = self.committed[group], self.perhaps[group]
        certain = {
            target: offset
            for target, offset in seen.items()
            if target in committed or perhaps.get(target) != offset
        }
        assert certain == committed, group

    def is_loading(self, group: str) -> bool:
        try:
            self.coordinator.describe(group)
        except KafkaError as refused:
            return refused.code is ErrorCode.coordinator_load_in_progress
        return False

    def expect_refusal(self, group: str, refused: KafkaError) -> None:
        assert refused.code is self.refusal(group)

    def refusal(self, group: str) -> ErrorCode:
        if self.is_elected[self.coordinator.partition_for(group)]:
            return ErrorCode.coordinator_load_in_progress
        return ErrorCode.not_coordinator


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_elections_in_any_order_lose_nothing_and_show_nothing_old(seed: int) -> None:
    Interleaving(seed).play(600)


def test_instants_of_a_load_are_those_of_its_steps() -> None:
    """A session begins at the time of the step that starts it."""
    world = GroupWorld(offsets_topic_num_partitions=1)
    (member,) = world.form(1)
    world.coordinator.resign(0)
    world.coordinator.elect(0)
    while world.coordinator.loading.next_ns() is not None:
        world.now_ms += 60_000
        world.coordinator.loading.work()
    world.advance(9_999)
    assert member in world.group.roster
    world.advance(1)
    assert world.state == "Empty"
