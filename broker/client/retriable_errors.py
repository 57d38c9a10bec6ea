"""Errors that are retriable, and errors that mean stale metadata.

Kafka's ``RetriableException`` and ``InvalidMetadataException``. Retriability is defined
in kio's `ErrorCode`. Local errors have the codes of Java's client: NETWORK_EXCEPTION
for a lost connection, REQUEST_TIMED_OUT for an exceeded time limit.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.errors import ErrorCode, KafkaError

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.kafka_storage_error,
        ErrorCode.listener_not_found,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
    }
)
COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
    }
)
# Failed authentication, which retries cannot resolve.
REFUSED: Final = frozenset(
    {
        ErrorCode.sasl_authentication_failed,
        ErrorCode.unsupported_sasl_mechanism,
        ErrorCode.illegal_sasl_state,
    }
)


def is_retriable(code: ErrorCode) -> bool:
    """Return whether the same request may succeed later."""
    return code.retriable


def disconnected(why: str) -> KafkaError:
    """Return the error of requests whose connection was lost."""
    return KafkaError(ErrorCode.network_exception, why)


def timed_out(what: str) -> KafkaError:
    """Return the error of an operation that exceeded its time limit."""
    return KafkaError(ErrorCode.request_timed_out, what)


def check(code: ErrorCode, what: str | None = None) -> None:
    """Raise `KafkaError` unless ``code`` is NONE."""
    if code is not ErrorCode.none:
        raise KafkaError(code, what)
