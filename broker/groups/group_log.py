"""What the coordinator asks of the log of groups, ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from broker.groups.state.messages import Record
from broker.protocol.errors import ErrorCode


class GroupLog(Protocol):
    """The partitions of ``__consumer_offsets`` that this broker leads.

    ``unreadable_batches`` counts those that ``replay`` had to pass over.
    """

    unreadable_batches: int

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append the records as one batch, replicated as acks=all is.

        ``done`` is called exactly once, perhaps before this returns, in the order of
        the appends to a partition as far as they succeed. Nothing is raised.
        """

    def replay(self, partition: int) -> Iterator[Record | None]:
        """Iterate over what the partition holds when this begins, oldest first.

        None is work that gave no record. Each takes bounded work, but for reading and
        unpacking bytes. Raises KAFKA_STORAGE_ERROR.
        """


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Say in a coordinator's words why an append failed.

    Kafka: ``appendGroupMetadataErrorToResponseError``. Clients know the errors of the
    group protocol and find the coordinator again, or retry, by these.
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
