"""Bounded slices for large controller requests, which are applied atomically.

Calls and lines are counted as in `test_largest_requests`.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrRequest
from broker.protocol.schemas.stop_replica_schema import StopReplicaRequest
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.wire.codec import decode_response, encode_request
from simulation.virtual_time.apis import receive_frame
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from tests.broker.apis import requests
from tests.fuzzing import test_largest_requests
from tests.fuzzing.onslaught import Onslaught
from tests.fuzzing.starvation import StarvationProbe

probe = test_largest_requests.probe
PARTITIONS = 3_000
# Partitions with logs: even in memory, creating them is slow.
HELD = 500
TOPIC_ID = UUID(int=1)
Command = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


def enlarged(command: Any, count: int, topics: int) -> Any:
    """Return a command of one partition extended to ``count``, divided among topics."""
    (topic,) = command.topic_states
    (state,) = topic.partition_states
    id_too = topic.topic_id is not None if hasattr(topic, "topic_id") else False
    return dataclasses.replace(
        command,
        topic_states=tuple(
            dataclasses.replace(
                topic,
                topic_name=f"t{number}",
                partition_states=tuple(
                    dataclasses.replace(state, partition_index=index)
                    for index in range(count // topics)
                ),
                **({"topic_id": UUID(int=number + 1)} if id_too else {}),
            )
            for number in range(topics)
        ),
    )


def commands(epoch: int, count: int, topics: int) -> dict[ApiKey, Command]:
    """Return a command of each API with a leader epoch."""
    t = ("t", 0)
    made = {
        ApiKey.LEADER_AND_ISR: requests.leader_and_isr(
            t, leader=0, leader_epoch=epoch, replicas=(0,), topic_id=TOPIC_ID
        ),
        ApiKey.UPDATE_METADATA: requests.update_metadata(
            t, leader=0, leader_epoch=epoch, replicas=(0,), topic_id=TOPIC_ID
        ),
        ApiKey.STOP_REPLICA: requests.stop_replica(t, leader_epoch=epoch, delete=False),
    }
    return {key: enlarged(command, count, topics) for key, command in made.items()}


async def send(
    world: Onslaught, key: ApiKey, version: int, command: Command
) -> ErrorCode:
    """Send a command; return the response's top-level error code."""
    stream = world.connect()
    frame = encode_request(key, version, 7, "controller", command.to_wire(version))
    await stream.send_all(frame)
    _, answer = decode_response(key, version, await receive_frame(stream))
    await stream.aclose()
    code: ErrorCode = answer.error_code
    return code


@pytest.mark.parametrize(
    ("key", "version", "topics"),
    [
        (ApiKey.LEADER_AND_ISR, 1, HELD),
        (ApiKey.LEADER_AND_ISR, 7, HELD),
        (ApiKey.LEADER_AND_ISR, 7, 1),
        (ApiKey.UPDATE_METADATA, 2, HELD),
        (ApiKey.UPDATE_METADATA, 8, HELD),
        (ApiKey.UPDATE_METADATA, 8, 1),
        (ApiKey.STOP_REPLICA, 0, HELD),
        (ApiKey.STOP_REPLICA, 2, 1),
        (ApiKey.STOP_REPLICA, 4, HELD),
    ],
)
def test_no_slice_of_a_controllers_request_is_long(
    probe: StarvationProbe, key: ApiKey, version: int, topics: int
) -> None:
    """The first command creates the partitions, the second one changes them."""

    async def main(clock: VirtualClock) -> None:
        world = Onslaught(clock, 1, **test_largest_requests.SETTINGS)
        async with world.serving():
            count = HELD if key is ApiKey.LEADER_AND_ISR else PARTITIONS
            for epoch in (1, 2):
                # StopReplica finds none of its partitions in either epoch.
                with probe.counting(items=True):
                    command = commands(epoch, count, topics)[key]
                    assert await send(world, key, version, command) == ErrorCode.none

    run_virtual(main, seed=1)
    assert probe.most_calls[key.name] <= test_largest_requests.CALLS_MAX
    assert probe.most_items[key.name] <= test_largest_requests.LINES_MAX


def test_a_reader_amid_an_update_sees_all_of_it_or_nothing() -> None:
    seen: list[tuple[int, ...]] = []

    async def main(clock: VirtualClock) -> None:
        world = Onslaught(clock, 1, **test_largest_requests.SETTINGS)
        async with world.serving():
            key = ApiKey.UPDATE_METADATA
            cache = world.broker.metadata_cache
            for epoch in (1, 2):
                command = commands(epoch, 400, 4)[key]
                assert isinstance(command, UpdateMetadataRequest)
                steps = world.broker.updating_metadata(command)
                for _ in steps:
                    cache.check()
                    epochs = {
                        state.leader_epoch
                        for topic in cache.topics()
                        for state in topic.partitions.values()
                    }
                    seen.append(tuple(sorted(epochs)))
            # A topic forgotten during an update that does not name it stays forgotten.
            other = cache.topic("t3")
            assert other is not None
            steps = world.broker.updating_metadata(commands(3, 300, 3)[key])
            next(steps)
            cache.remove(other)
            for _ in steps:
                assert cache.topic("t3") is None
            assert cache.topic("t3") is None
            # A cancelled update changes nothing.
            steps = world.broker.updating_metadata(commands(4, 300, 3)[key])
            next(steps)
            steps.close()
            cache.check()
            first = cache.topic("t0")
            assert first is not None
            assert first.partitions[0].leader_epoch == 3
            await trio.lowlevel.checkpoint()

    run_virtual(main, seed=1)
    assert len(seen) > 10
    assert set(seen) == {(), (1,)}


@pytest.mark.parametrize("version", [1, 7])
def test_no_slice_of_a_leader_and_isr_for_others_is_long(
    probe: StarvationProbe, version: int
) -> None:
    """The broker is no replica of these partitions, so it creates no log."""

    async def main(clock: VirtualClock) -> None:
        world = Onslaught(clock, 1, **test_largest_requests.SETTINGS)
        async with world.serving():
            command = enlarged(
                requests.leader_and_isr(
                    ("t", 0), leader=5, leader_epoch=1, isr=(5,), topic_id=TOPIC_ID
                ),
                PARTITIONS,
                1,
            )
            with probe.counting(items=True):
                code = await send(world, ApiKey.LEADER_AND_ISR, version, command)
            assert code == ErrorCode.none

    run_virtual(main, seed=1)
    name = ApiKey.LEADER_AND_ISR.name
    assert probe.most_calls[name] <= test_largest_requests.CALLS_MAX
    assert probe.most_items[name] <= test_largest_requests.LINES_MAX
