"""CreateAcls (30): allow or deny principals what they ask for.

Versions: 1-3.

Behaviour: there is no authorizer, and each ACL is answered with SECURITY_DISABLED, as
Kafka does.

Version notes: v1 has pattern types (KIP-290), v2 is flexible.

Left out: an authorizer.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.answer import Row, answer
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.no_authorizer import SECURITY_DISABLED, check_known
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import Entity
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Create none."""
    await check_known(body.creations)
    return answer(
        results=[Row(**SECURITY_DISABLED) async for _ in in_steps(body.creations)]
    )


API: Final = Api(
    key=ApiKey.CREATE_ACLS,
    versions=(1, 3),
    request_class=ADMIN,
    handle=handle,
    error_answer=ErrorAnswer(rows={"results": ("creations",)}),
)
