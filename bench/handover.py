"""Cost that scheduling adds to a request: a plane against Trio's own worker pool."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import trio

from bench.row import BenchRow, in_turn
from planes import Block, PlaneCore, Task
from planes.dispatcher import Dispatcher
from planes.slices import preempt
from schedulers import SchedulerConfig, make

_REQUESTS = 20_000
_BURST = 200


def rows() -> Iterator[BenchRow]:
    """Compare each policy's plane with workers on a memory channel."""
    for name in ("fifo", "priority", "wfq"):
        yield in_turn(
            f"scheduling cost per request, {name}",
            "us",
            partial(_plane_us, name),
            "trio memory channel to one worker",
            _channel_us,
        )


async def _serve() -> None:
    await preempt()


def _plane_us(name: str) -> float:
    """Time offer, pick, one preemption point and finish, in bursts."""

    async def main() -> float:
        core = PlaneCore(
            "data",
            make(name, SchedulerConfig()),
            Block(capacity=_BURST),
            seats=8,
        )
        dispatcher = Dispatcher([core], now_ns=time.monotonic_ns, quantum_ns=500_000)
        finished = trio.lowlevel.ParkingLot()
        left = 0

        def done(task: Task, result: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                finished.unpark_all()

        per_request_us = []
        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            for burst in range(_REQUESTS // _BURST):
                left = _BURST
                began_ns = time.perf_counter_ns()
                for number in range(burst * _BURST, (burst + 1) * _BURST):
                    dispatcher.offer(core, _task(number, done))
                await finished.park()
                spent_ns = time.perf_counter_ns() - began_ns
                per_request_us.append(spent_ns / _BURST / 1_000)
            nursery.cancel_scope.cancel()
        return statistics.median(per_request_us)

    return trio.run(main)


def _task(number: int, done: Any) -> Task:
    return Task(
        number=number,
        request_class="produce",
        level=number % 6,
        flow=f"client-{number % 16}",
        cost_ns=50_000,
        serve=_serve,
        done=done,
    )


def _channel_us() -> float:
    """Time a send to, and a receive by, one worker task of a memory channel."""

    async def main() -> float:
        send, receive = trio.open_memory_channel[int](_BURST)
        per_request_us = []
        finished = trio.lowlevel.ParkingLot()

        async def work() -> None:
            async for number in receive:
                if number % _BURST == _BURST - 1:
                    finished.unpark_all()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            for burst in range(_REQUESTS // _BURST):
                began_ns = time.perf_counter_ns()
                for number in range(burst * _BURST, (burst + 1) * _BURST):
                    send.send_nowait(number)
                await finished.park()
                spent_ns = time.perf_counter_ns() - began_ns
                per_request_us.append(spent_ns / _BURST / 1_000)
            nursery.cancel_scope.cancel()
        return statistics.median(per_request_us)

    return trio.run(main)
