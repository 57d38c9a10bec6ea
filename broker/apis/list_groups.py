"""ListGroups: the groups that this broker coordinates.

Versions: 0-5.
Behaviour: COORDINATOR_LOAD_IN_PROGRESS, with what is known so far, while partitions of
``__consumer_offsets`` are being read.
Version notes: 4 filters by state (KIP-518), 5 by type (KIP-848); all are classic.
Left out: nothing.
"""

from __future__ import annotations

from kio.schema.list_groups.v5 import ListGroupsResponse
from kio.schema.list_groups.v5.response import ListedGroup
from kio.schema.types import GroupId

from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.groups.coordinator import CLASSIC
from broker.request import Request
from broker.wire.codec import Entity


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """List the groups that pass the filters."""
    error, groups = broker.groups.list_groups(
        getattr(body, "states_filter", ()), getattr(body, "types_filter", ())
    )
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        groups=tuple(
            ListedGroup(
                group_id=GroupId(group.group_id),
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in groups
        ),
    )
