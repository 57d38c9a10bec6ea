"""SaslAuthenticate (36): a step of authentication.

Versions: 0-2.

Behaviour: what comes here is on a connection that needs no authentication, so it is
answered with ILLEGAL_SASL_STATE, as in Kafka. The connection stays open.

Version notes: v1 tells the life of a session (KIP-368), v2 is flexible.

Left out: SASL listeners.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.api import Api
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request


async def handle(
    request: Request, body: SaslAuthenticateRequest, broker: Broker
) -> SaslAuthenticateResponse:
    """Refuse: the connection is past authentication."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.illegal_sasl_state,
        error_message="SaslAuthenticate request received after authentication",
        auth_bytes=b"",
    )


API: Final = Api(
    key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), request_class=METADATA, handle=handle
)
