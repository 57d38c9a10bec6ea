"""Guards for batches that may begin a transaction: Produce and TxnOffsetCommit.

Kafka's ``maybeSendPartitionsToTransactionCoordinator`` and the error codes of
``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

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
    *,
    knows_abortable: bool,
) -> dict[TopicPartition, Verified]:
    """Return a guard for each partition led here; all batches are of one producer.

    ``knows_abortable``: the client knows TRANSACTION_ABORTABLE.
    """
    verdicts: dict[TopicPartition, Verified] = {}
    asked: dict[TopicPartition, VerificationGuard] = {}
    verifies = broker.config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]
    async for key, sending in in_steps(batches.items()):
        partition = broker.replicas.partitions.get(key)
        if partition is None or not partition.is_leader:
            # The append reports it.
            continue
        if not verifies:
            verdicts[key] = UNVERIFIED
            continue
        guard = partition.log.producers.begin_verification(*sending, broker.now_ms())
        verdicts[key] = guard
        if guard is not None:
            asked[key] = guard
    if not asked:
        return verdicts
    producer_id, epoch, _ = batches[next(iter(asked))]
    found = await broker.verify_transaction(
        transactional_id, producer_id, epoch, tuple(asked)
    )
    async for key in in_steps(asked):
        code = found[key]
        if code is not ErrorCode.none:
            verdicts[key] = _known_to_client(code, knows_abortable)
    return verdicts


def _known_to_client(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and not knows_abortable:
        return ErrorCode.invalid_txn_state
    return code
