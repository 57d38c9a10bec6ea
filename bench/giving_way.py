"""Cost of taking the CPU from a request: a task here, a thread in the kernel.

Both are parameters of the model and virtual worlds (``preemption_us``, ``switch_us``);
the figures in the shipped configs come from this benchmark.
"""

from __future__ import annotations

import os
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

_TIMES, _CHUNK = 20_000, 50
_URGENT, _COMMON = 0, 1


def rows() -> Iterator[BenchRow]:
    """Compare a preemption with a context switch between two processes on one CPU."""
    yield in_turn(
        "cost of giving way, a preemption under priority",
        "us",
        _preemption_us,
        "a context switch of the kernel",
        _switch_us,
    )


def _preemption_us() -> float:
    """Time preemptions one by one, minus one preemption by all urgent requests at once.

    The number of urgent requests is the same, so the difference is the preemptions.
    """
    return (_chunk_us(apart=True) - _chunk_us(apart=False)) / (_CHUNK - 1)


def _chunk_us(*, apart: bool) -> float:
    """Return the median time in which a chunk of urgent requests preempts a request."""

    async def main() -> float:
        core = PlaneCore(
            "data",
            make("priority", SchedulerConfig()),
            Block(capacity=2 * _CHUNK),
            seats=8,
        )
        dispatcher = Dispatcher([core], now_ns=time.monotonic_ns, quantum_ns=500_000)
        finished = trio.Event()
        spent_ns = []

        async def give_way() -> None:
            for _ in range(_TIMES // _CHUNK):
                began_ns = time.perf_counter_ns()
                for number in range(1, _CHUNK + 1):
                    urgent = _task(number, _URGENT, _nothing, _discard)
                    assert dispatcher.offer(core, urgent)
                    if apart:
                        await preempt()
                await preempt()
                spent_ns.append(time.perf_counter_ns() - began_ns)

        def done(task: Task, _result: Any) -> None:
            # Fewer preemptions would mean that nothing was measured.
            assert task.preemptions >= _TIMES // (1 if apart else _CHUNK), task
            finished.set()

        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            dispatcher.offer(core, _task(0, _COMMON, give_way, done))
            await finished.wait()
            nursery.cancel_scope.cancel()
        return statistics.median(spent_ns) / 1_000

    return trio.run(main)


def _discard(_task: Task, _result: Any) -> None:
    """Discard a result."""


async def _nothing() -> None:
    await preempt()


def _task(number: int, level: int, serve: Any, done: Any) -> Task:
    return Task(number=number, level=level, flow="it", serve=serve, done=done)


def _switch_us() -> float:
    """Time a byte exchanged on one CPU, minus the system calls alone, per switch."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        return (_to_and_fro_us() - _calls_us()) / 2
    finally:
        os.sched_setaffinity(0, allowed)


def _to_and_fro_us() -> float:
    """Send a byte to a child process that returns it."""
    there, here = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(there[1])
        while os.read(there[0], 1):
            os.write(here[1], b"x")
        os._exit(0)
    os.close(there[0])
    try:
        return _median_us(partial(_exchange, there[1], here[0]))
    finally:
        for end in (there[1], *here):
            os.close(end)
        os.waitpid(child, 0)


def _calls_us() -> float:
    """Make the same four system calls in one process, without a context switch."""
    read, write = os.pipe()
    try:
        return 2 * _median_us(partial(_exchange, write, read))
    finally:
        os.close(read)
        os.close(write)


def _exchange(write: int, read: int) -> None:
    os.write(write, b"x")
    os.read(read, 1)


def _median_us(exchange: Any) -> float:
    spent_ns = []
    for _ in range(_TIMES):
        began_ns = time.perf_counter_ns()
        exchange()
        spent_ns.append(time.perf_counter_ns() - began_ns)
    return statistics.median(spent_ns) / 1_000
