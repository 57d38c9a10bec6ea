"""Tasks that wait on behalf of handlers, which are parked without a seat meanwhile.

Calls to ZooKeeper and a controller take time, and may need seats of this broker: a
topic is led once its brokers have served LeaderAndIsr. A handler that makes such a call
therefore parks, as in a purgatory, and a Trio task of the coordinator makes the call.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ErrorCode, KafkaError
from planes.slices import Wake, parked

R = TypeVar("R")
_Run = Callable[[], Awaitable[None]]


class HandlerTasks:
    """Background tasks of handlers; `run` runs them concurrently."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._give, self._take = trio.open_memory_channel[_Run](math.inf)

    async def run(self) -> None:
        """Run the functions until cancelled."""
        async with trio.open_nursery() as nursery:

            async def begin() -> None:
                while True:
                    nursery.start_soon(await self._take.receive())

            await self._supervisor.keep("handler tasks", begin)

    def begin(self, function: _Run) -> None:
        """Run a function in the background; it must not raise."""
        self._give.send_nowait(function)

    async def run_for_handler(self, function: Callable[[], Awaitable[R]]) -> R:
        """Run a function; return its result, or raise its exception.

        A bug in the function fails only the request of the caller.
        """
        results: list[R] = []
        faults: list[Exception] = []

        def register(wake: Wake) -> bool:
            async def run() -> None:
                try:
                    results.append(await function())
                except Exception as fault:
                    faults.append(fault)
                finally:
                    # Also if cancelled: the handler must not wait for ever.
                    wake()

            self._give.send_nowait(run)
            return True

        await parked(register)
        if faults:
            raise faults[0]
        if not results:
            raise KafkaError(ErrorCode.request_timed_out, "the broker stops")
        return results[0]
