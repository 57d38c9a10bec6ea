"""Handlers that share a flush: a handler needs a seat again after the flush."""

from __future__ import annotations

import pytest
import trio

from broker.log.steps import BlockingCall
from broker.node.flush_shell import SharedFlush
from schedulers import POLICIES
from tests.broker.log.witness import NOW_MS, batch, open_log
from tests.planes.simulation import US, World, in_virtual_time

HANDLERS = 40


@pytest.mark.parametrize("policy", POLICIES)
def test_all_who_want_a_flush_get_one_whoever_goes_first(policy: str) -> None:
    """Swarm seed 779: under ps, later handlers took all seats; an early one starved."""
    log = open_log(flush_messages=1)

    async def call_later(call: BlockingCall) -> None:
        await trio.sleep(0.001)
        call()

    flush = SharedFlush(lambda: NOW_MS, call_later)

    async def main(clock: object) -> World:
        world = World(clock, policy, seats=2)

        async def produce() -> None:
            world.work(50 * US)
            end = log.append(batch([b"v"]), 0, NOW_MS).last_offset + 1
            await flush.by_handler(log)
            assert log.recovery_point >= end

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(world.dispatcher.run)
                for number in range(HANDLERS):
                    world.offer(produce, level=number % 4)
                    await trio.sleep(0.0003)
                await world.settle()
                nursery.cancel_scope.cancel()
        return world

    world = in_virtual_time(main)
    assert sorted(world.results) == list(range(HANDLERS))
    assert log.recovery_point == HANDLERS
