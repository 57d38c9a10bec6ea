"""Answers to producers with a transactional id while transactions are not served."""

from __future__ import annotations

from broker.protocol.errors import ErrorCode, KafkaError


def transactions_not_served() -> KafkaError:
    """Return the error that ends all attempts of every client.

    librdkafka repeats any other one for ever, every half second
    (``rd_kafka_txn_handle_FindCoordinator``); Java's client takes it for fatal, too.
    """
    return KafkaError(
        ErrorCode.transactional_id_authorization_failed,
        "This broker does not serve transactions.",
    )
