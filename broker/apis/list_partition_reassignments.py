"""ListPartitionReassignments (46): which reassignments are under way (KIP-455).

Versions: 0.

Behaviour: none ever is, since replicas are not moved: an empty list, as Kafka answers
for partitions that are not being reassigned.

Version notes: none.

Left out: nothing that there could be.
"""

from __future__ import annotations

from broker.apis.answer import Row, answer
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode
from broker.request import Request
from broker.wire.codec import Entity


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Answer that there are none."""
    return answer(error_code=ErrorCode.none, error_message=None, topics=[])
