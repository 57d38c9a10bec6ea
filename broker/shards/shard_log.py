"""The coordinators' interface to their internal topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from broker.protocol.errors import ErrorCode
from broker.shards.effects import InTransaction, Record

# Keys and values; the value of a tombstone is None.
Records: TypeAlias = Sequence[tuple[bytes, bytes | None]]
RECORDS_PER_LIST: Final = 64


class TransactionalRecords(NamedTuple):
    """Records that take effect when the producer's transaction commits."""

    producer_id: int
    records: Records


class TransactionEnd(NamedTuple):
    """The marker of a producer's transaction."""

    producer_id: int
    is_commit: bool


Replayed: TypeAlias = Records | TransactionalRecords | TransactionEnd
BYTES_PER_LIST: Final = 64 << 10


class ShardLog(Protocol):
    """The partitions of an internal topic that this broker leads.

    ``unreadable_batches`` counts batches that ``replay`` has skipped.
    """

    unreadable_batches: int

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
        transaction: InTransaction | None = None,
    ) -> None:
        """Append the records as one batch, replicated as with acks=all.

        ``done`` is called exactly once, perhaps before this returns, in the order of
        the appends to a partition as far as they succeed. Nothing is raised.
        """

    def is_empty(self, partition: int) -> bool:
        """Return whether the partition holds no record. Takes constant time."""

    def replay(self, partition: int) -> Iterator[Records]:
        """Iterate over the records that the partition holds when this begins.

        The oldest come first, in lists of at most `RECORDS_PER_LIST` records. A list
        exceeds `BYTES_PER_LIST` by its last record only. An empty list stands for work
        without a record. Apart from reading and decompressing bytes, each list takes
        bounded work. Raises KAFKA_STORAGE_ERROR. Omits records of transactions.
        """

    def replay_all(self, partition: int) -> Iterator[Replayed]:
        """Iterate as `replay`, with the records and ends of transactions."""


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return the coordinator's error code for a failed append.

    Kafka: ``appendGroupMetadataErrorToResponseError``, and the same in
    ``TransactionStateManager``. On these codes clients look the coordinator up again,
    or retry.
    """
    if error in (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
    ):
        return ErrorCode.coordinator_not_available
    if error in (ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error):
        return ErrorCode.not_coordinator
    if error in (
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_fetch_size,
    ):
        return ErrorCode.unknown_server_error
    return error
