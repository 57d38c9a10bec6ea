"""Blocking calls in threads of their own, so that the event loop does not wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

import trio

from broker.log.steps import BlockingCall
from broker.log.upkeep.chore import Done


async def call_in_thread(call: BlockingCall) -> None:
    """Make a call that a handler waits for; raise what it raises."""
    await trio.to_thread.run_sync(call)


def _outcome(call: BlockingCall) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


class CallThreads:
    """Runs calls in up to ``threads`` threads, which begin with the first call."""

    def __init__(self, threads: int) -> None:
        self._count = threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="upkeep")

    def start(self, call: BlockingCall, done: Done) -> None:
        """Run a call in a thread, then call ``done`` in Trio's."""
        token = trio.lowlevel.current_trio_token()

        def run() -> None:
            error: Exception | None = None
            try:
                call()
            except Exception as fault:
                error = fault
            # Trio has ended: nobody is left to hear it.
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done, error)

        self._threads.submit(run)

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        """Run calls side by side; return when all are done, or raise what one did.

        Whoever is interrupted meanwhile goes on at once: threads that are at work keep
        nobody from ending.
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
            Thread(target=work, name="side by side", daemon=True).start()
        for _ in calls:
            error = ended.get()
            if error is not None:
                waiting.clear()
                raise error

    def close(self) -> None:
        """Wait for the calls that are running; forget those that have not begun."""
        self._threads.shutdown(cancel_futures=True)
