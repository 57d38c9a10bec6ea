"""Fault injector of a scenario: each fault begins and ends at its time.

A fault that cannot happen is skipped, such as a kill of a stopped broker. All faults
end with the scenario's time. Brokers that stopped because of their disks are then
started again, the cluster is healed, and progress can be demanded.

A power loss destroys unflushed data, which Kafka tolerates only while other replicas
have it. Unless every append is flushed, power therefore fails at a broker only if each
of its partitions has another replica in sync on a healthy broker: one that runs, that
the controller reaches, and whose disk is not about to fail.

Until the broker is in sync again, no other broker is killed or cut off. Otherwise a
controller could lose the others first and the broker without power last. It would keep
that broker as the last ISR member, and elect it when it returns without its records, as
Kafka's does.

Under ZooKeeper power never fails in this mode. A controller that is elected after the
broker has returned does not know of its absence and keeps it as leader, as in Kafka;
KRaft knows, by KIP-966.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import trio

from broker.protocol.topic_partition import TopicPartition
from simulation.cluster import Cluster, Control, SimulatedBroker
from simulation.swarm.scenarios import Fault, Scenario
from simulation.virtual_time.network_faults import Link, between

_SLOW_FACTOR: Final = 100
_CLOCK_JUMP_MS: Final = 60_000


class Nemesis:
    """Injects faults; ``hosts`` are all hosts, ``replace`` kills clients."""

    def __init__(
        self,
        scenario: Scenario,
        cluster: Cluster,
        control: Control,
        hosts: Sequence[str],
        replace: Callable[[str, int], None],
    ) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._control = control
        self._hosts = hosts
        self._replace = replace
        self._fragile: SimulatedBroker | None = None
        self._begins_s = 0.0
        self._inflictions: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "kill": self._kill,
            "bounce": self._bounce,
            "power": self._power,
            "isolate": self._isolate,
            "deafen": self._deafen,
            "cut": self._cut,
            "slow": self._slow,
            "stall": self._stall,
            "full": self._full,
            "device": self._device,
            "prefer": self._prefer,
            "fail-over": self._fail_over,
            "producer": self._client,
            "member": self._client,
            "transactor": self._client,
            "usurp": self._client,
            "clock": self._clock,
        }
        # The largest deviation of any wall clock from the true time so far.
        self._clocks_ahead_ms = scenario.clock_skew_ms

    async def run(self) -> None:
        """Inject all faults; return after their end, when brokers may be down.

        Wall clocks then agree, and none was set back for that. Time-outs are counted by
        the clock of their coordinator's host, and a step back would delay them by
        minutes.
        """
        self._begins_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for fault in self._scenario.faults:
                await trio.sleep_until(self._begins_s + fault.at_ms / 1000)
                nursery.start_soon(self._inflictions[fault.kind], fault)
            await trio.sleep_until(self._begins_s + self._scenario.lasts_ms / 1000)
        for each in self._cluster.brokers:
            each.wall_clock = replace(each.wall_clock, ahead_ms=self._clocks_ahead_ms)

    async def bring_back(self) -> None:
        """Start brokers that stop because of their disks, after their shutdown.

        Returns when all run.
        """
        for each in self._cluster.brokers:
            if each.disk.has_failed:
                await each.ended.wait()
            if each.has_stopped:
                await self._cluster.start(each.id)

    def _ends_s(self, fault: Fault) -> float:
        ends_ms = min(fault.at_ms + fault.lasts_ms, self._scenario.lasts_ms)
        return self._begins_s + ends_ms / 1000

    # ---- brokers ------------------------------------------------------------------

    async def _kill(self, fault: Fault) -> None:
        await self._down(fault, self._ends_s(fault), power_fails=False)

    async def _bounce(self, fault: Fault) -> None:
        await self._down(fault, trio.current_time(), power_fails=False)

    async def _power(self, fault: Fault) -> None:
        if self._scenario.zookeeper and not self._scenario.flushes:
            return
        await self._down(fault, self._ends_s(fault), power_fails=True)

    async def _down(self, fault: Fault, until_s: float, *, power_fails: bool) -> None:
        each = self._cluster.brokers[fault.broker]
        if not each.is_up or not self._may_harm(each):
            return
        if power_fails and not self._may_lose_power(each):
            return
        if power_fails and not self._scenario.flushes:
            self._fragile = each
        await self._cluster.kill(each.id, power_fails=power_fails)
        await trio.sleep_until(until_s)
        await self._cluster.start(each.id)

    def _may_harm(self, each: SimulatedBroker) -> bool:
        """Return whether this broker may fail without a loss of committed records."""
        if self._fragile is not None and self._is_in_sync(self._fragile):
            self._fragile = None
        return self._fragile is None or self._fragile is each

    def _may_lose_power(self, each: SimulatedBroker) -> bool:
        return self._scenario.flushes or self._is_dispensable(each)

    def _is_in_sync(self, each: SimulatedBroker) -> bool:
        """Return whether a broker runs, is in all ISRs, and has all their records.

        The controller may not have detected yet that the broker was away.
        """
        return each.is_up and all(
            each.id in standing.isr and self._has_all(each, key)
            for key, standing in self._control.standings().items()
            if each.id in standing.replicas
        )

    def _has_all(self, each: SimulatedBroker, key: TopicPartition) -> bool:
        """Return whether a broker has all of a partition's known committed records."""
        replicas = {
            other.id: other.broker.replicas.partitions[key]
            for other in self._cluster.up
            if key in other.broker.replicas.partitions
        }
        committed = max((it.high_watermark for it in replicas.values()), default=0)
        ours = replicas.get(each.id)
        return ours is not None and ours.log.log_end_offset >= committed

    def _is_dispensable(self, each: SimulatedBroker) -> bool:
        """Return whether other healthy brokers have all its committed records."""
        whole = {
            other.id
            for other in self._cluster.up
            if other is not each and self._is_whole(other)
        }
        return all(
            whole.intersection(state.isr)
            for state in self._control.standings().values()
            if each.id in state.replicas
        )

    def _is_whole(self, each: SimulatedBroker) -> bool:
        """Return whether the controller can keep a running broker in the cluster."""
        links = between([each.host.name], [self._control.host])
        reached = all(self._cluster.network.reaches(link) for link in links)
        return reached and not each.disk.is_to_fail

    async def _clock(self, fault: Fault) -> None:
        """Set a broker's wall clock, forwards or back."""
        await trio.lowlevel.checkpoint()
        each = self._cluster.brokers[fault.broker]
        rng = random.Random(fault.chance)
        ahead_ms = rng.randint(-_CLOCK_JUMP_MS, _CLOCK_JUMP_MS)
        each.wall_clock = replace(each.wall_clock, ahead_ms=ahead_ms)
        self._clocks_ahead_ms = max(self._clocks_ahead_ms, abs(ahead_ms))

    # ---- links --------------------------------------------------------------------

    async def _isolate(self, fault: Fault) -> None:
        """Separate a broker from all hosts, or from some."""
        rng = random.Random(fault.chance)
        others = self._others(fault)
        some = others if rng.random() < 0.5 else rng.sample(others, len(others) // 2)
        await self._silence(fault, between([self._host(fault)], some))

    async def _deafen(self, fault: Fault) -> None:
        """Cut a broker off in one direction, sending or receiving."""
        host, others = self._host(fault), self._others(fault)
        links = [Link(other, host) for other in others]
        if fault.chance % 2:
            links = [Link(host, other) for other in others]
        await self._silence(fault, links)

    async def _silence(self, fault: Fault, links: Sequence[Link]) -> None:
        await trio.lowlevel.checkpoint()
        if not self._may_harm(self._cluster.brokers[fault.broker]):
            return
        self._cluster.network.silence(links)
        await trio.sleep_until(self._ends_s(fault))
        self._cluster.network.restore(links)

    async def _cut(self, fault: Fault) -> None:
        await trio.lowlevel.checkpoint()
        self._cluster.network.cut_between([self._host(fault)], self._others(fault))

    async def _slow(self, fault: Fault) -> None:
        links = between([self._host(fault)], self._others(fault))
        self._cluster.network.slow_down(links, _SLOW_FACTOR)
        await trio.sleep_until(self._ends_s(fault))
        self._cluster.network.slow_down(links, 1)

    def _host(self, fault: Fault) -> str:
        return self._cluster.brokers[fault.broker].host.name

    def _others(self, fault: Fault) -> list[str]:
        return [each for each in self._hosts if each != self._host(fault)]

    # ---- disks --------------------------------------------------------------------

    async def _stall(self, fault: Fault) -> None:
        await trio.lowlevel.checkpoint()
        self._cluster.brokers[fault.broker].disk.stall(self._ends_s(fault))

    async def _full(self, fault: Fault) -> None:
        disk = self._cluster.brokers[fault.broker].disk
        disk.fill_up()
        await trio.sleep_until(self._ends_s(fault))
        disk.make_room()

    async def _device(self, fault: Fault) -> None:
        """Fail one call; a broker that stops for it starts again after the repair."""
        each = self._cluster.brokers[fault.broker]
        if not each.is_up or not self._may_harm(each):
            return
        each.disk.fail()
        await trio.sleep_until(self._ends_s(fault))
        each.disk.mend()
        if each.has_stopped:
            await self._cluster.start(each.id)

    # ---- control and clients --------------------------------------------------------

    async def _prefer(self, fault: Fault) -> None:
        keys = list(self._control.standings())
        await self._control.prefer(keys[fault.chance % len(keys)])

    async def _fail_over(self, fault: Fault) -> None:
        await self._control.fail_over(self._ends_s(fault))

    async def _client(self, fault: Fault) -> None:
        await trio.lowlevel.checkpoint()
        self._replace(fault.kind, fault.chance)
