"""No step of a controller's decision grows with the number of partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.controller.decisions import PAUSE_ITEMS, Decisions, Pause, Send
from broker.controller.elections import ElectionType
from broker.protocol.topic_partition import TopicPartition
from tests.broker.controller.world import World
from tests.fuzzing.starvation import StarvationProbe

# A step of a scan handles `SCAN_ITEMS` partitions with up to nine calls each. Each
# decision takes some sixty calls.
BUDGET_CALLS = 12_000


@pytest.fixture(params=[2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def partitions(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def world(partitions: int) -> World:
    world = World(3)
    for number in (1, 2, 3):
        world.start_broker(number)
    world.elect_controller()
    replicas = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    world.create_topic("t", *(replicas[n % 3] for n in range(partitions)))
    return world


def longest(world: World, steps: Decisions) -> tuple[int, int]:
    """Carry out a decision; return the calls of its longest step, and its pauses."""
    probe, pauses, found = StarvationProbe(), 0, None
    while True:
        try:
            with probe.counting():
                decision = next(steps) if found is None else steps.send(found)
                probe.end("step")
        except StopIteration:
            return probe.most_calls["step"], pauses
        pauses += isinstance(decision, Pause)
        found = world._carry_out(decision)


def events(world: World, partitions: int) -> Iterator[tuple[str, Decisions]]:
    """Yield decisions about all partitions, or about all that a broker leads."""
    yield "a broker fails", world.core.brokers_changed(without(world, 1))
    yield "it is back", world.core.brokers_changed(dict(world.znodes.brokers))
    keys = [TopicPartition("t", index) for index in range(partitions)]
    yield "elections", world.core.elect_leaders(keys, ElectionType.PREFERRED)
    yield "it stops", world.core.controlled_shutdown(2, -1)
    yield "leaders are balanced", world.core.auto_rebalance()
    yield "the topic is deleted", world.core.deletions_requested(("t",))


def without(world: World, broker: int) -> dict:
    return {it: each for it, each in world.znodes.brokers.items() if it != broker}


def test_no_step_of_a_decision_about_many_partitions_is_long(
    world: World, partitions: int
) -> None:
    beyond = {}
    for what, steps in events(world, partitions):
        calls, pauses = longest(world, steps)
        assert pauses > partitions // 3 // PAUSE_ITEMS, what
        if calls > BUDGET_CALLS:
            beyond[what] = calls
    assert beyond == {}
    assert any(isinstance(it, Send) for it in world.decisions)
