"""The question whether partitions belong to a producer's ongoing transaction (KIP-890).

A leader asks the coordinator before a transaction begins in a partition, since a late
batch would otherwise begin one that nobody ends. The broker's transaction coordinator
answers it. Clients of ``transaction.version`` 2 add no partitions themselves: the
leader adds them in place of the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class VerifyTransaction(Protocol):
    """Return the coordinator's answer for each partition: AddPartitionsToTxn 5.

    Kafka's codes: TRANSACTION_ABORTABLE for a partition that is not part of the
    transaction, PRODUCER_FENCED for an old epoch, CONCURRENT_TRANSACTIONS while the
    transaction ends, INVALID_PRODUCER_ID_MAPPING; NOT_COORDINATOR and its like. Raises
    nothing. A handler awaits it, and may be parked meanwhile.
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
