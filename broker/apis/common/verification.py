"""Guards for batches that may begin a transaction: Produce and TxnOffsetCommit.

Kafka's ``maybeSendPartitionsToTransactionCoordinator``, the error codes of
``AddPartitionsToTxnManager``, and the retries of ``handleProduceAppend``. A producer of
the second protocol begins its next transaction as soon as the previous one is decided.
Markers may then still be in flight, so additions are retried.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.apis.common.parked_handlers import pause
from broker.config import (
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_PARTITION_VERIFICATION_ENABLE,
)
from broker.log.transactions import UNVERIFIED, VerificationGuard
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.requests.request import Request
from planes.slices import in_steps

_NS_PER_MS: Final = 1_000_000
# Retriable errors of the coordinator.
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
    # The client supports TRANSACTION_ABORTABLE.
    ABORTABLE_ERROR = 1
    # The leader adds partitions for the client.
    IMPLICIT_ADD = 2


class Sending(NamedTuple):
    """The header fields of a producer's batch for one partition."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


# A guard for the append, None if none is required, or an error.
Verified: TypeAlias = "VerificationGuard | ErrorCode | None"


async def verified(
    transactional_id: str,
    batches: Mapping[TopicPartition, Sending],
    broker: Broker,
    support: TransactionSupport,
) -> dict[TopicPartition, Verified]:
    """Return a guard or error for each partition led here; batches of one producer."""
    verdicts: dict[TopicPartition, Verified] = {}
    unverified: dict[TopicPartition, VerificationGuard] = {}
    adds = support is TransactionSupport.IMPLICIT_ADD
    verifies = adds or broker.config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]
    async for key, sending in in_steps(batches.items()):
        partition = broker.replicas.partitions.get(key)
        if partition is None or not partition.is_leader:
            # The append reports the error.
            continue
        if not verifies:
            verdicts[key] = UNVERIFIED
            continue
        guard = partition.log.producers.begin_verification(
            *sending, broker.now_ms(), begins_at_zero=adds
        )
        verdicts[key] = guard
        if guard is not None:
            unverified[key] = guard
    if not unverified:
        return verdicts
    producer_id, epoch, _ = batches[next(iter(unverified))]
    found = await broker.verify_transaction(
        transactional_id, producer_id, epoch, tuple(unverified), adds=adds
    )
    async for key in in_steps(unverified):
        code = found[key]
        if code is not ErrorCode.none:
            verdicts[key] = _known_to_client(code, support)
    return verdicts


async def verified_or_retried(
    transactional_id: str,
    batches: Mapping[TopicPartition, Sending],
    broker: Broker,
    request: Request,
    support: TransactionSupport,
) -> dict[TopicPartition, Verified]:
    """Verify as `verified`; retry additions while the previous transaction is ending.

    :raises ConnectionEnded: if the connection ends meanwhile.
    """
    config = broker.config
    limit_ms = min(
        config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS], config[REQUEST_TIMEOUT_MS]
    )
    backoff_ns = config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS] * _NS_PER_MS
    ends_ns = broker.now_ns() + limit_ms * _NS_PER_MS
    while True:
        verdicts = await verified(transactional_id, batches, broker, support)
        if (
            support is not TransactionSupport.IMPLICIT_ADD
            or broker.now_ns() >= ends_ns
            or not await _has_concurrent(verdicts)
        ):
            return verdicts
        until_ns = broker.now_ns() + backoff_ns
        await pause(broker.addition_purgatory, request, until_ns)


async def _has_concurrent(verdicts: Mapping[TopicPartition, Verified]) -> bool:
    async for verdict in in_steps(verdicts.values()):
        if verdict is ErrorCode.concurrent_transactions:
            return True
    return False


def _known_to_client(code: ErrorCode, support: TransactionSupport) -> ErrorCode:
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and not support:
        return ErrorCode.invalid_txn_state
    return code
