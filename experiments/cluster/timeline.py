"""Faults happen at their times: from outside, and by the controller's word."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from experiments.cluster.controller import ScriptedController
from experiments.cluster.stage import Lives, Stage
from experiments.design.faults import (
    Elect,
    Fault,
    Fill,
    Kill,
    ScaleLoad,
    Slow,
)

_NS = 1_000_000_000


class Timeline:
    """The faults of a run, each of which may take longer than until the next.

    ``session_ms`` is how long nobody misses a broker that was killed.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        stage: Stage,
        controller: ScriptedController,
        session_ms: float,
    ) -> None:
        self._faults = tuple(faults)
        self._stage = stage
        self._controller = controller
        self._session_s = session_ms / 1000

    async def run(self, origin_ns: int) -> None:
        """Let everything happen, counted from the load's origin."""
        async with trio.open_nursery() as nursery:
            for fault in self._faults:
                # What scales the load is in the trace already.
                if not isinstance(fault, ScaleLoad):
                    nursery.start_soon(self._happen, fault, origin_ns)

    async def _happen(self, fault: Fault, origin_ns: int) -> None:
        await self._stage.until(origin_ns + round(fault.at_s * _NS))
        match fault:
            case Elect():
                await self._controller.elect(fault.leader, one_by_one=fault.one_by_one)
            case Kill():
                await self._kill(fault.broker)
            case Slow():
                self._lives.slow(fault.broker, fault.factor)
                await self._stage.until(origin_ns + round(fault.until_s * _NS))
                self._lives.slow(fault.broker, 1.0)
            case Fill():
                self._lives.fill(fault.broker, full=True)
                await self._stage.until(origin_ns + round(fault.until_s * _NS))
                self._lives.fill(fault.broker, full=False)
            case _:
                raise AssertionError(f"{fault.kind} was to be refused")

    async def _kill(self, number: int) -> None:
        await self._lives.kill(number)
        await trio.sleep(self._session_s)
        await self._controller.lose(number)

    @property
    def _lives(self) -> Lives:
        assert self._stage.lives is not None, "nothing can happen to brokers here"
        return self._stage.lives
