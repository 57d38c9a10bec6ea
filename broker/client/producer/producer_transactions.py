"""Transactions of a producer: the transactional part of Kafka's ``TransactionManager``.

The producer has one transaction at a time. It uses one of two protocols (KIP-890), by
the cluster's ``transaction.version`` when the transaction begins:

- The first: records are sent once their partition has been added to the transaction at
  its coordinator; `Transactions.run` adds partitions that have waiting batches.
- The second, from version 2 on: leaders add the partitions of Produce 12 and
  TxnOffsetCommit 5. EndTxn 5 returns a new epoch for the next transaction, which
  excludes late batches of this one; sequence numbers begin again.

There are three kinds of errors:

- A retriable error is retried, until ``max.block.ms`` has passed in a call.
- Any other error of a batch or a request makes the transaction *abortable*: every call
  raises the error until `abort`. In the first protocol the epoch is then incremented,
  so that late batches of the failed transaction are refused.
- A *fatal* error (PRODUCER_FENCED: another producer has the transactional id; or the id
  may not be used) ends the producer.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.consumer_commits import GroupMetadata, OffsetAndMetadata
from broker.client.network_client import Address, NetworkClient
from broker.client.partitions import by_topic
from broker.client.producer.accumulator import RecordAccumulator
from broker.client.producer.producer_batch import ANONYMOUS, Identity, ProducerBatch
from broker.client.producer.producer_config import (
    MAX_BLOCK_MS,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL_ID,
)
from broker.client.producer.sequences import Sequences
from broker.client.retriable_errors import COORDINATOR_MOVED, check, is_retriable
from broker.client.signals import Signal
from broker.client.versions import FIRST_PROTOCOL, NO_LIMITS, TRANSACTION_VERSION
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from broker.protocol.messages.end_txn import EndTxnRequest
from broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from broker.protocol.messages.init_producer_id import InitProducerIdRequest
from broker.protocol.messages.message import AnyRequest, AnyResponse
from broker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from broker.protocol.topic_partition import TopicPartition

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_SECOND_PROTOCOL_SINCE: Final = 2
_FENCED: Final = frozenset(
    {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch}
)
FATAL: Final = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.unsupported_version,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_transaction_timeout,
    }
)
# Additional retriable error: this producer's last transaction is still being ended.
_PASSING: Final = frozenset({ErrorCode.concurrent_transactions})
R = TypeVar("R", bound=AnyResponse)


class State(enum.Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "not initialized"
    READY = "without a transaction"
    OPEN = "in a transaction"
    ENDING = "ending a transaction"
    ABORTABLE = "in a transaction that must be aborted"
    FATAL = "at its end"


class Transactions:
    """The transactions of one producer.

    ``on_change`` is called when further batches may be sent; ``on_failure`` is called
    after a fatal error.
    """

    def __init__(
        self,
        config: ClientConfig,
        client: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        rng: random.Random,
    ) -> None:
        transactional_id = config[TRANSACTIONAL_ID]
        assert transactional_id is not None
        self._id: str = transactional_id
        self._timeout = timedelta(milliseconds=config[TRANSACTION_TIMEOUT_MS])
        self._max_block_s = config.seconds(MAX_BLOCK_MS)
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._backoff = retry_backoff(config, rng)
        self._coordinator: Address | None = None
        self._group_coordinators: dict[str, Address] = {}
        self._state = State.UNINITIALIZED
        self._identity = Identity()
        self._failure: KafkaError | None = None
        self._needs_epoch = False
        # Partitions of the transaction, and partitions to be added to it.
        self._added: set[TopicPartition] = set()
        self._wanted: set[TopicPartition] = set()
        self._has_offsets = False
        # Number of the transaction, by which late additions to it are dropped.
        self._number = 0
        self._is_second_protocol = False
        self._one_at_a_time = trio.Lock()
        self._adding = Signal()
        self.on_change: Callable[[], None] = _do_nothing
        self.on_failure: Callable[[KafkaError], None] = _raise_error
        accumulator.on_failure = self._batch_failed

    # ---- operations -----------------------------------------------------------------

    async def init(self) -> None:
        """Request an id and epoch; fence earlier producers, end their transaction."""
        if self._state is State.UNINITIALIZED:
            await self._initialize()
        else:
            await trio.lowlevel.checkpoint()

    async def begin(self) -> None:
        """Begin a transaction, without a request to the coordinator."""
        await trio.lowlevel.checkpoint()
        self._require(State.READY)
        level = self._client.feature_level(TRANSACTION_VERSION)
        self._is_second_protocol = level >= _SECOND_PROTOCOL_SINCE
        self._state = State.OPEN

    async def commit(self) -> None:
        """Wait for all records, then commit; raises the error of a failed record."""
        self._require(State.OPEN)
        await self._accumulator.flush()
        self._require(State.OPEN)
        self._state = State.ENDING
        try:
            await self._end(commits=True)
        except KafkaError as error:
            if self._state is State.ENDING:
                # After a time-out the commit may be repeated.
                self._state = State.OPEN
                if not is_retriable(error.code):
                    self._failed(error)
            raise

    async def abort(self) -> None:
        """Drop unsent records, then abort."""
        if self._state is not State.ABORTABLE:
            self._require(State.OPEN)
        self._state = State.ENDING
        self._accumulator.abort_unsent(
            KafkaError(ErrorCode.transaction_abortable, "the transaction is aborted")
        )
        await self._accumulator.flush()
        try:
            await self._end(commits=False)
            if self._needs_epoch and not self._is_second_protocol:
                await self._initialize()
        except KafkaError as error:
            if self._state is not State.FATAL:
                self._state, self._failure = State.ABORTABLE, error
            raise

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction."""
        self._require(State.OPEN)
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        if not self._is_second_protocol:
            await self._add_offsets(group.group_id)
        self._has_offsets = True
        producer_id, epoch, _ = self._identity
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), (offset, metadata) in offsets.items():
            row = TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, []).append(row)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )
        await self._insist(lambda: self._commit_offsets(request))

    async def _add_offsets(self, group_id: str) -> None:
        """Add the partition of a group's offsets to the transaction."""
        add = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            group_id=group_id,
        )

        async def added() -> None:
            answer = await self._call(add)
            check(answer.error_code, f"offsets of {group_id}")

        await self._insist(added)

    async def _commit_offsets(self, request: TxnOffsetCommitRequest) -> None:
        group = request.group_id
        known = self._group_coordinators.get(group)
        address = known or await self._find(group, _GROUP_KEY)
        self._group_coordinators[group] = address
        try:
            answer = await self._client.call(
                address, request, newest=self.newest_versions
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    check(each.error_code, f"{topic.name}-{each.partition_index}")
        except KafkaError as error:
            if error.code in COORDINATOR_MOVED:
                self._group_coordinators.pop(group, None)
            raise

    # ---- interface of the sender ----------------------------------------------------

    def check_open(self) -> None:
        """Raise unless a record may be sent."""
        self._require(State.OPEN)

    @property
    def newest_versions(self) -> Mapping[ApiKey, int]:
        """Upper bounds of versions in the transaction's protocol."""
        return NO_LIMITS if self._is_second_protocol else FIRST_PROTOCOL

    def may_send(self, partition: TopicPartition, sequences: Sequences) -> bool:
        """Return whether a partition is part of the transaction; otherwise add it.

        The producer's identity is assigned to its batches.
        """
        if self._is_second_protocol and self._state is State.OPEN:
            # The leader adds the partition.
            self._added.add(partition)
        if partition not in self._added:
            if partition not in self._wanted and self._state is State.OPEN:
                self._wanted.add(partition)
                self._adding.notify()
            return False
        if sequences.needs_identity:
            sequences.identify(self._identity.producer_id, self._identity.epoch)
        return True

    async def run(self) -> None:
        """Add partitions to the transaction, until cancelled."""
        while True:
            await self._adding.wait()
            while self._wanted and self._state is State.OPEN:
                wanted = sorted(self._wanted)
                try:
                    await self._insist(partial(self._add, self._number, wanted))
                except KafkaError:
                    break
                self.on_change()

    async def _add(self, number: int, partitions: list[TopicPartition]) -> None:
        """Add partitions to the transaction of this number, unless it has ended."""
        async with self._one_at_a_time:
            if number == self._number and self._state is State.OPEN:
                await self._add_now(partitions)

    async def _add_now(self, partitions: list[TopicPartition]) -> None:
        answer = await self._call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._identity.producer_id,
                v3_and_below_producer_epoch=self._identity.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=numbers)
                    for name, numbers in by_topic(partitions).items()
                ],
            )
        )
        for topic in answer.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                what = f"{topic.name}-{each.partition_index}"
                check(each.partition_error_code, what)
        self._wanted.difference_update(partitions)
        self._added.update(partitions)

    # ---- internals ------------------------------------------------------------------

    def _require(self, state: State) -> None:
        if self._failure is not None:
            raise KafkaError(self._failure.code, self._failure.message)
        if self._state is not state:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"the producer is {self._state.value}, not {state.value}",
            )

    async def _initialize(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout=self._timeout,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
        )

        async def initialized() -> None:
            answer = await self._call(request)
            check(answer.error_code, f"transactional id {self._id}")
            self._identify(answer.producer_id, answer.producer_epoch)

        await self._insist(initialized)
        self._reset()

    def _identify(self, producer_id: int, epoch: int) -> None:
        """Set the producer id and epoch, and restart all sequence numbers."""
        self._identity = Identity(producer_id, epoch, 0)
        for sequences in self._accumulator.all_sequences():
            sequences.drop_identity()
        self._needs_epoch = False

    async def _end(self, *, commits: bool) -> None:
        if self._added or self._wanted or self._has_offsets:
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                committed=commits,
            )

            async def ended() -> None:
                async with self._one_at_a_time:
                    answer = await self._call(request)
                check(answer.error_code, "the transaction cannot be ended")
                if self._is_second_protocol:
                    self._identify(answer.producer_id, answer.producer_epoch)

            await self._insist(ended)
        self._reset()

    def _reset(self) -> None:
        """Clear the state of the transaction."""
        self._state = State.READY
        self._failure = None
        self._number += 1
        self._added.clear()
        self._wanted.clear()
        self._has_offsets = False

    async def _insist(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Retry until success, a final error, or the time limit."""
        until_s = trio.current_time() + self._max_block_s
        failures = 0
        while True:
            try:
                await attempt()
            except KafkaError as error:
                failures += 1
                if error.code in COORDINATOR_MOVED:
                    self._coordinator = None
                wait_s = self._backoff.after(failures)
                passing = is_retriable(error.code) or error.code in _PASSING
                if not passing or trio.current_time() + wait_s >= until_s:
                    raise self._failed(error) from error
                await trio.sleep(wait_s)
            else:
                return

    async def _call(self, request: AnyRequest[R]) -> R:
        """Send a request to the coordinator, which is looked up if necessary."""
        address = self._coordinator or await self._find(self._id, _TRANSACTION_KEY)
        self._coordinator = address
        return await self._client.call(address, request, newest=self.newest_versions)

    async def _find(self, key: str, kind: int) -> Address:
        request = FindCoordinatorRequest(key=key, key_type=kind)
        found = await self._client.call(self._metadata.any_address(), request)
        check(found.error_code, found.error_message)
        return Address(found.host, found.port, "coordinator")

    def _failed(self, error: KafkaError) -> KafkaError:
        """Apply the error of a request to the state; return the error to raise."""
        if error.code in _FENCED:
            error = KafkaError(ErrorCode.producer_fenced, error.message)
        if error.code in FATAL:
            self._state, self._failure = State.FATAL, error
            self.on_failure(error)
        elif self._state is State.OPEN:
            self._state, self._failure = State.ABORTABLE, error
            self._accumulator.abort_unsent(error)
        return error

    def _batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Apply the failure of a batch, whose records may be lost, to the state."""
        if self._state is State.FATAL:
            return
        if batch.identity is not ANONYMOUS:
            # The batch may be written late, or leave a gap.
            self._needs_epoch = True
        if error.code in FATAL - {ErrorCode.invalid_txn_state}:
            self._failed(error)
        elif self._state is State.OPEN:
            self._state, self._failure = State.ABORTABLE, error


def _do_nothing() -> None:
    """Do nothing: no task waits."""


def _raise_error(error: KafkaError) -> None:
    raise error
