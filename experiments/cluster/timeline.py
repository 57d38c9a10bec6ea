"""Execution of faults at their times: by a world, or by an operator's requests."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from experiments.cluster.cluster_operator import ClusterOperator
from experiments.cluster.cluster_under_test import ClusterUnderTest
from experiments.design.cluster_config import Cluster
from experiments.design.faults import (
    Cut,
    Elect,
    Fault,
    Fill,
    Kill,
    Reassign,
    Rebalance,
    Restart,
    ScaleLoad,
    Slow,
    Span,
    Stop,
)

_NS = 1_000_000_000


class Timeline:
    """The faults of a run; a fault may last beyond the start of the next one."""

    def __init__(
        self,
        faults: Iterable[Fault],
        under_test: ClusterUnderTest,
        operator: ClusterOperator,
        cluster: Cluster,
    ) -> None:
        self._faults = tuple(faults)
        self._under_test = under_test
        self._operator = operator
        self._replicas = cluster.replicas

    async def run(self, origin_ns: int) -> None:
        """Run all faults, at times relative to the load's origin."""
        async with trio.open_nursery() as nursery:
            for fault in self._faults:
                # The trace already contains scales of the load.
                if not isinstance(fault, ScaleLoad):
                    nursery.start_soon(self._happen, fault, origin_ns)

    async def _happen(self, fault: Fault, origin_ns: int) -> None:
        await self._under_test.until(origin_ns + round(fault.at_s * _NS))
        await self._begin(fault)
        if isinstance(fault, Span):
            await self._under_test.until(origin_ns + round(fault.until_s * _NS))
            await self._end(fault)

    async def _begin(self, fault: Fault) -> None:
        brokers = self._under_test.faults
        match fault:
            case Elect():
                await self._elect(fault)
            case Reassign():
                self._replicas = fault.replicas
                await self._operator.reassign(fault.replicas)
            case Rebalance():
                await self._operator.balance()
            case Stop():
                await brokers.stop(fault.broker)
            case Kill():
                await brokers.kill(fault.broker)
            case Restart():
                await brokers.restart(fault.broker)
            case Cut():
                await brokers.cut(*fault.between, apart=True)
            case Slow():
                await brokers.slow(fault.broker, fault.factor)
            case Fill():
                await brokers.fill(fault.broker, full=True)

    async def _end(self, fault: Fault) -> None:
        brokers = self._under_test.faults
        match fault:
            case Cut():
                await brokers.cut(*fault.between, apart=False)
            case Slow():
                await brokers.slow(fault.broker, 1.0)
            case Fill():
                await brokers.fill(fault.broker, full=False)

    async def _elect(self, fault: Elect) -> None:
        """Elect the preferred replica; if needed, make another one preferred before."""
        if fault.leader not in (None, self._replicas[0]):
            others = (it for it in self._replicas if it != fault.leader)
            self._replicas = (fault.leader, *others)
            await self._operator.reassign(self._replicas)
        await self._operator.elect(one_by_one=fault.one_by_one)
