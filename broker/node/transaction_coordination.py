"""Construction of a broker's transaction coordinator: settings, log, channels, duties.

The coordinator follows leadership: it coordinates a partition of
``__transaction_state`` while this broker leads that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from broker.cluster.cluster_topics import TRANSACTION_STATE_TOPIC
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.partition import Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.config import (
    REQUEST_TIMEOUT_MS,
    TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    BrokerConfig,
)
from broker.node.background import PlaneDuty
from broker.node.broker_calls_shell import BrokerCalls
from broker.node.flush_shell import QueuedFlushes
from broker.node.marker_channels import MarkerChannels, Outcome
from broker.node.replicated_shard_log import ReplicatedShardLog
from broker.node.transaction_markers import EndedTransaction, TransactionMarkers
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from broker.protocol.records import codecs
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import GROUP
from broker.requests.internal_tasks import Submit
from broker.shards.parked_answer import Waiting
from broker.shards.shards import Clock
from broker.transactions.transaction import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch
from broker.transactions.transaction_config import TransactionConfig
from broker.transactions.transaction_coordinator import TransactionCoordinator
from planes.slices import parked

Verdicts = Mapping[TopicPartition, ErrorCode]


def start_transactions(
    config: BrokerConfig,
    replicas: ReplicaManager,
    flushes: QueuedFlushes,
    *,
    partitions: int,
    clock: Clock,
    transaction_version: Callable[[], int],
    on_earlier_deadline: Callable[[], None],
) -> TransactionCoordinator:
    """Return the coordinator of a broker that leads nothing yet.

    ``partitions`` is the partition count of ``__transaction_state``: transactional ids
    must not change their partition.
    """
    log = ReplicatedShardLog(
        TRANSACTION_STATE_TOPIC,
        replicas,
        flushes,
        clock,
        codec=codecs.NONE,
        timeout_ms=config[REQUEST_TIMEOUT_MS],
        load_bytes=config[TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE],
    )
    transactions = TransactionCoordinator(
        transaction_config(config, partitions),
        log=log,
        clock=clock,
        transaction_version=transaction_version,
        on_earlier_deadline=on_earlier_deadline,
    )

    def follow(partition: Partition, leads: bool) -> None:
        name, index = partition.key
        if name == TRANSACTION_STATE_TOPIC and leads:
            transactions.elect(index, partition.leader_epoch)
        elif name == TRANSACTION_STATE_TOPIC:
            transactions.resign(index)

    replicas.leadership_listeners.append(follow)
    return transactions


def connect_markers(
    transactions: TransactionCoordinator,
    markers_here: TransactionMarkers,
    metadata_cache: MetadataCache,
    calls: BrokerCalls,
    timeout_ms: int,
) -> None:
    """Connect the coordinator's markers to the leaders of partitions."""

    def write_here(key: TopicPartition, ended: EndedTransaction, done: Outcome) -> None:
        markers_here.write(key, ended, timeout_ms, done)

    markers = transactions.markers
    channels = MarkerChannels(metadata_cache.local_id, markers, write_here, calls)
    markers.send = channels.send
    markers.exists = metadata_cache.has_partition
    markers.leader_of = partial(_live_leader, metadata_cache)


def _live_leader(cache: MetadataCache, key: TopicPartition) -> int | None:
    topic = cache.topic(key.topic)
    state = None if topic is None else topic.partitions.get(key.partition)
    return state.leader if state is not None and cache.is_alive(state.leader) else None


def transaction_duties(
    transactions: TransactionCoordinator,
    *,
    submit: Submit,
    now_ns: Callable[[], int],
    moved: Callable[[], None],
) -> Iterator[PlaneDuty]:
    """Yield the background duties of transactions, as tasks of a plane."""
    for name, next_ns, step in (
        ("transactions", transactions.next_event_ns, transactions.work),
        (
            "transaction loading",
            transactions.loading.next_ns,
            transactions.loading.work,
        ),
        (
            "transaction markers",
            transactions.markers.next_ns,
            transactions.markers.work,
        ),
    ):
        yield PlaneDuty(
            name, GROUP, next_ns, step, submit=submit, now_ns=now_ns, moved=moved
        )


class Verification:
    """Verification or addition of partitions by a transaction's coordinator (KIP-890).

    Implements `broker.node.transaction_verification.VerifyTransaction`.
    """

    def __init__(
        self,
        transactions: TransactionCoordinator,
        metadata_cache: MetadataCache,
        calls: BrokerCalls,
    ) -> None:
        self._transactions = transactions
        self._cache = metadata_cache
        self._calls = calls

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Verdicts:
        """Return an error code for each partition."""
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        index = self._transactions.partition_for(transactional_id)
        key = TopicPartition(TRANSACTION_STATE_TOPIC, index)
        leader = _live_leader(self._cache, key)
        if leader is None:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        if leader == self._cache.local_id:
            if adds:
                return await self._add_here(transactional_id, producer, partitions)
            return verify_here(
                self._transactions, transactional_id, producer, partitions
            )
        waiting = Waiting[Verdicts]()

        def done(answer: AddPartitionsToTxnResponse | KafkaError) -> None:
            waiting.settle(_verdicts(answer, partitions))

        request = _request(transactional_id, producer, partitions, adds=adds)
        self._calls.submit(leader, request, done)
        await parked(waiting.register)
        return waiting.answer()

    async def _add_here(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
    ) -> Verdicts:
        try:
            waiting = self._transactions.add_partitions(
                transactional_id,
                producer,
                frozenset(partitions),
                EPOCH_PER_TRANSACTION,
            )
        except KafkaError as refused:
            return dict.fromkeys(partitions, refused.code)
        if not waiting.answered:
            await parked(waiting.register)
        return dict.fromkeys(partitions, waiting.answer())


def verify_here(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
) -> Verdicts:
    """Return for each partition whether the producer's ongoing transaction has it."""
    try:
        added = transactions.verify(transactional_id, producer)
    except KafkaError as refused:
        return dict.fromkeys(partitions, refused.code)
    return {
        key: ErrorCode.none if key in added else ErrorCode.transaction_abortable
        for key in partitions
    }


def _request(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    *,
    adds: bool,
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=not adds,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _verdicts(
    answer: AddPartitionsToTxnResponse | KafkaError,
    partitions: Sequence[TopicPartition],
) -> Verdicts:
    if isinstance(answer, KafkaError):
        return dict.fromkeys(partitions, answer.code)
    error = answer.error_code
    if error is ErrorCode.none:
        error = ErrorCode.unknown_server_error
    found = dict.fromkeys(partitions, error)
    for result in answer.results_by_transaction:
        for topic in result.topic_results:
            for row in topic.results_by_partition:
                key = TopicPartition(topic.name, row.partition_index)
                found[key] = row.partition_error_code
    return found


def transaction_config(config: BrokerConfig, partitions: int) -> TransactionConfig:
    """Return the coordinator's part of a broker's configuration."""
    return TransactionConfig(
        transactional_id_expiration_ms=config[TRANSACTIONAL_ID_EXPIRATION_MS],
        transaction_max_timeout_ms=config[TRANSACTION_MAX_TIMEOUT_MS],
        abort_timed_out_interval_ms=config[
            TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS
        ],
        remove_expired_interval_ms=config[
            TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS
        ],
        partitions=partitions,
    )
