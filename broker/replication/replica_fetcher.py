"""A follower's requests to one leader, and the handling of the responses.

Kafka's ``ReplicaFetcherThread``, without the thread. It builds a Fetch of all
partitions that follow this leader, appends the records, and adopts the leader's high
watermark and log start. It records divergences reported by the leader (KIP-595's
diverging epoch, so that no OffsetsForLeaderEpoch is needed). The log is truncated there
before the next Fetch, after its recovery point was lowered on disk. A partition with an
error is paused for ``replica.fetch.backoff.ms``. A partition fenced by the leader under
the epoch known here waits for the controller's next command.

The leader must support Fetch v12 (Kafka 2.7 and later). A response is valid for a
partition only if it still follows under the epoch of the request. Under
``flush.messages`` or ``flush.ms``, records are flushed before the next Fetch, which
acknowledges them to the leader. Fetch sessions (KIP-227) are not used: every request
contains all partitions, except out-of-sync partitions above the quota of
``follower.replication.throttled.rate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from logging import getLogger
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.cluster.partition import Partition
from broker.cluster.replication_quota import Quota
from broker.config import (
    REPLICA_FETCH_BACKOFF_MS,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_MIN_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
    BrokerConfig,
)
from broker.disk.disk_failures import LogUnavailable
from broker.log.producers import Producers
from broker.log.steps import InSteps
from broker.log.trimming import (
    delete_records_before,
    producers_before,
    truncate_fully,
    truncate_to,
)
from broker.observation.logs import fields
from broker.observation.minute_rate import MinuteRate
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from broker.protocol.records.batch import HEADER_SIZE, parse_header
from broker.protocol.topic_partition import TopicPartition
from broker.replication.truncation import truncation_offset

logger = getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
EARLIEST, LATEST = -2, -1
# Partitions per step: half a millisecond.
PARTITIONS_PER_STEP: Final = 256

_R = TypeVar("_R")
# Work in steps: commands of the controller may run at each yield.


class Watchers(Protocol):
    """The requests that wait for records or high watermarks of a partition."""

    def note_append(self, partition: Partition) -> None:
        """Try the requests that wait for records, or for the high watermark."""

    def note_flush(self, partition: Partition) -> None:
        """Expose a partition's withheld records, if this broker leads it meanwhile."""


class Cut(NamedTuple):
    """New end of a log; with ``keeps_nothing``, the offset at which it restarts."""

    offset: int
    keeps_nothing: bool = False

    @property
    def kept_below(self) -> int:
        """The offset below which records are kept."""
        return 0 if self.keeps_nothing else self.offset


@dataclass(slots=True, eq=False)
class Following:
    """A following partition, from one command of the controller to the next."""

    partition: Partition
    leader_epoch: int
    not_before_ns: int = 0
    # The leader does not have this log's end; its own ends must be requested first.
    out_of_range: bool = False
    fenced: bool = False
    # Truncation that is needed before the next Fetch.
    cut: Cut | None = None
    # Number of committed messages missing here; None if unknown.
    lag: int | None = None

    @property
    def is_current(self) -> bool:
        """Return whether the partition still follows under this epoch."""
        partition = self.partition
        return (
            not partition.is_leader
            and not partition.is_offline
            and partition.leader_epoch == self.leader_epoch
        )

    def may_be_fetched(self, now_ns: int) -> bool:
        """Return whether the next Fetch may contain this partition."""
        return (
            self.not_before_ns <= now_ns
            and not self.fenced
            and not self.out_of_range
            and self.cut is None
            and self.is_current
        )


class SentFetch(NamedTuple):
    """A Fetch: its request, and the requested offset of each partition."""

    request: FetchRequest
    offsets: Mapping[TopicPartition, tuple[Following, int]]


@dataclass(slots=True, eq=False)
class ReplicaFetcher:
    """The partitions of this broker, ``local_id``, that one fetcher replicates.

    ``config`` is read for every request. Cost of a request: O(partitions), in steps.
    Partitions that begin to follow during an iteration wait for the next one.
    """

    local_id: int
    config: Callable[[], BrokerConfig]
    watchers: Watchers
    quota: Quota
    now_ns: Callable[[], int]
    now_ms: Callable[[], int]
    # Numbers of finished Fetches and of appended bytes: Kafka's FetcherStats.
    requests: int = 0
    bytes: int = 0
    rate: MinuteRate = field(init=False)
    # Partitions whose records must be durable before the next Fetch.
    to_flush: list[Following] = field(default_factory=list)
    following: dict[TopicPartition, Following] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start the measurement of rates."""
        self.rate = MinuteRate(self.now_ns())

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from now on, under its present leader epoch."""
        each = Following(partition, partition.leader_epoch)
        self.following[partition.key] = each
        log = partition.log
        if log.epochs.latest < 0 and log.log_end_offset > partition.high_watermark:
            # The leader that wrote the records above the high watermark is unknown.
            each.cut = Cut(partition.high_watermark)

    def take_over(self, known: Following) -> None:
        """Take over a partition from another fetcher of its leader."""
        # A copy: outstanding responses of the other fetcher change nothing here.
        each = self.following[known.partition.key] = replace(known)
        if each.partition.log.flushes:
            self.to_flush.append(each)

    def stop(self, key: TopicPartition) -> None:
        """Stop fetching a partition."""
        self.following.pop(key, None)

    # ---- requests ---------------------------------------------------------------

    def _pass(self) -> Iterator[Following | None]:
        """Iterate over the partitions, with None between two steps."""
        for number, each in enumerate(tuple(self.following.values()), 1):
            if self.following.get(each.partition.key) is each:
                yield each
            if not number % PARTITIONS_PER_STEP:
                yield None

    def request(self) -> InSteps[SentFetch | None]:
        """Return a Fetch of all partitions that may be fetched now.

        None if none may.
        """
        now_ns = self.now_ns()
        due: dict[TopicPartition, tuple[Following, int]] = {}
        topics: dict[str, list[FetchPartition]] = {}
        over_quota: list[Following] = []
        max_bytes = self.config()[REPLICA_FETCH_MAX_BYTES]
        for each in self._pass():
            if each is None:
                yield
            elif each.may_be_fetched(now_ns):
                key = each.partition.key
                if self.quota.holds_back(key, in_sync=each.lag == 0):
                    over_quota.append(each)
                    continue
                row = _fetch_row(each, max_bytes)
                due[key] = each, row.fetch_offset
                topics.setdefault(key.topic, []).append(row)
        if due:
            return SentFetch(self._request(topics), due)
        yield from self.leave_all_alone(over_quota)
        return None

    def next_ns(self) -> InSteps[int | None]:
        """Return when a paused partition may be fetched again."""
        first: int | None = None
        for each in self._pass():
            if each is None:
                yield
            elif each.not_before_ns and not each.fenced and each.is_current:
                first = min(first or each.not_before_ns, each.not_before_ns)
        return first

    def out_of_range(self) -> InSteps[list[Following]]:
        """Return the partitions for which the leader's ends must be requested."""
        now_ns = self.now_ns()
        found = []
        for each in self._pass():
            if each is None:
                yield
            elif each.out_of_range and each.is_current and each.not_before_ns <= now_ns:
                found.append(each)
        return found

    def to_cut(self) -> InSteps[dict[TopicPartition, Following]]:
        """Return the partitions with a pending truncation."""
        now_ns = self.now_ns()
        found = {}
        for each in self._pass():
            if each is None:
                yield
            elif each.cut and each.is_current and each.not_before_ns <= now_ns:
                found[each.partition.key] = each
        return found

    def cut(self, each: Following) -> InSteps[None]:
        """Truncate a log, before its file is truncated; raise `KafkaError`.

        Does nothing unless the recovery point was lowered before.
        """
        cut, partition = each.cut, each.partition
        if cut is None or not self._may_cut(each):
            return
        log = partition.log
        producers = Producers()
        if not cut.keeps_nothing:
            producers = yield from producers_before(log, cut.offset)
            # A log that has moved to another directory is truncated there later.
            if each.cut is not cut or partition.log is not log:
                return
            if not self._may_cut(each):
                return
        if cut.keeps_nothing or cut.offset < log.log_end_offset:
            logger.info(
                "a follower cuts its log to its leader's",
                extra=fields(partition=repr(partition), offset=cut.offset),
            )
        each.cut = None
        if cut.keeps_nothing:
            truncate_fully(log, cut.offset, self.now_ms(), producers)
            partition.high_watermark = cut.offset
        else:
            end = truncate_to(log, cut.offset, self.now_ms(), producers)
            partition.high_watermark = min(partition.high_watermark, end)
        yield from producers.emptied()

    def _may_cut(self, each: Following) -> bool:
        cut, log = each.cut, each.partition.log
        return (
            cut is not None
            and self.following.get(each.partition.key) is each
            and each.is_current
            and cut.kept_below >= max(log.recovery_point, log.cleaner_offset)
        )

    def _request(self, topics: Mapping[str, list[FetchPartition]]) -> FetchRequest:
        config = self.config()
        return FetchRequest(
            replica_id=self.local_id,
            max_wait=timedelta(milliseconds=config[REPLICA_FETCH_WAIT_MAX_MS]),
            min_bytes=config[REPLICA_FETCH_MIN_BYTES],
            max_bytes=config[REPLICA_FETCH_RESPONSE_MAX_BYTES],
            topics=tuple(
                FetchTopic(topic=topic, partitions=tuple(rows))
                for topic, rows in topics.items()
            ),
        )

    # ---- responses --------------------------------------------------------------

    def note_request(self) -> None:
        """Count a finished Fetch, with or without a response."""
        self.requests += 1
        self.rate.mark(self.now_ns())

    def failed(self, sent: SentFetch) -> InSteps[None]:
        """Pause all partitions of a request that got no response."""
        yield from self.leave_all_alone([each for each, _ in sent.offsets.values()])

    def take(self, sent: SentFetch, answer: FetchResponse) -> InSteps[None]:
        """Handle a response; each partition with records is a separate step."""
        if answer.error_code is not ErrorCode.none:
            yield from self.failed(sent)
            return
        without_records = 0
        for topic in answer.responses:
            for found in topic.partitions:
                key = TopicPartition(topic.topic, found.partition_index)
                known = sent.offsets.get(key)
                if known is not None:
                    self._take_one(*known, found)
                without_records += 1
                if found.records or without_records == PARTITIONS_PER_STEP:
                    without_records = 0
                    yield

    def _take_one(self, each: Following, offset: int, found: PartitionData) -> None:
        partition = each.partition
        if self.following.get(partition.key) is not each or not each.is_current:
            return
        code = found.error_code
        try:
            if code is ErrorCode.none:
                self._take_records(each, offset, found)
                each.not_before_ns = 0
                end = partition.log.log_end_offset
                each.lag = max(found.high_watermark - end, 0)
            elif code is ErrorCode.offset_out_of_range:
                each.out_of_range = True
            elif code is ErrorCode.fenced_leader_epoch:
                # The controller will send the present leader.
                each.fenced = True
            else:
                self.leave_alone(each)
        except LogUnavailable:
            self.out_of_service(each)
        except KafkaError as error:
            logger.warning(
                "the leader's records cannot be appended; they are fetched again",
                extra=fields(partition=repr(partition), fault=error),
            )
            self.leave_alone(each)

    def out_of_service(self, each: Following) -> None:
        """Pause a partition whose log is out of service, or stop fetching it."""
        if each.partition.is_offline:
            # The controller reports the failed directory to the leader.
            self.stop(each.partition.key)
        else:
            # A flush met a full disk; after mending, the log is in service again.
            self.leave_alone(each)

    def _take_records(self, each: Following, offset: int, found: PartitionData) -> None:
        partition = each.partition
        parting = found.diverging_epoch
        if parting is not None and parting.end_offset >= 0:
            log = partition.log
            each.cut = Cut(truncation_offset(log, parting.epoch, parting.end_offset))
            return
        if partition.log.log_end_offset != offset:
            return
        if found.records:
            log, now_ms = partition.log, self.now_ms()
            self._begin_with_whole_batch(partition, found.records)
            log.append_as_follower(found.records, now_ms)
            self.bytes += len(found.records)
            self.quota.note(partition.key, len(found.records))
            # Recorded before the flush, in case this broker becomes the leader.
            partition.withheld.note(now_ms)
            if partition.withheld.any:
                self.to_flush.append(each)
        self._take_over(partition, found.high_watermark, found.log_start_offset)

    def _begin_with_whole_batch(self, partition: Partition, records: Buffer) -> None:
        """Lower an empty log's start to the first batch, if that is lower.

        The leader's log may start within a batch, which is sent as a whole. Kafka's
        ``UnexpectedAppendOffsetException``.
        """
        log = partition.log
        if log.log_start_offset < log.log_end_offset or len(records) < HEADER_SIZE:
            return
        first = parse_header(records).base_offset
        if first < log.log_end_offset:
            truncate_fully(log, first, self.now_ms(), Producers())
            partition.high_watermark = first

    def _take_over(
        self, partition: Partition, high_watermark: int, log_start_offset: int
    ) -> None:
        """Adopt the leader's high watermark and log start."""
        before = partition.high_watermark, partition.log.log_end_offset
        partition.follow_high_watermark(high_watermark)
        if partition.log.log_start_offset < log_start_offset:
            delete_records_before(
                partition.log, min(log_start_offset, partition.high_watermark)
            )
        if (partition.high_watermark, partition.log.log_end_offset) != before:
            self.watchers.note_append(partition)

    def realign(self, each: Following, leader_start: int, leader_end: int) -> None:
        """Record the truncation that brings the log within the leader's offsets.

        Kafka's ``fetchOffsetAndTruncate``: truncate to the leader's end if that is
        lower, and drop all records if the leader's log starts after this log's end.
        """
        partition = each.partition
        if self.following.get(partition.key) is not each or not each.is_current:
            return
        each.out_of_range = False
        end = partition.log.log_end_offset
        if leader_end < end:
            each.cut = Cut(leader_end)
        elif leader_start > end:
            each.cut = Cut(leader_start, keeps_nothing=True)

    def leave_all_alone(self, partitions: Iterable[Following]) -> InSteps[None]:
        """Pause these partitions for ``replica.fetch.backoff.ms``."""
        for number, each in enumerate(partitions, 1):
            self.leave_alone(each)
            if not number % PARTITIONS_PER_STEP:
                yield

    def leave_alone(self, each: Following) -> None:
        """Pause a partition for ``replica.fetch.backoff.ms``."""
        pause_ms = self.config()[REPLICA_FETCH_BACKOFF_MS]
        each.not_before_ns = self.now_ns() + pause_ms * _NS_PER_MS


def _fetch_row(each: Following, max_bytes: int) -> FetchPartition:
    """Return the row of a partition in a Fetch."""
    log = each.partition.log
    return FetchPartition(
        partition=each.partition.key.partition,
        current_leader_epoch=each.leader_epoch,
        fetch_offset=log.log_end_offset,
        last_fetched_epoch=log.epochs.latest,
        log_start_offset=log.log_start_offset,
        partition_max_bytes=max_bytes,
    )
