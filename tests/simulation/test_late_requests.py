"""Requests of a deposed controller arrive late: no broker obeys them.

Three brokers under ZooKeeper. What the controller tells the others is held on its way,
it is cut off from ZooKeeper, another one is elected and heard, and then the line is
back. Kafka's brokers refuse whoever has an older epoch than they have heard of.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pytest
import trio

from broker.cluster.replica_manager import ReplicaManager
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from experiments.simulation.cluster import LATENCY_NS, Cluster
from experiments.simulation.control.zookeeper_control import ZooKeeperControl
from experiments.simulation.network_faults import HostNetwork, Link
from experiments.worlds.virtual.determinism import VirtualClock, run_virtual

SEEDS: Final = range(3)
BROKERS: Final = range(3)
PARTITIONS: Final = 2
SESSION_MS: Final = 1500
PATIENCE_S: Final = 60


class Told(NamedTuple):
    """A request of the controller of ``epoch``, and what became of it.

    ``heard``: the latest epoch of which the broker had heard when it came.
    """

    epoch: int
    heard: int
    is_refused: bool


@contextmanager
def overheard(patch: pytest.MonkeyPatch) -> Iterator[list[Told]]:
    """Write down all that brokers are told by controllers."""
    told: list[Told] = []
    heard: Counter[ReplicaManager] = Counter()
    change, update = ReplicaManager.change_leadership, Broker.update_metadata

    def note(by: ReplicaManager, epoch: int, before: int, error: ErrorCode) -> None:
        told.append(Told(epoch, before, error is ErrorCode.stale_controller_epoch))
        heard[by] = max(heard[by], epoch)

    async def change_leadership(self: ReplicaManager, request: Any) -> Any:
        before = heard[self]
        answer = await change(self, request)
        note(self, request.controller_epoch, before, answer.error_code)
        return answer

    def update_metadata(self: Broker, request: Any) -> ErrorCode:
        before, error = heard[self.replicas], update(self, request)
        note(self.replicas, request.controller_epoch, before, error)
        return error

    with patch.context() as here:
        here.setattr(ReplicaManager, "change_leadership", change_leadership)
        here.setattr(Broker, "update_metadata", update_metadata)
        yield told


class Drawn:
    """A cluster, and deposals of its controller at drawn moments."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self.rng = random.Random(seed)
        self.network = HostNetwork(
            now_ns=clock.now_ns, rng=random.Random(seed), latency_ns=LATENCY_NS
        )
        self.control = ZooKeeperControl(
            self.network, clock, random.Random(seed), session_timeout_ms=SESSION_MS
        )
        self.cluster = Cluster(
            clock,
            random.Random(seed),
            count=len(BROKERS),
            control=self.control,
            network=self.network,
            settings={"replica.lag.time.max.ms": "800"},
        )

    async def until(self, condition: Any) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 nothing tells of all this
                await trio.sleep(0.02)

    def controllers(self) -> list[int]:
        """Return who believes to be controller."""
        found = []
        for each in self.cluster.up:
            try:
                each.broker.coordinator.check_is_controller()
            except Exception:
                continue
            found.append(each.id)
        return found

    def is_settled(self) -> bool:
        return (
            len(self.controllers()) == 1
            and self.control.live() == set(BROKERS)
            and all(
                set(it.isr) == set(BROKERS) for it in self.control.standings().values()
            )
        )

    async def begin(self) -> None:
        for number in BROKERS:
            await self.cluster.start(number)
        await self.until(lambda: self.control.live() == set(BROKERS))
        await self.control.create("t", [tuple(BROKERS)] * PARTITIONS, {})
        await self.until(self.is_settled)

    async def depose(self) -> None:
        """Hold what the controller says, elect another, and let it be heard."""
        rng, hosts = self.rng, [each.host.name for each in self.cluster.brokers]
        (old,) = self.controllers()
        others = [each for each in BROKERS if each != old]
        to_others = [Link(hosts[old], hosts[each]) for each in others]
        to_zookeeper = [Link(hosts[old], self.control.host)]
        self.network.silence(to_others)
        # It has something to say: who leads, now that one is gone, or who may again.
        victim = rng.choice(others)
        await self.cluster.kill(victim)
        await trio.sleep(rng.uniform(0, 2.5))
        if rng.random() < 0.5:
            await self.control.prefer(TopicPartition("t", 0))
        self.network.silence(to_zookeeper)
        await self.until(lambda: set(self.controllers()) - {old})
        await trio.sleep(rng.uniform(0, 1))
        held = to_others + to_zookeeper
        rng.shuffle(held)
        for link in held:
            self.network.hear([link])
            await trio.sleep(rng.uniform(0, 0.3))
        await self.cluster.start(victim)
        await self.until(self.is_settled)


def live_through(seed: int) -> None:
    async def main(clock: VirtualClock) -> None:
        drawn = Drawn(clock, seed)
        async with trio.open_nursery() as nursery:
            await nursery.start(drawn.cluster.run)
            await drawn.begin()
            for _ in range(2):
                await drawn.depose()
            nursery.cancel_scope.cancel()

    print(f"seed {seed}")
    run_virtual(main, seed=seed)


def test_no_broker_obeys_an_older_controller_than_it_has_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = 0
    for seed in SEEDS:
        with overheard(monkeypatch) as told:
            live_through(seed)
        for each in told:
            if each.epoch < each.heard:
                late += 1
                assert each.is_refused, (seed, each)
    # Some have come late, or it would show nothing.
    assert late > 2
