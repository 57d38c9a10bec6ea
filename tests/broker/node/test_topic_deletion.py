"""A confirmed topic deletion survives a power loss: logs and offsets are gone.

The next start completes an interrupted deletion, offsets included.
"""

from __future__ import annotations

import random

import pytest

from broker.disk.memory import Crashed, Faults
from broker.protocol.api_keys import ApiKey
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30, values_of
from tests.seeds import seeds

SETTINGS = {
    "log.dirs": "/data/one,/data/two,/data/three",
    "offsets.topic.num.partitions": "3",
}


def with_offsets() -> World:
    """Return a broker whose group ``g`` has committed offsets of a topic ``t``."""
    world = World(SETTINGS)
    world.create("t", 3)
    for partition in range(3):
        world.produce("t", b"old", partition=partition)
    world.send(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
    world.pass_ms(0)
    committed = [{"partition_index": n, "committed_offset": 1} for n in range(3)]
    topic = {"name": "t", "partitions": committed}
    answer = world.send(
        ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id=-1, topics=[topic]
    )
    assert [each.error_code for each in answer.topics[0].partitions] == [NONE] * 3
    for log in world.broker.logs.logs.values():
        log.durability.flush(log.segments.active, log.log_end_offset)
    return world


def offsets(world: World) -> list[int]:
    wanted = {"name": "t", "partition_indexes": [0, 1, 2]}
    answer = world.send(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[wanted])
    return [each.committed_offset for each in answer.topics[0].partitions]


def delete(world: World) -> None:
    answer = world.send(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t"}], timeout=SECONDS_30
    )
    assert answer.responses[0].error_code is NONE


def assert_nothing_left(world: World) -> None:
    assert "t" not in world.broker.coordinator.admin.topics
    assert not any(topic == "t" for topic, _ in world.broker.logs.logs)
    world.create("t", 3)
    assert offsets(world) == [-1, -1, -1]
    assert values_of(world.fetch("t").records or b"") == []
    world.check()


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_nothing_comes_back_after_a_loss_of_power(seed: int) -> None:
    world = with_offsets()
    assert offsets(world) == [1, 1, 1]
    delete(world)
    rng = random.Random(seed)
    assert_nothing_left(World(SETTINGS, world.storage.after_power_loss(rng)))


@pytest.mark.parametrize("loss", ["kill", "power"])
def test_a_deletion_that_was_cut_short_is_finished_or_was_never_begun(
    loss: str,
) -> None:
    begun = 0
    for fail_at in range(1, 1000):
        world = with_offsets()
        world.storage.faults = Faults(fail_at, crash=True)
        try:
            delete(world)
        except Crashed:
            pass
        else:
            break
        rng = random.Random(fail_at)
        storage = world.storage
        left = storage.after_kill() if loss == "kill" else storage.after_power_loss(rng)
        after = World(SETTINGS, left)
        if "t" in after.broker.coordinator.admin.topics:
            assert offsets(after) == [1, 1, 1]
            delete(after)
        else:
            begun += 1
        assert_nothing_left(after)
    assert begun > 3
