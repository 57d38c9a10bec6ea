"""ControlledShutdown (7), versions 0-3: a broker asks to have its leaderships moved.

Version 0 has a request header without a client id, 2 adds the broker epoch (KIP-380),
3 is flexible. Follows Kafka 3.9's ``ControlledShutdownRequest.json`` and
``ControlledShutdownResponse.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas.convert import convert
from broker.protocol.schemas.message import (
    Field,
    Message,
    Struct,
    Versioned,
    entity_type,
)

REQUEST: Final = Message(
    api_key=ApiKey.CONTROLLED_SHUTDOWN,
    kind=EntityType.request,
    last_version=3,
    body=Struct(
        name="ControlledShutdownRequest",
        fields=(
            Field(name="broker_id", type="brokerId"),
            Field(name="broker_epoch", type="int64", since=2, default=-1),
        ),
    ),
)
_REMAINING_PARTITION: Final = Struct(
    name="RemainingPartition",
    fields=(
        Field(name="topic_name", type="topicName"),
        Field(name="partition_index", type="int32"),
    ),
)
RESPONSE: Final = Message(
    api_key=ApiKey.CONTROLLED_SHUTDOWN,
    kind=EntityType.response,
    last_version=3,
    body=Struct(
        name="ControlledShutdownResponse",
        fields=(
            Field(name="error_code", type="errorCode"),
            Field(name="remaining_partitions", type=_REMAINING_PARTITION, array=True),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest:
    """The whole request: the broker that wants to stop."""

    broker_id: int
    broker_epoch: int = -1

    @classmethod
    def from_wire(cls, entity: Any) -> ControlledShutdownRequest:
        """Return what ``entity``, of any version, says."""
        return convert(entity, cls)

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this."""
        return convert(self, entity_type(REQUEST, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition:
    """A partition that the stopping broker still leads."""

    topic_name: str
    partition_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse:
    """The whole answer."""

    error_code: ErrorCode
    remaining_partitions: tuple[RemainingPartition, ...] = ()

    @classmethod
    def from_wire(cls, entity: Any) -> ControlledShutdownResponse:
        """Return what ``entity``, of any version, says."""
        return convert(entity, cls)

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this."""
        return convert(self, entity_type(RESPONSE, version))
