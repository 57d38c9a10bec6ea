"""Znodes of a simulated cluster have timestamps of its brokers' clocks.

A broker deletes notifications of altered configs that are older than 15 minutes
(KIP-21). With other timestamps, they would be deleted before all brokers have read
them.
"""

from __future__ import annotations

import random

import trio

from broker.zookeeper.zookeeper_session import ZooKeeperSession
from simulation.control.zookeeper_control import ZooKeeperControl
from simulation.virtual_time.apis import START_MS
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.network_faults import HostNetwork

ALIVE_S = 60


def test_a_znode_is_dated_by_the_time_of_day() -> None:
    async def scenario(clock: VirtualClock) -> tuple[int, float]:
        network = HostNetwork(
            now_ns=clock.now_ns, rng=random.Random(1), latency_ns=(20_000, 400_000)
        )
        control = ZooKeeperControl(
            network, clock, random.Random(2), session_timeout_ms=6000
        )
        session = ZooKeeperSession(
            control.settings(0)["zookeeper.connect"],
            timeout_ms=6000,
            connect=network.host("broker").connect,
            rng=random.Random(3),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(network.run)
            await nursery.start(control.run)
            with trio.fail_after(2 * ALIVE_S):
                await nursery.start(session.run)
                await trio.sleep(ALIVE_S)
                await session.create("/notice")
                found = await session.get("/notice")
            nursery.cancel_scope.cancel()
        return found.stat.ctime_ms, clock.now_ms()

    dated_ms, now_ms = run_virtual(scenario, seed=1)
    assert now_ms >= 1000 * ALIVE_S
    assert 0 <= START_MS + now_ms - dated_ms < 1000
