"""SaslHandshake (17): choose a mechanism to authenticate by.

Versions: 0-1.

Behaviour: what comes here is on a connection that needs no authentication, so it is
answered with ILLEGAL_SASL_STATE, as in Kafka. The connection stays open.

Version notes: v1 says that SaslAuthenticate will follow (KIP-152).

Left out: SASL listeners.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.api import Api
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request


async def handle(
    request: Request, body: SaslHandshakeRequest, broker: Broker
) -> SaslHandshakeResponse:
    """Refuse: the connection is past authentication."""
    return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=())


API: Final = Api(
    key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), request_class=METADATA, handle=handle
)
