"""UpdateMetadata (6): the controller sends the metadata for clients.

Versions: 0-8.

Behaviour: fencing is by broker epoch (STALE_BROKER_EPOCH) and controller epoch
(STALE_CONTROLLER_EPOCH). An accepted request updates the metadata cache; leader -2
removes a partition. Updates and state changes exclude each other
(``replicaStateChangeLock``). The request can be preempted; the cache changes at its
end.

Version notes: v3 adds listener names, v4 offline replicas, v5 broker epochs (KIP-380),
v6 is flexible, v7 adds topic ids (KIP-516), v8 KRaft's full updates.

Left out: a full update does not take out topics that it does not name.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import CLUSTER_ACTION
from broker.apis.common.api import Api
from broker.apis.common.log_steps import preemptibly
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.message import Versioned
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from broker.requests.classifier import CONTROL
from broker.requests.entitlement import Role
from broker.requests.request import Request


async def handle(request: Request, body: Versioned, broker: Broker) -> Versioned:
    """Update the metadata cache."""
    command = await preemptibly(UpdateMetadataRequest.reading(body))
    if not await broker.is_meant(command.controller_epoch, command.broker_epoch):
        error = ErrorCode.stale_broker_epoch
    else:
        async with broker.state_change_lock:
            error = await preemptibly(broker.updating_metadata(command))
    return UpdateMetadataResponse(error_code=error).to_wire(request.api_version)


API: Final = Api(
    key=ApiKey.UPDATE_METADATA,
    versions=(0, 8),
    request_class=CONTROL,
    handle=handle,
    access=CLUSTER_ACTION,
    role=Role.CONTROLLER,
)
