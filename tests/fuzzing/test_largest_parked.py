"""Bounded slices for large parked requests, also when they complete.

A Produce with acks=all and a Fetch park over 2,000 partitions. Then all partitions
change at once, or the deadline expires. The partitions are led here; their follower
fetches only when the test makes it. Members of a group park until all have joined.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from tests.broker.apis import requests
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    produce_fields,
)
from tests.fuzzing import test_largest_requests
from tests.fuzzing.onslaught import Onslaught
from tests.fuzzing.starvation import StarvationProbe
from tests.fuzzing.test_controllers_largest import TOPIC_ID, enlarged, send
from tests.virtual.kafka import ask, ask_nothing

probe = test_largest_requests.probe
pytestmark = pytest.mark.slow
FOLLOWER = 5
PARTITIONS = 2_000
MEMBERS = 1_000
CALLS_MAX = test_largest_requests.CALLS_MAX
BYTES_MAX = test_largest_requests.BYTES_MAX
Scene = Callable[[Onslaught], Awaitable[None]]


def longest(probe: StarvationProbe, scene: Scene) -> dict[str, int]:
    """Play a scene; return the slices that exceed the budget."""

    async def main(clock: VirtualClock) -> None:
        world = Onslaught(clock, 1, **test_largest_requests.SETTINGS)
        async with world.serving():
            await test_largest_requests.prepared(world, 1)
            state = requests.leader_and_isr(
                ("t", 0), leader=0, isr=(0, FOLLOWER), leader_epoch=1, topic_id=TOPIC_ID
            )
            command = enlarged(state, PARTITIONS, 1)
            code = await send(world, ApiKey.LEADER_AND_ISR, 7, command)
            assert code == ErrorCode.none
            with probe.counting(octets=True):
                await scene(world)

    run_virtual(main, seed=1)
    calls = {k: it for k, it in probe.most_calls.items() if it > CALLS_MAX}
    sizes = {k: it for k, it in probe.most_bytes.items() if it > BYTES_MAX}
    return calls | sizes


def everywhere(value: Any) -> dict[tuple[str, int], Any]:
    return {("t0", index): value for index in range(PARTITIONS)}


async def produced(world: Onslaught, timeout_ms: int, codes: list[ErrorCode]) -> None:
    stream = world.connect()
    fields = produce_fields(everywhere(batch(b"x")), acks=-1, timeout_ms=timeout_ms)
    answer = await ask(stream, ApiKey.PRODUCE, 8, **fields)
    codes += [it.error_code for it in answer.responses[0].partition_responses]
    await stream.aclose()


async def followed(world: Onslaught, offset: int) -> None:
    stream = world.connect()
    fields = fetch_fields(everywhere(offset), replica_id=FOLLOWER, min_bytes=0)
    await ask(stream, ApiKey.FETCH, 11, **fields)
    await stream.aclose()


@pytest.mark.parametrize("replicated", [True, False])
def test_a_produce_that_waits_for_a_follower(
    probe: StarvationProbe, replicated: bool
) -> None:
    codes: list[ErrorCode] = []

    async def scene(world: Onslaught) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produced, world, 30_000, codes)
            await trio.sleep(5)
            assert not codes
            if replicated:
                await followed(world, 1)

    assert longest(probe, scene) == {}
    code = ErrorCode.none if replicated else ErrorCode.request_timed_out
    assert codes == [code] * PARTITIONS


def test_a_fetch_that_waits_for_records(probe: StarvationProbe) -> None:
    answers: list[Any] = []

    async def fetched(world: Onslaught) -> None:
        stream = world.connect()
        fields = fetch_fields(everywhere(0), min_bytes=1 << 30, max_wait_ms=30_000)
        answers.append(await ask(stream, ApiKey.FETCH, 11, **fields))
        await stream.aclose()

    async def scene(world: Onslaught) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(fetched, world)
            await trio.sleep(5)
            await produced_and_followed(world)
            assert not answers

    assert longest(probe, scene) == {}
    assert len(answers) == 3


async def produced_and_followed(world: Onslaught) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produced, world, 30_000, [])
        await trio.sleep(1)
        await followed(world, 1)


@pytest.mark.parametrize("ends", ["assigned", "expired", "hung up"])
def test_members_that_wait_for_each_other(probe: StarvationProbe, ends: str) -> None:
    """All join; then the leader assigns, sessions expire or connections close."""
    protocols = [{"name": "range", "metadata": bytes(100)}]
    joined: list[Any] = []
    synced: list[Any] = []
    world_of: list[Onslaught] = []

    async def member(world: Onslaught, number: int) -> None:
        stream = world.connect()
        fields = {"group_id": "g", "protocol_type": "consumer", "protocols": protocols}
        times = {"session_timeout": SECONDS_30, "rebalance_timeout": SECONDS_30}
        # Version 3 is the last that needs no member id.
        if ends == "hung up":
            await ask_nothing(stream, ApiKey.JOIN_GROUP, 3, **fields, **times)
            await trio.sleep(1)
            await stream.aclose()
            return
        told = await ask(stream, ApiKey.JOIN_GROUP, 3, **fields, **times)
        joined.append(told)
        if ends == "assigned":
            await trio.sleep(1)
            plan = [
                {"member_id": each.member_id, "assignment": bytes(100)}
                for each in told.members
            ]
            generation = {"group_id": "g", "generation_id": told.generation_id}
            mine = {**generation, "member_id": told.member_id, "assignments": plan}
            synced.append(await ask(stream, ApiKey.SYNC_GROUP, 3, **mine))
        await stream.aclose()

    async def scene(world: Onslaught) -> None:
        world_of.append(world)
        async with trio.open_nursery() as nursery:
            for number in range(MEMBERS):
                nursery.start_soon(member, world, number)
        if ends != "assigned":
            await trio.sleep(120)

    assert longest(probe, scene) == {}
    assert len(joined) == (0 if ends == "hung up" else MEMBERS)
    assert len(synced) == (MEMBERS if ends == "assigned" else 0)
    assert all(each.assignment == bytes(100) for each in synced)
    (world,) = world_of
    group = world.broker.groups.describe("g")
    left = len(group.roster) if group is not None else 0
    assert left == (MEMBERS if ends == "assigned" else 0)
