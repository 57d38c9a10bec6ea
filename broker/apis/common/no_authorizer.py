"""What the APIs of ACLs say where there is no authorizer."""

from __future__ import annotations

from typing import Any, Final

from broker.protocol.errors import ErrorCode

SECURITY_DISABLED: Final[dict[str, Any]] = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "No Authorizer is configured on the broker.",
}
