"""ControlledShutdown (7): move the leaderships of a stopping broker to other brokers.

Versions: 0-3. Version 0's request header has no client id.

Behaviour: the controller moves leaderships to other in-sync replicas. The response
lists partitions that the broker still leads and that have other replicas; partitions
with one replica are left out, as in Kafka. BROKER_NOT_AVAILABLE is returned for a
broker that is not registered, STALE_BROKER_EPOCH for an earlier registration,
STALE_CONTROLLER_EPOCH if another broker is controller.

Version notes: v2 adds the broker epoch (KIP-380), v3 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.apis.common.access import CLUSTER_ACTION
from broker.apis.common.api import Api
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.controlled_shutdown_schema import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from broker.protocol.schemas.message import Versioned
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import CONTROL
from broker.requests.entitlement import Role
from broker.requests.request import Request


async def handle(request: Request, body: Versioned, broker: Broker) -> Versioned:
    """Move leaderships; return the partitions that the broker still leads."""
    command = ControlledShutdownRequest.from_wire(body)
    error = ErrorCode.none
    remaining: Sequence[TopicPartition] = ()
    try:
        remaining = await broker.coordinator.controller.controlled_shutdown(
            command.broker_id, command.broker_epoch
        )
    except KafkaError as refused:
        error = refused.code
    return ControlledShutdownResponse(
        error_code=error,
        remaining_partitions=tuple(
            RemainingPartition(topic_name=topic, partition_index=index)
            for topic, index in sorted(remaining)
        ),
    ).to_wire(request.api_version)


API: Final = Api(
    key=ApiKey.CONTROLLED_SHUTDOWN,
    versions=(0, 3),
    request_class=CONTROL,
    handle=handle,
    access=CLUSTER_ACTION,
    role=Role.BROKER,
)
