"""Guards for batches that may begin a transaction: Produce and TxnOffsetCommit.

Kafka's ``maybeSendPartitionsToTransactionCoordinator`` and the error codes of
``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.config import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from broker.log.transactions import UNVERIFIED, VerificationGuard
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from planes.slices import in_steps

# Passing errors of the coordinator.
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class TransactionSupport(enum.IntEnum):
    """A client's part in KIP-890: Kafka's ``TransactionSupportedOperation``."""

    NONE = 0
    # It knows TRANSACTION_ABORTABLE.
    ABORTABLE_ERROR = 1
    # It leaves the addition of partitions to the leader.
    IMPLICIT_ADD = 2


class Sending(NamedTuple):
    """A producer's batch for one partition, by its header."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


# A guard to append with, None where none is needed; or why nothing may be appended.
Verified: TypeAlias = "VerificationGuard | ErrorCode | None"


async def verified(
    transactional_id: str,
    batches: Mapping[TopicPartition, Sending],
    broker: Broker,
    support: TransactionSupport,
) -> dict[TopicPartition, Verified]:
    """Return a guard for each partition led here; all batches are of one producer."""
    verdicts: dict[TopicPartition, Verified] = {}
    asked: dict[TopicPartition, VerificationGuard] = {}
    adds = support is TransactionSupport.IMPLICIT_ADD
    verifies = adds or broker.config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]
    async for key, sending in in_steps(batches.items()):
        partition = broker.replicas.partitions.get(key)
        if partition is None or not partition.is_leader:
            # The append reports it.
            continue
        if not verifies:
            verdicts[key] = UNVERIFIED
            continue
        guard = partition.log.producers.begin_verification(
            *sending, broker.now_ms(), begins_at_zero=adds
        )
        verdicts[key] = guard
        if guard is not None:
            asked[key] = guard
    if not asked:
        return verdicts
    producer_id, epoch, _ = batches[next(iter(asked))]
    found = await broker.verify_transaction(
        transactional_id, producer_id, epoch, tuple(asked), adds=adds
    )
    async for key in in_steps(asked):
        code = found[key]
        if code is not ErrorCode.none:
            verdicts[key] = _known_to_client(code, support)
    return verdicts


def _known_to_client(code: ErrorCode, support: TransactionSupport) -> ErrorCode:
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and not support:
        return ErrorCode.invalid_txn_state
    return code
