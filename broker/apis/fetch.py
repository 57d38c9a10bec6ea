"""Fetch (1): read record batches, and wait for new ones if requested.

Versions: 4-18 served, 0-18 advertised.

Behaviour:
- The handler waits in the Fetch purgatory until ``min_bytes`` can be read, at most
  ``max_wait_ms``; then it reads again. An error of a partition ends the wait.
- The response has at least one batch, of any size, if there is one; otherwise at most
  ``max_bytes`` of the request (bounded by ``fetch.max.bytes``), in the order of the
  request (KIP-74).
- Records are regions of their files, which the network sends without copying.
- Consumers read up to the high watermark. Consumers of committed records read up to the
  last stable offset, and receive the aborted transactions to skip.
- Followers read to the end. Their fetch offsets report their progress, which may
  advance the high watermark.
- A follower outside the ISR receives no records of a throttled partition while
  ``leader.replication.throttled.rate`` is exceeded (KIP-73).
- A consumer from v11 on may also read from a follower (KIP-392).
- An unknown isolation level is INVALID_REQUEST, if a requested partition is here.
- Sessions are those of KIP-227. A request can be preempted between partitions.

Version notes:
- v5 adds log start offsets (KIP-107), v6 KAFKA_STORAGE_ERROR (NOT_LEADER_OR_FOLLOWER in
  earlier versions), v7 sessions, v9 leader epochs (KIP-320), v11 racks, v12 is flexible
  and detects divergence (KIP-595), v13 identifies topics by id (KIP-516), v15 moves the
  replica id into a tagged field (KIP-903), v16 adds the current leader to errors
  (KIP-951), v18 has the follower's high watermark (KIP-1166), which only KRaft's
  replicas send.

Left out: preferred read replicas (KIP-392's other half).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from broker.apis.common.access import (
    Check,
    allowed_on_topic,
    denied,
    in_handler,
    may_claim,
)
from broker.apis.common.answer import ISOLATION_LEVELS, READ_COMMITTED, to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.fetch_targets import forgotten, targets, uses_ids
from broker.apis.common.log_steps import preemptibly
from broker.apis.common.parked_handlers import wait_in
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.delayed.delayed_fetch import DelayedFetch, Wanted
from broker.cluster.fetch_sessions import Answered, Context, Target
from broker.cluster.partition import Partition
from broker.config import FETCH_MAX_BYTES
from broker.disk.storage import FileSlice
from broker.log.log_reading import aborted_in
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.buffer import Piece
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.fetch import FetchRequest
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire import replica_ids
from broker.protocol.wire.hot import (
    EpochEnd,
    FetchPartition,
    encode_fetch_in_steps,
    encode_fetch_response,
    size_of,
)
from broker.requests.classifier import FETCH
from broker.requests.entitlement import Role
from broker.requests.request import Request, Response
from broker.requests.throttling import throttle_ms
from planes.slices import in_steps, preempt

_NS_PER_MS: Final = 1_000_000
_CONSUMER: Final = -1
_FLEXIBLE_SINCE: Final = 12
_STORAGE_ERROR_SINCE: Final = 6
_LEADER_TOLD: Final = frozenset(
    {ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch}
)


async def handle(request: Request, body: FetchRequest, broker: Broker) -> Response:
    """Read available records; if they are too few, wait and read again."""
    fetch = _Fetch(request, body, broker)
    if fetch.is_follower and not may_claim(request, broker, Role.BROKER):
        # The replica id had an encoding that only the decoder has found.
        return fetch.refuse(ErrorCode.cluster_authorization_failed)
    try:
        context = await fetch.context()
    except KafkaError as error:
        return fetch.refuse(error.code)
    if body.isolation_level not in ISOLATION_LEVELS and await fetch.finds_any(context):
        return await fetch.refuse_each(context, ErrorCode.invalid_request)
    outcome = await fetch.read(context)
    if not fetch.is_enough():
        await fetch.wait(context)
        outcome = await fetch.read(context)
    return await fetch.response(context, outcome)


class _Fetch:
    """The state of one request."""

    __slots__ = (
        "_bytes_read",
        "_failed",
        "_has_waited",
        "body",
        "broker",
        "is_follower",
        "leader_only",
        "max_bytes",
        "quotas",
        "replica_id",
        "request",
    )

    def __init__(self, request: Request, body: FetchRequest, broker: Broker) -> None:
        self.request = request
        self.body = body
        self.broker = broker
        version = request.api_version
        self.replica_id = (
            body.replica_state.replica_id if version >= 15 else body.replica_id
        )
        self.is_follower = self.replica_id > _CONSUMER
        self.leader_only = self.is_follower or version < 11
        self.max_bytes = min(body.max_bytes, broker.config[FETCH_MAX_BYTES])
        quotas = broker.client_quotas
        self.quotas = quotas if quotas.is_active and not self.is_follower else None
        if self.quotas is not None:
            # A larger response would exceed the quota after any throttle time.
            largest = self.quotas.fetch_bytes_max(request)
            self.max_bytes = int(min(self.max_bytes, largest))
        self._has_waited = False

    # ---- requested partitions ---------------------------------------------------

    async def context(self) -> Context:
        """Return the context of the request and its session; raise `KafkaError`."""
        body = self.body
        uses_topic_ids = uses_ids(self.request.api_version)
        return await preemptibly(
            self.broker.fetch_sessions.context(
                body.session_id,
                body.session_epoch,
                await targets(body, uses_ids=uses_topic_ids),
                await forgotten(body, uses_ids=uses_topic_ids),
                uses_topic_ids=uses_topic_ids,
                is_follower=self.is_follower,
                now_ns=self.broker.now_ns(),
            )
        )

    def _key(self, target: Target) -> TopicPartition | None:
        """Return the partition of a target; None if no topic has the id."""
        name: str | None
        if isinstance(target.topic, UUID):
            name = self.broker.metadata_cache.name(target.topic)
        else:
            name = target.topic
        return None if name is None else TopicPartition(name, target.partition)

    # ---- reading ----------------------------------------------------------------

    async def read(self, context: Context) -> Answered:
        """Read all partitions, in order, up to ``max_bytes``."""
        self._bytes_read = 0
        self._failed = False
        refused = 0
        rows: list[tuple[Target, FetchPartition]] = []
        for target in context.targets:
            if rows:
                await preempt()
            try:
                row = self._read_one(target)
            except KafkaError as error:
                row = self._refused(target, error.code)
                if error.code is ErrorCode.topic_authorization_failed:
                    # The request still waits for the other partitions, as in Kafka.
                    refused += 1
                else:
                    self._failed = True
            rows.append((target, row))
        if refused == len(rows):
            self._failed = True
        return rows

    def _read_one(self, target: Target) -> FetchPartition:
        partition = self._partition(target)
        diverging = None
        if target.last_fetched_epoch >= 0:
            diverging = _divergence(partition, target)
        records = None
        committed = self.body.isolation_level == READ_COMMITTED
        if diverging is None:
            records = partition.read(
                target.offset,
                min(target.max_bytes, max(self.max_bytes - self._bytes_read, 0)),
                is_follower=self.is_follower,
                min_one=not self._bytes_read,
                committed=committed,
            )
        else:
            # The reader has to truncate, so the request does not wait.
            self._failed = True
        high_watermark = partition.high_watermark
        if self.is_follower and diverging is None:
            # A follower's progress is recorded once per request, not after a wait.
            if not self._has_waited:
                self._note_follower(partition, target)
            if self._is_held_back(partition):
                records = None
        if records is not None:
            self._bytes_read += records.size
        return FetchPartition(
            target.partition,
            0,
            high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            b"" if records is None else records,
            aborted_transactions=(
                _aborted(partition, target, records) if committed else None
            ),
            diverging_epoch=diverging,
        )

    def _partition(self, target: Target) -> Partition:
        """Return the partition if this reader may read from it; raise `KafkaError`."""
        key = self._key(target)
        if key is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        if not self._may_read(key):
            raise denied(ResourceType.TOPIC)
        partition = self.broker.replicas.get(key)
        if isinstance(target.topic, UUID) and target.topic != partition.topic_id:
            raise KafkaError(ErrorCode.inconsistent_topic_id)
        epoch = target.current_leader_epoch
        partition.check_epoch(epoch, leader_only=self.leader_only)
        if self.is_follower:
            partition.check_follower(self.replica_id, epoch)
        return partition

    def _may_read(self, key: TopicPartition) -> bool:
        return self.is_follower or allowed_on_topic(
            self.request, self.broker, AclOperation.READ, key.topic
        )

    def _note_follower(self, partition: Partition, target: Target) -> None:
        replica, replicas = self.replica_id, self.broker.replicas
        low_moved = partition.note_follower_fetch(
            replica, target.offset, target.log_start_offset
        )
        # Before the high watermark advances, which waits for a new ISR member.
        replicas.note_follower(partition, replica)
        if partition.advance_high_watermark() or low_moved:
            replicas.note_change(partition.key)

    def _is_held_back(self, partition: Partition) -> bool:
        """Return whether a follower is throttled (Kafka: shouldLeaderThrottle)."""
        return self.broker.quotas.leader.holds_back(
            partition.key, in_sync=self.replica_id in partition.isr
        )

    # ---- waiting ----------------------------------------------------------------

    def is_enough(self) -> bool:
        """Return whether the read is sufficient for a response."""
        body = self.body
        return (
            self._failed
            or self._bytes_read >= min(body.min_bytes, self.max_bytes)
            or to_ms(body.max_wait) <= 0
        )

    async def wait(self, context: Context) -> None:
        """Wait until enough bytes may be available, at most ``max_wait_ms``."""
        self._has_waited = True
        if not context.targets:
            return
        broker = self.broker
        wanted: dict[TopicPartition, Wanted] = {}
        async for target in in_steps(context.targets):
            key = self._key(target)
            if key is None:
                # The topic was deleted since the read: the next read returns the error.
                return
            if self._may_read(key):
                wanted[key] = Wanted(
                    target.offset, target.max_bytes, target.current_leader_epoch
                )
        delayed = DelayedFetch(
            broker.replicas.partitions,
            wanted,
            min_bytes=min(self.body.min_bytes, self.max_bytes),
            is_follower=self.is_follower,
            leader_only=self.leader_only,
            committed=self.body.isolation_level == READ_COMMITTED,
            is_held_back=self._is_held_back if self.is_follower else None,
        )
        await wait_in(
            broker.replicas.fetch_purgatory,
            self.request,
            delayed,
            wanted,
            broker.now_ns() + to_ms(self.body.max_wait) * _NS_PER_MS,
            lambda: delayed.held_back,
        )

    # ---- response ---------------------------------------------------------------

    async def response(self, context: Context, outcome: Answered) -> Response:
        """Encode the rows that the session has to report."""
        if self.quotas is not None:
            changed = [
                row async for row in in_steps(outcome) if context.needs_report(*row)
            ]
            whole = await self._encoded(changed, context.session_id)
            # Kafka counts the size prefix, but not the header after it.
            first = whole[0]
            assert isinstance(first, bytes)
            framed = int.from_bytes(first[:4], "big")
            size_bytes = framed - (self.request.api_version >= _FLEXIBLE_SINCE)
            if not self.quotas.count_fetch(self.request, size_bytes):
                return await self._encoded((), context.session_id)
        session_id, reported = await preemptibly(
            context.respond(outcome, self.broker.now_ns())
        )
        if self.is_follower:
            async for target, row in in_steps(reported):
                if row.records:
                    self._note_sent(target, row)
        self.request.error_code = next(
            (r.error_code for _, r in reported if r.error_code), 0
        )
        return await self._encoded(reported, session_id)

    async def _encoded(self, reported: Answered, session_id: int) -> list[Piece]:
        topics: dict[str | UUID, list[FetchPartition]] = {}
        async for target, row in in_steps(reported):
            topics.setdefault(target.topic, []).append(row)
        return await preemptibly(
            encode_fetch_in_steps(
                self.request.api_version,
                self.request.correlation_id,
                list(topics.items()),
                throttle_ms=throttle_ms(self.request, self.broker.now_ns()),
                session_id=session_id,
            )
        )

    def _note_sent(self, target: Target, row: FetchPartition) -> None:
        key = self._key(target)
        # A topic that was deleted since the read has no quota.
        if key is not None:
            self.broker.quotas.leader.note(key, size_of(row.records))

    def refuse(self, error: ErrorCode) -> Response:
        """Encode an error of the whole request."""
        self.request.error_code = int(error)
        if self.quotas is not None:
            self.quotas.count_request(self.request)
        return encode_fetch_response(
            self.request.api_version,
            self.request.correlation_id,
            (),
            throttle_ms=throttle_ms(self.request, self.broker.now_ns()),
            error_code=int(error),
        )

    async def finds_any(self, context: Context) -> bool:
        """Return whether a requested partition is on this broker."""
        held = self.broker.replicas.partitions
        async for target in in_steps(context.targets):
            if self._key(target) in held:
                return True
        return False

    async def refuse_each(self, context: Context, error: ErrorCode) -> Response:
        """Encode an error of all partitions, in versions without a top-level error."""
        if self.request.api_version >= 7:
            return self.refuse(error)
        rows = [
            (target, self._refused(target, error))
            async for target in in_steps(context.targets)
        ]
        return await self.response(context, rows)

    def _refused(self, target: Target, error: ErrorCode) -> FetchPartition:
        version = self.request.api_version
        if version < _STORAGE_ERROR_SINCE and error is ErrorCode.kafka_storage_error:
            # Older clients would not retry after KAFKA_STORAGE_ERROR.
            error = ErrorCode.not_leader_or_follower
        leader = None
        if version >= 16 and error in _LEADER_TOLD:
            key = self._key(target)
            leader = None if key is None else self.broker.current_leader(key)
        return FetchPartition(
            target.partition, int(error), -1, -1, -1, b"", current_leader=leader
        )


def _aborted(
    partition: Partition, target: Target, records: FileSlice | None
) -> list[tuple[int, int]]:
    """Return producer and first offset of the aborted transactions in a response."""
    if records is None:
        return []
    end = partition.last_stable_offset
    return [
        (each.producer_id, each.first_offset)
        for each in aborted_in(partition.log, target.offset, records, end)
    ]


def _divergence(partition: Partition, target: Target) -> EpochEnd | None:
    """Return the point of divergence of the reader's log, if there is one."""
    ours = partition.epoch_end_offset(target.last_fetched_epoch)
    if ours.end_offset < 0 or target.offset < partition.log.log_start_offset:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if ours.epoch < target.last_fetched_epoch or ours.end_offset < target.offset:
        return ours
    return None


API: Final = Api(
    key=ApiKey.FETCH,
    versions=(4, 18),
    advertised_from=0,
    request_class=FETCH,
    replica_id=replica_ids.of_fetch,
    handle=handle,
    access=in_handler(
        Check(AclOperation.READ, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(
        rows={"responses": ("topics",), "partitions": ("partitions",)},
        rows_last=12,
    ),
)
