"""Flushing logs in threads, so that a disk's fsync does not stop other requests.

While one flush of a log is under way, all that need a later one wait for the next, and
share it: group commit. The handler that flushes keeps its seat and gives the CPU away
meanwhile, as a Kafka handler thread does in ``FileChannel.force``. Handlers that wait
for it keep none: the flushing handler needs a seat once more, and might find all held
by them.
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
    """Makes logs durable up to their end at the time of the call."""

    def __init__(self, now_ms: Callable[[], int], blocking: Blocking) -> None:
        self._now_ms = now_ms
        self._blocking = blocking
        # Waiters for the running flush of a log.
        self._running: dict[Log, list[Wake]] = {}

    async def __call__(self, log: Log) -> None:
        """Return once all that ``log`` holds now is durable; raise `KafkaError`.

        For tasks of Trio's, which have no seat.
        """
        await self._flush(log, self._wait)

    async def by_handler(self, log: Log) -> None:
        """Do the same for a handler."""
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
            # Otherwise the log in its place is flushed.
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
    """Flushes for callers that cannot wait but are called back, a log's in their order.

    A call that ends in a thread is only noted there: `work` calls back, at the time of
    `next_ns`, and ``moved`` is called when that has come nearer.
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
        """Return whether a caller waits: a later one has to wait, too."""
        return log in self._waiting

    def add(self, log: Log, then: Then) -> None:
        """Make durable what ``log`` holds now, then call ``then``; perhaps at once."""
        queue = self._waiting.setdefault(log, deque())
        queue.append(_Waiter(log.log_end_offset, then))
        if len(queue) == 1:
            self._begin(log)

    def next_ns(self) -> int | None:
        """Return when `work` has something to do; an ended flush is always due.

        The present time would be later than that of an earlier call.
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
            self._tell(log, len(self._waiting[log]), refused)
            return
        if syncs is None:
            self._tell(log, len(self._waiting[log]), None)
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
        except Exception as fault:  # no thread can be started, perhaps
            done(KafkaError(ErrorCode.unknown_server_error, repr(fault)))
        here = False
        while self._ended and self._ended[-1].log is log:
            self._end(self._ended.pop())

    def _end(self, ended: _Ended) -> None:
        log, syncs, error = ended
        queue = self._waiting[log]
        if log.successor is not None:
            self._hand_on(log, log.successor)
        elif error is None:
            flushed(log, syncs, self._now_ms())
            durable = takewhile(lambda it: it.until_offset <= log.recovery_point, queue)
            self._tell(log, len(list(durable)), None)
        elif isinstance(error, OSError):
            self._tell(log, len(queue), log.durability.sync_failed(error))
        elif isinstance(error, KafkaError):
            # The log was closed meanwhile.
            self._tell(log, len(queue), error)
        else:
            fault = KafkaError(ErrorCode.unknown_server_error, repr(error))
            self._tell(log, len(queue), fault)
            raise error

    def _hand_on(self, log: Log, successor: Log) -> None:
        """Add the waiters to those of the log in its place, in front."""
        handed = self._waiting.pop(log)
        queue = self._waiting.get(successor)
        if queue is None:
            self._waiting[successor] = handed
            self._begin(successor)
        else:
            queue.extendleft(reversed(handed))

    def _tell(self, log: Log, count: int, fault: KafkaError | None) -> None:
        """Call the first waiters; flush again for the remaining ones."""
        queue = self._waiting[log]
        try:
            for _ in range(count):
                # It stays the first meanwhile, so that new waiters come behind it.
                try:
                    queue[0].then(fault)
                finally:
                    queue.popleft()
        finally:
            if queue:
                self._begin(log)
            else:
                del self._waiting[log]
