"""ListPartitionReassignments (46): which reassignments are under way (KIP-455).

Versions: 0.

Behaviour: none ever is, since replicas are not moved: an empty list, as Kafka answers
for partitions that are not being reassigned.

Version notes: none.

Left out: nothing that there could be.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.answer import Row, answer
from broker.apis.common.api import Api
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import Entity
from broker.requests.classifier import ADMIN
from broker.requests.request import Request


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Answer that there are none."""
    return answer(error_code=ErrorCode.none, error_message=None, topics=[])


API: Final = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
)
