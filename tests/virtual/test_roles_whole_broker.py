"""Roles under load and in a cluster: whole brokers in virtual time."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import encode_request
from tests.broker.apis.requests import leader_and_isr, stop_replica
from tests.virtual.hosting import SLICE_NS, Frames, frame
from tests.virtual.kafka import answer
from tests.virtual.members import Members, with_members
from tests.virtual.world import LEADER_AND_ISR, MS, World, in_world

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    "doorkeeper.controller.listeners": "INSIDE",
    "doorkeeper.reader": "class-aware",
    "doorkeeper.admission": "exempt",
    # Sockets are polled after every slice.
    "doorkeeper.quantum.us": str(SLICE_NS // 1000),
}
FLOODS = {
    "fetches of replica 0": frame(struct.pack(">i", 0), api_key=1, version=11),
    "commands": frame(api_key=LEADER_AND_ISR[0], version=LEADER_AND_ISR[1]),
}
# Larger than the epoch of any controller or broker.
EPOCHS = {"controller_epoch": 2**31 - 1, "broker_epoch": 2**62}


@pytest.mark.parametrize("scheduler", ["priority", "wfq"])
@pytest.mark.parametrize("flood", FLOODS)
def test_no_flood_of_a_client_delays_control(scheduler: str, flood: str) -> None:
    """A command waits for the slices of one flood request, not of fifty."""

    async def flooding(world: World) -> None:
        stream = world.connect()
        frames = Frames(stream)
        while True:
            await stream.send_all(FLOODS[flood])
            await frames.next()

    async def scenario(world: World) -> int:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(flooding, world)
            await trio.sleep(0.01)
            controller = world.connect("INSIDE")
            asked = []
            for _ in range(10):
                asked.append(await world.ask(controller, LEADER_AND_ISR))
                await trio.sleep(0.002)
            nursery.cancel_scope.cancel()
        return max(world.answered_ns[it] - world.sent_ns[it] for it in asked)

    worst_ns = in_world(scenario, {**SETTINGS, "doorkeeper.scheduler": scheduler})
    assert worst_ns <= 3 * SLICE_NS < MS


def test_a_lie_about_epochs_is_remembered_by_no_member() -> None:
    """An authorized peer sends epochs that no broker has; the cluster is unaffected.

    Afterwards the brokers obey their controller, and it accepts their proposals.
    """

    async def scenario(members: Members) -> None:
        created = await members.create("t")
        assert created.error_code is ErrorCode.none
        await members.until(lambda: members.isr("t") == {0, 1, 2})
        for number in members.alive:
            await lie(members, number)
        others = {members.leader("t"), members.controller}
        victim = next(it for it in members.alive if it not in others)
        await members.kill(victim)
        await members.until(lambda: members.isr("t") == {0, 1, 2} - {victim})
        await members.start(victim)
        await members.until(lambda: members.isr("t") == {0, 1, 2})
        epochs = {members.broker(it).controller_epoch for it in members.alive}
        assert epochs == {1}

    with_members(scenario)


async def lie(members: Members, number: int) -> None:
    """Send a member commands of a controller that has never existed.

    They concern a partition that the member does not have.
    """
    elsewhere = ("elsewhere", 0)
    lead = leader_and_isr(elsewhere, leader=7, leader_epoch=0, isr=(7,), **EPOCHS)
    stop = stop_replica(elsewhere, leader_epoch=0, delete=False, **EPOCHS)
    commands: tuple[tuple[ApiKey, Any], ...] = (
        (ApiKey.LEADER_AND_ISR, lead),
        (ApiKey.STOP_REPLICA, stop),
    )
    stream = await members.connect("127.0.0.1", 9092 + number)
    for key, command in commands:
        await stream.send_all(encode_request(key, 4, 1, "liar", command.to_wire(4)))
        answered = await answer(stream, key, 4)
        assert answered.error_code is ErrorCode.none
    await stream.aclose()
