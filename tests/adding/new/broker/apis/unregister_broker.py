"""UnregisterBroker (64): remove a broker's registration, which always fails here.

Versions: 0.

Behaviour:
- Each broker is BROKER_ID_NOT_REGISTERED, also for a negative id.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.requests.classifier import ADMIN
from broker.requests.request import Request


async def handle(
    request: Request, body: UnregisterBrokerRequest, broker: Broker
) -> UnregisterBrokerResponse:
    """Refuse each broker."""
    error = ErrorCode.none if body.broker_id < 0 else ErrorCode.broker_id_not_registered
    return UnregisterBrokerResponse(error_code=error, error_message=None)


API: Final = Api(
    key=ApiKey.UNREGISTER_BROKER,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
)
