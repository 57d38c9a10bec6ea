"""Answers of the APIs of ACLs where there is no authorizer."""

from __future__ import annotations

from typing import Final

from broker.protocol.errors import ErrorCode, KafkaError, MalformedFrame

SECURITY_DISABLED: Final = KafkaError(
    ErrorCode.security_disabled, "No Authorizer is configured on the broker."
)
_UNKNOWN: Final = 0


def check_known(**kinds: int) -> None:
    """Raise `MalformedFrame` for an ACL, or a filter of them, of an unknown kind.

    The code of each kind is a byte, and 0 stands for UNKNOWN: Kafka closes the
    connection of a client that asks for that, with an authorizer or without.
    """
    for name, kind in kinds.items():
        if kind == _UNKNOWN:
            raise MalformedFrame(f"{name} is UNKNOWN")
