"""StopReplica (5): the controller stops or deletes replicas.

Versions: 0-4.

Behaviour:
- Fencing is by broker epoch and controller epoch, as in LeaderAndIsr; then by leader
  epoch of each partition: an older one is FENCED_LEADER_EPOCH, but -1 (unknown) and -2
  (the topic is being deleted) are accepted.
- A deletion removes the replica and its log, and completes the requests that wait for
  it. Stopping without deletion keeps both, as in Kafka, and only ends a follower's
  fetches.
- The request can be preempted between partitions, under the lock of state changes, as
  LeaderAndIsr.

Version notes: v1 adds broker epochs (KIP-380) and groups partitions, v2 is flexible, v3
adds leader epochs and a delete flag for each partition (KIP-570), v4 the mark of a
KRaft controller.

Left out: nothing.
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
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.requests.classifier import CONTROL
from broker.requests.entitlement import Role
from broker.requests.request import Request


async def handle(request: Request, body: Versioned, broker: Broker) -> Versioned:
    """Stop or delete the replicas."""
    command = await preemptibly(StopReplicaRequest.reading(body))
    if not await broker.is_meant(command.controller_epoch, command.broker_epoch):
        answer = StopReplicaResponse(error_code=ErrorCode.stale_broker_epoch)
    else:
        answer = await broker.replicas.stop_under_lock(command)
        await broker.checkpoint_deletions()
    return await preemptibly(answer.writing(request.api_version))


API: Final = Api(
    key=ApiKey.STOP_REPLICA,
    versions=(0, 4),
    request_class=CONTROL,
    handle=handle,
    access=CLUSTER_ACTION,
    role=Role.CONTROLLER,
)
