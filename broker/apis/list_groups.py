"""ListGroups (16): the groups that this broker coordinates.

Versions: 0-5.

Behaviour:
- COORDINATOR_LOAD_IN_PROGRESS, with the groups known so far, while partitions of
  ``__consumer_offsets`` are being read.

Version notes:
- v3 is flexible; v4 filters by state (KIP-518), v5 by type (KIP-848): all are classic.

Left out: nothing.
"""

from __future__ import annotations

from broker.apis.answer import Row, answer
from broker.cluster.broker_state import Broker
from broker.groups.coordinator import CLASSIC
from broker.request import Request
from broker.wire.codec import Entity


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """List the groups that pass the filters."""
    error, groups = broker.groups.list_groups(
        getattr(body, "states_filter", ()), getattr(body, "types_filter", ())
    )
    return answer(
        error_code=error,
        groups=[
            Row(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in groups
        ],
    )
