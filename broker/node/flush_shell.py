"""Flushing logs in threads, so that an fsync does not block other requests.

While a flush of a log is in progress, all callers that need a later flush wait for the
next one and share it: group commit. The flushing handler keeps its seat but not the
CPU, like a Kafka handler thread in ``FileChannel.force``. Handlers that wait for it
give up their seats. Otherwise they could hold all seats while the flushing handler
needs one to continue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import takewhile
from typing import NamedTuple, TypeAlias

import trio

from broker.cluster.blocking import Blocking
from broker.disk.disk_failures import LogUnavailable
from broker.log.durability import Syncs
from broker.log.flushing import due_syncs, flushed
from broker.log.log import Log
from broker.log.upkeep.periodic_task import Calls
from broker.protocol.errors import ErrorCode, KafkaError
from planes.slices import Wake, asleep


class SharedFlush:
    """Group commit: make a log durable up to its end at the time of the call."""

    def __init__(self, now_ms: Callable[[], int], blocking: Blocking) -> None:
        self._now_ms = now_ms
        self._blocking = blocking
        # Waiters for the running flush of a log.
        self._running: dict[Log, list[Wake]] = {}

    async def __call__(self, log: Log) -> None:
        """Return when the present content of ``log`` is durable; raise `KafkaError`.

        For Trio tasks without a seat.
        """
        await self._flush(log, self._wait)

    async def by_handler(self, log: Log) -> None:
        """Flush as `__call__` does, for a handler."""
        await self._flush(log, lambda log: asleep(partial(self._join, log)))

    async def _flush(self, log: Log, wait: Callable[[Log], Awaitable[None]]) -> None:
        wanted_offset = log.log_end_offset
        # A truncation in between may leave less to flush.
        while log.recovery_point < min(wanted_offset, log.log_end_offset):
            if log.successor is not None:
                log = log.successor
            elif log in self._running:
                await wait(log)
            else:
                await self._run(log)

    async def _wait(self, log: Log) -> None:
        ended = trio.Event()
        self._running[log].append(ended.set)
        await ended.wait()

    def _join(self, log: Log, wake: Wake) -> bool:
        self._running[log].append(wake)
        return True

    async def _run(self, log: Log) -> None:
        syncs = due_syncs(log)
        if syncs is None:
            return
        self._running[log] = []
        try:
            await self._blocking(syncs.run)
        except OSError as error:
            failure = log.durability.sync_failed(error)
            # Otherwise the log has been replaced, and its successor is flushed.
            if log.successor is None:
                raise failure from error
        except LogUnavailable:
            if log.successor is None:
                raise
        else:
            flushed(log, syncs, self._now_ms())
        finally:
            for wake in self._running.pop(log):
                wake()


# Receives None once a log is durable up to the requested offset, or the error.
Then: TypeAlias = Callable[[KafkaError | None], None]


class _Waiter(NamedTuple):
    """A caller that waits until a log is durable below an offset."""

    until_offset: int
    then: Then


class _Ended(NamedTuple):
    """A finished flush: its syncs, and its error."""

    log: Log
    syncs: Syncs
    error: Exception | None


class QueuedFlushes:
    """Flushes with callbacks; those of one log are called in order.

    A call that ends in a thread is only recorded there. `work` calls back, at the time
    of `next_ns`; ``moved`` is called when that time has become earlier.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        calls: Calls,
        moved: Callable[[], None],
    ) -> None:
        self._now_ms = now_ms
        self._calls = calls
        self._moved = moved
        self._waiting: dict[Log, deque[_Waiter]] = {}
        self._ended: deque[_Ended] = deque()

    def is_busy(self, log: Log) -> bool:
        """Return whether a caller waits, so that later callers have to wait as well."""
        return log in self._waiting

    def add(self, log: Log, then: Then) -> None:
        """Make the present content of ``log`` durable, then call ``then``.

        ``then`` may be called before this method returns.
        """
        queue = self._waiting.setdefault(log, deque())
        queue.append(_Waiter(log.log_end_offset, then))
        if len(queue) == 1:
            self._begin(log)

    def next_ns(self) -> int | None:
        """Return when `work` is due next: 0 if a flush has ended, else None.

        The result must not depend on the time of the call, hence 0.
        """
        return 0 if self._ended else None

    def work(self, _: int) -> None:
        """Call back the waiters of one flush that has ended."""
        if self._ended:
            self._end(self._ended.popleft())

    def _begin(self, log: Log) -> None:
        try:
            syncs = due_syncs(log)
        except KafkaError as refused:
            self._call_back(log, len(self._waiting[log]), refused)
            return
        if syncs is None:
            self._call_back(log, len(self._waiting[log]), None)
            return
        here = True

        def done(error: Exception | None) -> None:
            self._ended.append(_Ended(log, syncs, error))
            if not here:
                self._moved()

        try:
            self._calls.start(syncs.run, done)
        except OSError as refused:
            done(refused)
        except Exception as fault:  # for example, no thread can be started
            done(KafkaError(ErrorCode.unknown_server_error, repr(fault)))
        here = False
        while self._ended and self._ended[-1].log is log:
            self._end(self._ended.pop())

    def _end(self, ended: _Ended) -> None:
        log, syncs, error = ended
        queue = self._waiting[log]
        if log.successor is not None:
            self._move_waiters(log, log.successor)
        elif error is None:
            flushed(log, syncs, self._now_ms())
            durable = takewhile(lambda it: it.until_offset <= log.recovery_point, queue)
            self._call_back(log, len(list(durable)), None)
        elif isinstance(error, OSError):
            self._call_back(log, len(queue), log.durability.sync_failed(error))
        elif isinstance(error, KafkaError):
            # The log was closed meanwhile.
            self._call_back(log, len(queue), error)
        else:
            fault = KafkaError(ErrorCode.unknown_server_error, repr(error))
            self._call_back(log, len(queue), fault)
            raise error

    def _move_waiters(self, log: Log, successor: Log) -> None:
        """Move the waiters to the front of the queue of the log's successor."""
        moved = self._waiting.pop(log)
        queue = self._waiting.get(successor)
        if queue is None:
            self._waiting[successor] = moved
            self._begin(successor)
        else:
            queue.extendleft(reversed(moved))

    def _call_back(self, log: Log, count: int, fault: KafkaError | None) -> None:
        """Call the first ``count`` waiters; flush again for the others."""
        queue = self._waiting[log]
        try:
            for _ in range(count):
                # Removed only afterwards, so that new waiters are added after it.
                try:
                    queue[0].then(fault)
                finally:
                    queue.popleft()
        finally:
            if queue:
                self._begin(log)
            else:
                del self._waiting[log]
