"""Groups of ten thousand members: the work of each step is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.groups.state.offset_store import TopicPartition
from broker.protocol.errors import ErrorCode
from tests.broker.groups.conftest import GroupWorld, protocols
from tests.fuzzing.starvation import StarvationProbe

BUDGET_CALLS = 20_000
MANY = 10_000


@pytest.fixture
def probe() -> StarvationProbe:
    return StarvationProbe()


def steps(world: GroupWorld, probe: StarvationProbe) -> Iterator[int]:
    """Run the due work step by step; yield the number of each step."""
    number = 0
    while (due_ns := world.coordinator.next_event_ns()) is not None:
        if due_ns > world.now_ms * 1_000_000:
            return
        with probe.counting():
            world.coordinator.work()
            probe.end("work")
        number += 1
        yield number


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_generation_of_many_begins_and_is_assigned_in_steps(
    probe: StarvationProbe, count: int
) -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=1000)
    metadata = protocols("range", "roundrobin", topics=["t", "u"])
    joins = [
        world.join(protocols=metadata, requires_known_member_id=False, client_id=f"{n}")
        for n in range(count)
    ]
    world.now_ms += 1000
    answered = []
    for _ in steps(world, probe):
        answered.append(sum(join.answered for join in joins))
        world.now_ms += 1000 * (len(answered) < 3)
    assert answered[-1] == count
    assert len(answered) > count // 200
    told = [join.answer() for join in joins]
    leader = next(each for each in told if each.members)
    assert [each.member_id for each in leader.members] == [
        each.member_id for each in told
    ]
    assert sum(bool(each.members) for each in told) == 1

    members = [each.member_id for each in told if each is not leader]
    syncs = [world.sync(member, 1) for member in members]
    with probe.counting():
        world.sync(leader.member_id, 1, assignments={m: m.encode() for m in members})
        probe.end("record")
    # Earlier steps made the rows of the members; this step only joins them.
    assert probe.most_calls["record"] < 6 * count
    early = sum(sync.answered for sync in syncs)
    assert 0 < early < 1000
    for _ in steps(world, probe):
        pass
    assert [sync.answer().assignment.decode() for sync in syncs] == members
    assert world.state == "Stable"
    world.coordinator.check()
    assert probe.most_calls["work"] < BUDGET_CALLS


def test_a_member_that_waits_for_its_turn_is_not_lost_meanwhile() -> None:
    """The member's old session expires before its join is answered."""
    world = GroupWorld()
    members = world.form(300)
    world.now_ms += 9_000
    # The leader's join begins a rebalance, and the last join ends the join phase.
    joins = [world.join(member_id=member) for member in members]
    assert 100 < sum(join.answered for join in joins) < 200
    world.now_ms += 2_000
    world.advance(0)
    assert all(join.answer().error is ErrorCode.none for join in joins)
    assert len(world.group.roster) == 300


def test_offsets_of_many_partitions_and_groups_expire_in_steps(
    probe: StarvationProbe,
) -> None:
    world = GroupWorld(offsets_topic_num_partitions=1)
    world.commit({("t", n): 1 for n in range(MANY)})
    for number in range(2_000):
        world.commit({("t", 0): 1}, group_id=f"g{number}")
    world.now_ms += world.config.offsets_retention_ms + 1
    assert len(list(steps(world, probe))) > 60
    assert world.coordinator.statistics().groups == 0
    assert probe.most_calls["work"] < BUDGET_CALLS


def test_offsets_that_wait_for_their_tombstones_are_not_buried_twice() -> None:
    world = GroupWorld(offsets_topic_num_partitions=1)
    world.commit({("t", n): 1 for n in range(1_000)})
    world.now_ms += world.config.offsets_retention_ms + 1
    world.log.hold = True
    world.advance(0)
    buried = [record.key for _, records, _ in world.log.held for record in records]
    assert len(buried) == len(set(buried)) == 1_000
    world.log.hold = False
    while world.log.held:
        world.log.release()
    world.advance(world.config.offsets_retention_check_interval_ms)
    assert world.coordinator.statistics().groups == 0


def test_offsets_of_a_deleted_topic_go_in_steps(probe: StarvationProbe) -> None:
    world = GroupWorld()
    world.commit({("t", n): 1 for n in range(MANY)})
    world.commit({("t", 0): 1, ("u", 0): 1}, group_id="other")
    gone = [TopicPartition("t", n) for n in range(MANY)]
    with probe.counting():
        for _ in world.coordinator.offsets.delete_topics(gone):
            probe.end("deletion")
    assert probe.most_calls["deletion"] < BUDGET_CALLS
    assert world.fetched() == {}
    world.group_id = "other"
    assert world.fetched() == {("u", 0): 1}


def test_a_group_with_many_offsets_is_thinned_out_before_it_goes(
    probe: StarvationProbe,
) -> None:
    world = GroupWorld()
    world.commit({("t", n): 1 for n in range(MANY)})
    offsets = world.coordinator.offsets
    with probe.counting():
        while (thinning := offsets.thin_out(world.group_id)) is not None:
            assert thinning.answer() is ErrorCode.none
            probe.end("thinning")
        assert offsets.delete_group(world.group_id).answer() is ErrorCode.none
        probe.end("deletion")
    assert max(probe.most_calls.values()) < BUDGET_CALLS
    assert world.coordinator.describe(world.group_id) is None
