"""What the APIs of ACLs say where there is no authorizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from broker.protocol.errors import ErrorCode, MalformedFrame
from planes.slices import in_steps

SECURITY_DISABLED: Final[dict[str, Any]] = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "No Authorizer is configured on the broker.",
}

_KINDS: Final = (
    "resource_type",
    "resource_type_filter",
    "resource_pattern_type",
    "pattern_type_filter",
    "operation",
    "permission_type",
)
_UNKNOWN: Final = 0


async def check_known(acls: Iterable[Any]) -> None:
    """Raise `MalformedFrame` for an ACL, or a filter of them, of an unknown kind.

    The code of each kind is a byte, and 0 stands for UNKNOWN: Kafka closes the
    connection of whoever asks for that, with an authorizer or without.
    """
    async for acl in in_steps(acls):
        for name in _KINDS:
            if getattr(acl, name, None) == _UNKNOWN:
                raise MalformedFrame(f"{name} is UNKNOWN")
