"""ControlledShutdown (7), versions 0-3: a broker's request to move its leaderships.

Version 0 has a request header without a client id, 2 adds the broker epoch (KIP-380),
3 is flexible. Follows Kafka 3.9's ``ControlledShutdownRequest.json`` and
``ControlledShutdownResponse.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.message import AnyRequest
from broker.protocol.schemas.message import ControllerMessage, Int32, Int64, since


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(
    ControllerMessage, AnyRequest["ControlledShutdownResponse"]
):
    """The whole request: the broker that is about to stop."""

    api_key: ClassVar = ApiKey.CONTROLLED_SHUTDOWN
    last_version: ClassVar = 3
    kind: ClassVar = EntityType.request

    broker_id: Int32
    broker_epoch: Annotated[Int64, since(2)] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition:
    """A partition that the stopping broker still leads."""

    topic_name: str
    partition_index: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(ControllerMessage):
    """The whole response."""

    api_key: ClassVar = ApiKey.CONTROLLED_SHUTDOWN
    last_version: ClassVar = 3
    kind: ClassVar = EntityType.response

    error_code: ErrorCode
    remaining_partitions: tuple[RemainingPartition, ...] = ()
