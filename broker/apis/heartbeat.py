"""Heartbeat: a member is alive, and hears whether it has to join again.

Versions: 0-4.
Behaviour: answered at once, with REBALANCE_IN_PROGRESS while others join.
Version notes: 3 brings static members (KIP-345).
Left out: nothing.
"""

from __future__ import annotations

from kio.schema.heartbeat.v4 import HeartbeatResponse

from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.request import Request
from broker.wire.codec import Entity


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Put off the end of the member's session."""
    error = broker.groups.heartbeat(
        body.group_id,
        body.member_id,
        getattr(body, "group_instance_id", None),
        body.generation_id,
    )
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=error)
