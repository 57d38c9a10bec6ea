"""A Produce with acks=-1 that waits for the in-sync replicas.

Kafka's ``DelayedProduce``. Each partition waits for the high watermark to reach the
end of what was appended. A partition that is led elsewhere by then fails with
NOT_LEADER_OR_FOLLOWER as soon as that is known, and the others go on waiting; what
still waits at the deadline fails with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.cluster.delayed.required import Required
from broker.cluster.partition import Partition
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class DelayedProduce:
    """The partitions of one Produce; ``errors`` fills as they are settled.

    ``required`` is, for each, what all replicas in sync must have.
    """

    __slots__ = ("_partitions", "errors", "waiting")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        required: Mapping[TopicPartition, Required],
    ) -> None:
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.waiting = dict(required)
        self._partitions = partitions

    def try_complete(self) -> bool:
        """Settle the partitions that can be; True once none waits."""
        for key, required in tuple(self.waiting.items()):
            partition = self._partitions.get(key)
            outcome = (
                ErrorCode.unknown_topic_or_partition
                if partition is None
                else _outcome(partition, required)
            )
            if outcome is not None:
                self.errors[key] = outcome
                del self.waiting[key]
        return not self.waiting

    def on_expiration(self) -> None:
        """Fail what still waits."""
        self._fail(ErrorCode.request_timed_out)

    def on_failure(self) -> None:
        """Fail what still waits: nobody knows whether it is replicated."""
        self._fail(ErrorCode.unknown_server_error)

    def _fail(self, error: ErrorCode) -> None:
        self.errors.update(dict.fromkeys(self.waiting, error))
        self.waiting.clear()


def _outcome(partition: Partition, required: Required) -> ErrorCode | None:
    """Return the outcome for one partition, None while it must wait."""
    outcome = partition.acknowledged(required.offset)
    if outcome in (None, ErrorCode.none) and not required.still_stands(partition.log):
        return ErrorCode.not_leader_or_follower
    return outcome
