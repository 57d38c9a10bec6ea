"""Moves of replicas between log directories: Kafka's ``ReplicaAlterLogDirsManager``.

A future log in the other directory copies the partition's log, one piece at a time. A
complete copy replaces the log (takeover.py). In Kafka the copy is a follower of the
log, with a fetching thread; here copying is upkeep. A piece is read in a thread and
appended in short steps. Like a thread of Kafka, a task moves one partition at a time,
the first by name, which keeps each move as short as possible.

The copy follows all changes of the log meanwhile: new records, an advanced start, or a
truncation, after which copying restarts. The cleaner skips a moving log, so that below
its cleaner offset the copy is as clean as the log.

The exchange is one step, which copies the small remaining part of the log. Durable data
must stay durable. The copy is therefore flushed in a thread before, and the exchange
waits until that flush covers the recovery point of the log. If a topic is flushed at
every append, the flush may never catch up; after some attempts the exchange flushes the
copy itself.

Only this module works on a future log, so that none of its calls is in progress when
its directory is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from logging import getLogger
from typing import Final, Protocol

from broker.disk.disk_failures import LogUnavailable
from broker.disk.storage import FileSlice
from broker.log import flushing
from broker.log.log import Log
from broker.log.log_reading import read
from broker.log.producers import Producers
from broker.log.steps import Steps, watched
from broker.log.trimming import delete_records_before, truncate_fully
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.mending import mend
from broker.log.upkeep.rounds import Failed
from broker.observation.logs import fields
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import HEADER_SIZE, parse_header
from broker.protocol.topic_partition import TopicPartition

logger = getLogger(__name__)

_PIECE_BYTES: Final = 1 << 18
_STEP_BYTES: Final = 1 << 16
_STEP_BATCHES: Final = 64
_TRY_AGAIN_NS: Final = 60_000_000_000
# Number of flushes in a thread before the exchange flushes the copy itself.
_ATTEMPTS: Final = 3


class Throttle(Protocol):
    """The quota of copied bytes."""

    def holds_back(self, key: TopicPartition, *, in_sync: bool) -> bool:
        """Return whether nothing may be copied now."""

    def note(self, key: TopicPartition, count: int) -> None:
        """Count copied bytes."""


@dataclass(slots=True)
class _Prepared:
    """The durable state for an exchange, and the number of attempts."""

    future: Log
    log_start_offset: int
    attempts: int


class Moves:
    """The moves of one broker, whose future logs are ``manager.futures``.

    ``replaced`` is called with a log that has replaced a partition's former log.
    ``pause_ns`` returns the wait of a throttled move.
    """

    def __init__(
        self,
        manager: LogManager,
        throttle: Throttle,
        replaced: Callable[[TopicPartition, Log], None],
        failed: Failed,
        *,
        now_ns: Callable[[], int],
        pause_ns: Callable[[], int],
    ) -> None:
        self._manager = manager
        self._throttle = throttle
        self._replaced = replaced
        self._failed = failed
        self._now_ns = now_ns
        self._pause_ns = pause_ns
        self._busy: set[TopicPartition] = set()
        # The time until which a move is paused.
        self._resting: dict[TopicPartition, int] = {}
        self._prepared: dict[TopicPartition, _Prepared] = {}

    @property
    def any(self) -> bool:
        """Return whether there is a move."""
        return bool(self._manager.futures or self._manager.left)

    def round(self) -> Steps[bool]:
        """Do the next part of a move; return whether there was a move to continue."""
        key = self._next()
        if key is None:
            return False
        self._busy.add(key)
        try:
            yield from self._work(key)
        except Exception as error:
            self._resting[key] = self._now_ns() + _TRY_AGAIN_NS
            future = self._manager.futures.get(key) or self._manager.left.get(key)
            # Otherwise the move was cancelled or deleted meanwhile, which is no error.
            if future is not None and not (
                isinstance(error, LogUnavailable) and future.closed is not None
            ):
                self._failed(future.directory, error)
        finally:
            self._busy.discard(key)
        return True

    def _next(self) -> TopicPartition | None:
        now_ns = self._now_ns()
        manager = self._manager
        moving = manager.left.keys() | manager.futures.keys()
        self._resting = {
            key: until_ns
            for key, until_ns in self._resting.items()
            if until_ns > now_ns and key in moving
        }
        self._prepared = {
            key: prepared for key, prepared in self._prepared.items() if key in moving
        }
        return min(moving - self._busy - self._resting.keys(), default=None)

    def _work(self, key: TopicPartition) -> Steps[None]:
        manager = self._manager
        if key in manager.left:
            yield from manager.leaving(key)
            return
        log, future = manager.logs[key], manager.futures[key]
        yield from watched(
            self._copy(key, log, future),
            lambda: manager.futures.get(key) is future and manager.logs.get(key) is log,
        )

    def _copy(self, key: TopicPartition, log: Log, future: Log) -> Steps[None]:
        """Copy the next piece, or prepare or make the exchange."""
        if future.durability.out_of_service is not None:
            yield from mend(future)
            future.durability.check_in_service()
        if _diverge(log, future):
            yield from self._manager.emptying_future(key)
        _follow_start(log, future)
        end = log.log_end_offset
        found = read(log, future.log_end_offset, _PIECE_BYTES, end)
        prepared = self._prepared.get(key)
        if prepared is not None and prepared.future is not future:
            prepared = None
        if found is None or _is_small_rest(log, future):
            if prepared is None or not self._exchange(key, log, future, prepared):
                yield from self._prepare(key, log, future, prepared)
            return
        if self._throttle.holds_back(key, in_sync=False):
            self._resting[key] = self._now_ns() + self._pause_ns()
            return
        piece = _Piece(found)
        generation = log.durability.generation
        yield piece.read
        if log.durability.generation == generation:
            yield from _appending(future, piece.data, self._manager.now_ms())
            self._throttle.note(key, len(piece.data))
            if future.durability.unflushed:
                yield from _flushing(future)

    def _prepare(
        self, key: TopicPartition, log: Log, future: Log, before: _Prepared | None
    ) -> Steps[None]:
        """Make the copy and its offsets durable, as required before the exchange."""
        yield from _flushing(future)
        _follow_start(log, future)
        start = future.log_start_offset
        future.cleaner_offset = min(log.cleaner_offset, future.log_end_offset)
        yield from self._manager.noting_exchange(key)
        attempts = 0 if before is None else before.attempts
        self._prepared[key] = _Prepared(future, start, attempts + 1)

    def _exchange(
        self, key: TopicPartition, log: Log, future: Log, prepared: _Prepared
    ) -> bool:
        """Copy the rest and exchange the logs in one step.

        Return whether it succeeded.
        """
        end = log.log_end_offset
        while (rest := read(log, future.log_end_offset, _STEP_BYTES, end)) is not None:
            data = rest.read()
            _append(future, data, self._manager.now_ms())
            self._throttle.note(key, len(data))
        _follow_start(log, future)
        if (
            _diverge(log, future)
            or future.log_end_offset != log.log_end_offset
            or future.log_start_offset != log.log_start_offset
            or prepared.log_start_offset != log.log_start_offset
        ):
            return False
        if future.recovery_point < log.recovery_point:
            if prepared.attempts < _ATTEMPTS:
                return False
            flushing.flush(future)
        self._manager.exchange(key)
        del self._prepared[key]
        self._replaced(key, future)
        logger.info(
            "a replica has moved to another log directory",
            extra=fields(log=future.directory, before=log.directory),
        )
        return True


class _Piece:
    """A part of a log that is read in a thread."""

    def __init__(self, found: FileSlice) -> None:
        self._found = found
        self.data = b""

    def read(self) -> None:
        """Read the part; raise ``OSError``."""
        self.data = self._found.read()


def _is_small_rest(log: Log, future: Log) -> bool:
    """Return whether the missing bytes of a copy fit into one step."""
    segments, end = log.segments, future.log_end_offset
    rest_bytes = 0
    for number in reversed(range(len(segments))):
        segment = segments[number]
        rest_bytes += segment.size
        if segment.base_offset <= end:
            position, _ = segment.locate(end) or (segment.size, 0)
            return rest_bytes - position <= _STEP_BYTES
        if rest_bytes > _STEP_BYTES:
            break
    return False


def _diverge(log: Log, future: Log) -> bool:
    """Return whether a copy is no part of its log.

    The log may have been truncated, or may begin after the copy's end. Offset and epoch
    identify a record (KIP-101).
    """
    start, end = future.log_start_offset, future.log_end_offset
    if start == end or future.epochs.latest < 0:
        return not log.log_start_offset <= end <= log.log_end_offset
    if end < log.log_start_offset:
        return True
    found = log.epoch_end_offset(future.epochs.latest)
    return found.epoch != future.epochs.latest or found.end_offset < end


def _follow_start(log: Log, future: Log) -> None:
    """Advance a copy's start to the log's start, unless it is beyond the copy."""
    if future.log_start_offset < log.log_start_offset <= future.log_end_offset:
        delete_records_before(future, log.log_start_offset)


def _appending(future: Log, data: bytes, now_ms: int) -> Steps[None]:
    """Append complete batches, some per step."""
    for part in _parts(memoryview(data)):
        _append(future, part, now_ms)
        yield None


def _append(future: Log, records: Buffer, now_ms: int) -> None:
    """Append batches; raise CORRUPT_MESSAGE if the first is incomplete."""
    if future.log_start_offset == future.log_end_offset:
        # The log may start within a batch, which is copied as a whole.
        first = parse_header(records).base_offset
        if first < future.log_end_offset:
            truncate_fully(future, first, now_ms, Producers())
    if future.append_as_follower(records, now_ms) is None:
        raise KafkaError(
            ErrorCode.corrupt_message, f"no batch at {future.log_end_offset}"
        )


def _parts(data: memoryview) -> Iterator[memoryview]:
    """Yield parts of complete batches, each the work of one step."""
    start = position = batches = 0
    # Data without a complete batch is one part, which `_append` rejects.
    while len(data) - position >= HEADER_SIZE:
        end = position + parse_header(data, position).size
        if end > len(data):
            break
        position, batches = end, batches + 1
        if batches == _STEP_BATCHES or position - start >= _STEP_BYTES:
            yield data[start:position]
            start, batches = position, 0
    if start < position or not position:
        yield data[start:]


def _flushing(future: Log) -> Steps[None]:
    """Make a copy and the snapshots of its producers durable."""
    yield from flushing.snapshot_in_steps(future)
    yield from flushing.flush_in_steps(future, flushing.due_syncs(future))
