"""Verification that partitions belong to a producer's ongoing transaction (KIP-890).

A leader queries the transaction coordinator before a transaction begins in a partition.
Otherwise a late batch could begin a transaction that never ends. Clients of
``transaction.version`` 2 add no partitions themselves: the leader adds them instead of
verifying them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class VerifyTransaction(Protocol):
    """Query of the coordinator, with an error code per partition: AddPartitionsToTxn 5.

    Codes are those of Kafka: TRANSACTION_ABORTABLE for a partition that is not part of
    the transaction, PRODUCER_FENCED for an old epoch, CONCURRENT_TRANSACTIONS while the
    transaction ends, INVALID_PRODUCER_ID_MAPPING, and errors such as NOT_COORDINATOR.
    Raises nothing. A handler awaits the result, and may be parked meanwhile.
    """

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Verify the partitions, or add them."""
