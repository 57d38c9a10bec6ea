"""Produce (0): append record batches, and respond as ``acks`` requires.

Versions: 3-13 served, 0-13 advertised (librdkafka turns codecs off otherwise).

Behaviour:
- With acks=1 the response is sent after the append, with acks=-1 once the whole ISR has
  the records. With acks=0 there is no response; an error closes the connection.
- acks=-1 waits in the Produce purgatory, at most ``timeout_ms``; it fails at once with
  NOT_LEADER_OR_FOLLOWER if the leader changes meanwhile (KAFKA-4453).
- A flush due by ``flush.messages`` or ``flush.ms`` is done before the response.
- The log returns the original result for a retry of an idempotent producer.
- A batch that begins a transaction in a partition is first verified with the
  coordinator (KIP-890); a retriable error of the coordinator is NOT_ENOUGH_REPLICAS,
  after which clients retry. From v12 on the partition is added to the transaction
  instead. While the previous transaction is ending, the addition is retried for
  ``add.partitions.to.txn.retry.backoff.max.ms``; then the error is
  CONCURRENT_TRANSACTIONS.
- Clients may not write to internal topics, except the admin client of Kafka's tools.
- A request can be preempted between partitions.

Version notes:
- v3 has v2 batches and a transactional id, v4 adds KAFKA_STORAGE_ERROR (in v3
  NOT_LEADER_OR_FOLLOWER, as documented in Kafka's protocol), v5 returns the log start
  offset (KIP-107), v7 allows zstd, v8 lists invalid records with messages (KIP-467), v9
  is flexible, v10 adds the current leader to NOT_LEADER_OR_FOLLOWER (KIP-951), v11 may
  return TRANSACTION_ABORTABLE, v12 adds partitions to transactions (KIP-890), v13
  identifies topics by id (KIP-516).

Left out: node endpoints of KIP-951. Of one batch a thousand bad records are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from broker.apis.common.access import (
    Check,
    allowed_on_topic,
    check,
    check_topic,
    in_handler,
)
from broker.apis.common.answer import to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.log_steps import preemptibly
from broker.apis.common.parked_handlers import wait_in
from broker.apis.common.verification import (
    TRY_AGAIN,
    Sending,
    TransactionSupport,
    Verified,
    verified_or_retried,
)
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.cluster_topics import INTERNAL_TOPICS
from broker.cluster.delayed.delayed_produce import DelayedProduce
from broker.cluster.delayed.required import Required
from broker.cluster.partition import ALL_REPLICAS, Partition
from broker.log.steps import in_one_step
from broker.log.transactions import VerificationGuard
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from broker.protocol.messages.produce import (
    ProduceRequest,
)
from broker.protocol.records.batch import (
    CODEC_AT,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    check_framing,
)
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.hot import (
    ProducePartition,
    encode_produce_in_steps,
    encode_produce_response,
)
from broker.protocol.wire.single import decode_single_produce, encode_single_produce
from broker.requests.classifier import PRODUCE
from broker.requests.request import CLOSE, NO_RESPONSE, Request, Response
from broker.requests.throttling import throttle_ms
from planes.slices import Pace, in_steps, preempt

# An uncompressed batch up to this size has few enough records for a single step.
_SMALL_BYTES: Final = 2048
# A compressed batch above this size certainly needs several steps.
_PACKED_STEP_BYTES: Final = 128 << 10
ADMIN_CLIENT_ID: Final = "__admin_client"
_NS_PER_MS: Final = 1_000_000
_STORAGE_ERROR_SINCE: Final = 4
_ABORTABLE_SINCE: Final = 11
_IMPLICIT_ADD_SINCE: Final = 12
_ID_SINCE: Final = 13
_NO_ID: Final = UUID(int=0)


def handle_at_once(request: Request, broker: Broker) -> Response | None:
    """Append a single batch and respond; return None if `handle` has to do it.

    The fast path of `handle`, for nearly all requests. None is returned if the response
    may have to wait for a replica or the disk, or if admission has refused or throttled
    the request. None is also returned if the partition is not here, if many requests
    wait for its records, or if validation takes more than one step.
    """
    version = request.api_version
    wanted = decode_single_produce(version, request.frame, request.body_offset)
    task = request.task
    if wanted is None or task.refusal is not None or task.throttled_until_ns:
        return None
    acks, _, named, index, records = wanted
    topic = named if isinstance(named, str) else broker.metadata_cache.name(named) or ""
    replicas = broker.replicas
    # A plain tuple equals the key, and is created without a call.
    partition = replicas.partitions.get((topic, index))  # type: ignore[call-overload]  # see above
    if broker.authorizer is not None and not allowed_on_topic(
        request, broker, AclOperation.WRITE, topic, logs_denial=False
    ):
        return None
    waiting = replicas.fetch_purgatory.size
    if (
        partition is None
        or (topic is not named and partition.topic_id != named)
        or (acks != 1 and (acks != ALL_REPLICAS or partition.followers))
        or topic in INTERNAL_TOPICS
        or partition.log.flushes
        or (waiting and replicas.concerns_many(partition.key))
    ):
        return None
    now_ms = broker.now_ms()
    try:
        prepared = None
        size = len(records)
        if size > HEADER_SIZE and records[CODEC_AT] & TRANSACTIONAL:
            return None
        if size > _PACKED_STEP_BYTES and records[CODEC_AT] & CODEC_MASK:
            return None
        if not _is_small(records):
            partition.check_append(acks)
            prepared = in_one_step(partition.log.prepare(records, now_ms))
            if prepared is None:
                return None
        appended = partition.append(records, acks, now_ms, prepared)
    except KafkaError as error:
        row = _refused(broker, version, partition.key, error)
        request.error_code = row.error_code
        answers = [(named, [row])]
        return (encode_produce_response(version, request.correlation_id, answers),)
    if waiting or replicas.produce_purgatory.size:
        replicas.note_append(partition)
    return (
        encode_single_produce(
            version,
            request.correlation_id,
            named,
            index,
            appended[0],
            appended[2],
            appended[3],
        ),
    )


def _is_small(records: Buffer) -> bool:
    """Return whether a batch is uncompressed and small enough for a single step."""
    return (
        HEADER_SIZE < len(records) < _SMALL_BYTES and not records[CODEC_AT] & CODEC_MASK
    )


async def handle(request: Request, body: ProduceRequest, broker: Broker) -> Response:
    """Append each partition's batch, wait as ``acks`` requires, and respond."""
    produce = _Produce(request, body.acks, broker)
    for key, records in (await _verified_batches(body, produce)).items():
        if produce.rows:
            await preempt()
        await produce.append(key, records)
    for key, partition in produce.to_flush.items():
        try:
            await broker.flush.by_handler(partition.log)
        except KafkaError as error:
            produce.fail(key, error)
        else:
            broker.replicas.note_flush(partition)
    if produce.acks == ALL_REPLICAS and produce.required:
        await _wait_for_replicas(produce, broker, to_ms(body.timeout))
    answers = await produce.answers()
    if broker.client_quotas.is_active:
        broker.client_quotas.count_produce(request, is_answered=produce.acks != 0)
    if produce.acks == 0:
        return CLOSE if request.error_code else NO_RESPONSE
    reported_ms = throttle_ms(request, broker.now_ns())
    encoding = encode_produce_in_steps(
        request.api_version, request.correlation_id, list(answers.items()), reported_ms
    )
    return (await preemptibly(encoding),)


async def _batches(
    body: ProduceRequest, produce: _Produce
) -> dict[TopicPartition, Buffer]:
    """Return the last batch of each partition, as in Kafka's map."""
    batches: dict[TopicPartition, Buffer] = {}
    by_id = produce.request.api_version >= _ID_SINCE
    pace = Pace()
    async for topic in pace.over(body.topic_data):
        topic_id = topic.topic_id or _NO_ID
        name = produce.broker.metadata_cache.name(topic_id) if by_id else topic.name
        if by_id and name is not None:
            produce.ids[name] = topic_id
        async for data in pace.over(topic.partition_data):
            if name is None:
                produce.fail_unknown(topic_id, data.index)
            else:
                batches[TopicPartition(name, data.index)] = data.records or b""
    return batches


async def _verified_batches(
    body: ProduceRequest, produce: _Produce
) -> dict[TopicPartition, Buffer]:
    """Return the batches; none if the transaction's verification has failed."""
    batches = await _batches(body, produce)
    try:
        await _verify(body, batches, produce)
    except KafkaError as error:
        async for key in in_steps(batches):
            produce.fail(key, error)
        return {}
    return batches


async def _verify(
    body: ProduceRequest, batches: Mapping[TopicPartition, Buffer], produce: _Produce
) -> None:
    """Get the guards of transactional batches; raise an error of the whole request."""
    found: dict[TopicPartition, Sending] = {}
    request, broker = produce.request, produce.broker
    is_checked = False
    async for key, records in in_steps(batches.items()):
        if not _is_transactional(records):
            continue
        if body.transactional_id is None:
            raise KafkaError(
                ErrorCode.transactional_id_authorization_failed,
                "a transactional batch without a transactional id",
            )
        if not is_checked:
            is_checked, kind = True, ResourceType.TRANSACTIONAL_ID
            check(request, broker, AclOperation.WRITE, kind, body.transactional_id)
        if not allowed_on_topic(
            request, broker, AclOperation.WRITE, key.topic, logs_denial=False
        ):
            continue
        producer_id, epoch, sequence = HEADER.unpack_from(records)[9:12]
        if producer_id >= 0:
            found[key] = Sending(producer_id, epoch, sequence)
    if not found:
        return
    if len({(each.producer_id, each.producer_epoch) for each in found.values()}) > 1:
        raise KafkaError(
            ErrorCode.invalid_producer_id_mapping, "batches of several producers"
        )
    produce.guards = await verified_or_retried(
        body.transactional_id or "",
        found,
        broker,
        request,
        support=_support(request.api_version),
    )


def _support(version: int) -> TransactionSupport:
    if version >= _IMPLICIT_ADD_SINCE:
        return TransactionSupport.IMPLICIT_ADD
    if version >= _ABORTABLE_SINCE:
        return TransactionSupport.ABORTABLE_ERROR
    return TransactionSupport.NONE


def _is_transactional(records: Buffer) -> bool:
    """Return whether the records are a transactional batch."""
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_AT] == MAGIC
        and bool(records[CODEC_AT] & TRANSACTIONAL)
    )


async def _wait_for_replicas(produce: _Produce, broker: Broker, wait_ms: int) -> None:
    """Wait until the ISR has the appended records, or an error occurs."""
    replicas, required = broker.replicas, produce.required
    delayed = DelayedProduce(replicas.partitions, required)
    deadline_ns = broker.now_ns() + max(wait_ms, 0) * _NS_PER_MS
    await wait_in(
        replicas.produce_purgatory, produce.request, delayed, required, deadline_ns
    )
    async for key in in_steps(tuple(required)):
        error = delayed.error_of(key)
        if error is not ErrorCode.none:
            produce.fail(key, KafkaError(error))


class _Produce:
    """The state of one request: a row per partition, in the order of the request.

    ``required`` has the appended records that all in-sync replicas must have. ``ids``
    are the request's topic ids by name; ``unknown`` has a row for each partition of an
    unknown id.
    """

    __slots__ = (
        "acks",
        "broker",
        "guards",
        "ids",
        "request",
        "required",
        "rows",
        "to_flush",
        "unknown",
    )

    def __init__(self, request: Request, acks: int, broker: Broker) -> None:
        self.broker = broker
        self.request = request
        self.guards: dict[TopicPartition, Verified] = {}
        self.ids: dict[str, UUID] = {}
        self.unknown: dict[tuple[UUID, int], ProducePartition] = {}
        self.acks = acks
        self.rows: dict[TopicPartition, ProducePartition] = {}
        self.required: dict[TopicPartition, Required] = {}
        self.to_flush: dict[TopicPartition, Partition] = {}

    async def append(self, key: TopicPartition, records: Buffer) -> None:
        """Append one partition's batch, and record the outcome in a row.

        The request can be preempted during the validation of records.
        """
        broker = self.broker
        now_ms = broker.now_ms()
        try:
            check_topic(self.request, broker, AclOperation.WRITE, key.topic)
            guard = self._guard(key)
            partition = broker.replicas.get(key)
            if self.ids and self.ids[key.topic] != partition.topic_id:
                raise KafkaError(ErrorCode.unknown_topic_id)
            self._check(key.topic, records)
            partition.check_append(self.acks)
            prepared = None
            if not _is_small(records):
                prepared = await preemptibly(
                    partition.log.prepare(records, now_ms),
                    broker.replicas.large_windows,
                )
            appended = partition.append(records, self.acks, now_ms, prepared, guard)
        except KafkaError as error:
            self.rows[key] = _refused(broker, self.request.api_version, key, error)
            return
        self.rows[key] = ProducePartition(
            key.partition, 0, appended[0], appended[2], appended[3]
        )
        if self.acks == ALL_REPLICAS:
            self.required[key] = Required.by(partition.log, appended[1])
        if partition.withheld.any:
            self.to_flush[key] = partition
        if broker.replicas.concerns_many(key):
            await preemptibly(broker.replicas.noting_append(partition))
        else:
            broker.replicas.note_append(partition)

    def fail(self, key: TopicPartition, error: KafkaError) -> None:
        """Set the error of a partition, also after a successful append."""
        self.required.pop(key, None)
        version = self.request.api_version
        self.rows[key] = _refused(self.broker, version, key, error)

    async def answers(self) -> dict[str | UUID, list[ProducePartition]]:
        """Return the rows by topic, and record the first error of the request."""
        request, answers = self.request, dict[str | UUID, list[ProducePartition]]()
        async for key, row in in_steps(self.rows.items()):
            answers.setdefault(self.ids.get(key.topic, key.topic), []).append(row)
            request.error_code = request.error_code or row.error_code
        async for (topic_id, _), row in in_steps(self.unknown.items()):
            answers.setdefault(topic_id, []).append(row)
            request.error_code = request.error_code or row.error_code
        return answers

    def fail_unknown(self, topic_id: UUID, index: int) -> None:
        """Set the error of a partition of an unknown topic id."""
        key = TopicPartition("", index)
        error = KafkaError(ErrorCode.unknown_topic_id)
        version = self.request.api_version
        self.unknown[topic_id, index] = _refused(self.broker, version, key, error)

    def _guard(self, key: TopicPartition) -> VerificationGuard | None:
        """Return the guard of a batch; raise the error of its verification."""
        found = self.guards.get(key)
        if not isinstance(found, ErrorCode):
            return found
        is_ending = found is ErrorCode.concurrent_transactions
        if found in TRY_AGAIN and not (
            is_ending and self.request.api_version >= _IMPLICIT_ADD_SINCE
        ):
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"the transaction cannot be verified at present: {found.name}",
            )
        raise KafkaError(found, "the partition was not added to the transaction")

    def _check(self, topic: str, records: Buffer) -> None:
        if not -1 <= self.acks <= 1:
            check_framing(records)
            raise KafkaError(
                ErrorCode.invalid_required_acks,
                f"acks is {self.acks}, expected -1 to 1",
            )
        if topic in INTERNAL_TOPICS and self.request.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"{topic} is an internal topic"
            )


def _is_answered(body: ProduceRequest) -> bool:
    return body.acks != 0


def _refused(
    broker: Broker, version: int, key: TopicPartition, error: KafkaError
) -> ProducePartition:
    code = error.code
    if version < _STORAGE_ERROR_SINCE and code is ErrorCode.kafka_storage_error:
        code = ErrorCode.not_leader_or_follower
    leader = None
    if code is ErrorCode.not_leader_or_follower:
        leader = broker.current_leader(key)
    return ProducePartition(
        key.partition,
        int(code),
        -1,
        error_message=error.message,
        record_errors=error.records if isinstance(error, InvalidRecords) else (),
        current_leader=leader,
    )


API: Final = Api(
    key=ApiKey.PRODUCE,
    versions=(3, 13),
    advertised_from=0,
    request_class=PRODUCE,
    handle=handle,
    access=in_handler(
        Check(AclOperation.WRITE, ResourceType.TOPIC),
        Check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    ),
    handle_at_once=handle_at_once,
    keeps_frame=True,
    error_answer=ErrorAnswer(
        rows={
            "responses": ("topic_data",),
            "partition_responses": ("partition_data",),
        },
        is_answered=_is_answered,
    ),
)
