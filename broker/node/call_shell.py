"""Blocking calls in separate threads, so that the event loop does not wait.

If no thread can be started, for example because a container bounds their number, the
caller makes the call. The event loop then waits for the device, and no call is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

import trio

from broker.log.steps import BlockingCall
from broker.log.upkeep.periodic_task import Done


async def call_in_thread(call: BlockingCall) -> None:
    """Make a blocking call for a handler; raise its exception."""
    once = _Once(call)
    try:
        await trio.to_thread.run_sync(once)
    except RuntimeError:
        if once.begun:
            raise
        once()


class _Once:
    """A call that only the first of several callers makes."""

    def __init__(self, call: BlockingCall) -> None:
        self._calls = deque([call])

    @property
    def begun(self) -> bool:
        """True if the call has begun."""
        return not self._calls

    def __call__(self) -> None:
        """Make the call, unless it has begun."""
        try:
            call = self._calls.popleft()
        except IndexError:
            return
        call()


def _outcome(call: BlockingCall) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


class CallThreads:
    """Runner of calls in up to ``threads`` threads, started with the first call."""

    def __init__(self, threads: int) -> None:
        self._count = threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="upkeep")
        self._closed = False

    def start(self, call: BlockingCall, done: Done) -> None:
        """Run a call in a thread, then call ``done`` in Trio's thread."""
        token = trio.lowlevel.current_trio_token()

        def run() -> None:
            error: Exception | None = None
            try:
                call()
            except Exception as fault:
                error = fault
            # If Trio has ended, the result is dropped.
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done, error)

        once = _Once(run)
        try:
            self._threads.submit(once)
        except RuntimeError:
            if self._closed:
                raise
            # The call stays in the pool's queue; a later thread does not repeat it.
            once()

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        """Run calls in parallel; return when all are done, or raise a call's exception.

        If the caller is interrupted, it does not wait for busy threads.
        """
        count = self._count if threads is None else threads
        if count == 1:
            for call in calls:
                call()
            return
        waiting = deque(calls)
        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def work() -> None:
            while waiting:
                with suppress(IndexError):
                    ended.put(_outcome(waiting.popleft()))

        for _ in range(min(count, len(calls))):
            try:
                Thread(target=work, name="side by side", daemon=True).start()
            except RuntimeError:
                work()
                break
        for _ in calls:
            error = ended.get()
            if error is not None:
                waiting.clear()
                raise error

    def close(self) -> None:
        """Wait for the running calls; drop calls that have not begun."""
        self._closed = True
        self._threads.shutdown(cancel_futures=True)
