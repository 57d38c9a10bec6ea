"""SaslAuthenticate (36): a step of authentication.

Versions: 0-2.

Behaviour: what comes here is on a connection that needs no authentication, so it is
answered with ILLEGAL_SASL_STATE, as in Kafka. The connection stays open.

Version notes: v1 tells the life of a session (KIP-368), v2 is flexible.

Left out: SASL listeners.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kio.static.primitive import i64Timedelta

from broker.apis.common.answer import Row, answer
from broker.apis.common.api import Api
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import Entity
from broker.requests.classifier import METADATA
from broker.requests.request import Request

_NO_SESSION: Final = i64Timedelta.parse(timedelta(0))


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Refuse: the connection is past authentication."""
    return answer(
        error_code=ErrorCode.illegal_sasl_state,
        error_message="SaslAuthenticate request received after authentication",
        auth_bytes=b"",
        session_lifetime=_NO_SESSION,
    )


API: Final = Api(
    key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), request_class=METADATA, handle=handle
)
