"""UpdateMetadata (6), versions 0-8: the controller updates brokers' metadata caches.

Version 1 has several endpoints per broker, 2 adds the rack, 3 the listener's name, 4
offline replicas. Version 5 adds the broker epoch and partitions grouped by topic, 6 is
flexible, 7 adds topic ids, 8 the request's type and whether a KRaft controller sent it
(KIP-866). Follows Kafka 3.9's ``UpdateMetadataRequest.json`` and
``UpdateMetadataResponse.json``.

Before version 3 a listener is named after its security protocol, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.message import AnyRequest
from broker.protocol.schemas.convert import (
    Stepping,
    convert,
    converting,
    converting_all,
    grouping,
)
from broker.protocol.schemas.message import (
    ControllerMessage,
    Int8,
    Int16,
    Int32,
    Int64,
    Versioned,
    since,
    until,
)

# SecurityProtocol's numbers.
_PROTOCOL_NAMES: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState:
    """The metadata of one partition for clients."""

    topic_name: Annotated[str, until(4)] = ""
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: tuple[Int32, ...]
    zk_version: Int32
    replicas: tuple[Int32, ...]
    offline_replicas: Annotated[tuple[Int32, ...], since(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState:
    """The partitions of one topic; ``topic_id`` is ``None`` before version 7."""

    topic_name: str
    topic_id: Annotated[UUID | None, since(7)] = None
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint:
    """A listener of a broker; ``security_protocol`` is Kafka's number."""

    port: Int32
    host: str
    listener: Annotated[str, since(3)]
    security_protocol: Int16


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker:
    """A live broker and its endpoints, in all versions."""

    id: Int32
    v0_host: Annotated[str, until(0)] = ""
    v0_port: Annotated[Int32, until(0)] = 0
    endpoints: Annotated[tuple[UpdateMetadataEndpoint, ...], since(1)]
    rack: Annotated[str | None, since(2)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(ControllerMessage, AnyRequest["UpdateMetadataResponse"]):
    """The whole request; ``type`` is 0 unknown, 1 incremental, 2 full."""

    api_key: ClassVar = ApiKey.UPDATE_METADATA
    last_version: ClassVar = 8
    kind: ClassVar = EntityType.request

    controller_id: Int32
    is_kraft_controller: Annotated[bool, since(8)] = False
    type: Annotated[Int8, since(8, tag=0)] = 0
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, since(5)] = -1
    ungrouped_partition_states: Annotated[
        tuple[UpdateMetadataPartitionState, ...], until(4)
    ] = ()
    topic_states: Annotated[tuple[UpdateMetadataTopicState, ...], since(5)]
    live_brokers: tuple[UpdateMetadataBroker, ...]

    @classmethod
    def reading(cls, entity: Any) -> Stepping[UpdateMetadataRequest]:
        """Convert as `from_wire` does, in steps."""
        arranged: dict[str, Any] = {}
        numbers = count(1)
        if entity.__version__ <= 4:
            topics = []
            groups = yield from grouping(entity.ungrouped_partition_states)
            for name, states in groups:
                converted = yield from converting_all(
                    states, UpdateMetadataPartitionState, numbers, topic_name=""
                )
                topics.append(
                    UpdateMetadataTopicState(
                        topic_name=name, partition_states=converted
                    )
                )
            arranged["topic_states"] = tuple(topics)
            arranged["ungrouped_partition_states"] = ()
        if entity.__version__ <= 2:
            brokers = []
            for broker in entity.live_brokers:
                endpoints = _endpoints(broker)
                brokers.append(
                    convert(
                        broker,
                        UpdateMetadataBroker,
                        v0_host="",
                        v0_port=0,
                        endpoints=endpoints,
                    )
                )
                yield
            arranged["live_brokers"] = tuple(brokers)
        return (yield from converting(entity, cls, numbers, **arranged))

    def writing(self, version: int) -> Stepping[Versioned]:
        """Convert as `to_wire` does, in steps.

        Version 0 contains a broker's first endpoint only.
        """
        message = self
        if version <= 4:
            ungrouped = tuple(
                replace(state, topic_name=topic.topic_name)
                for topic in self.topic_states
                for state in topic.partition_states
            )
            message = replace(message, ungrouped_partition_states=ungrouped)
        if version == 0:
            brokers = tuple(
                replace(
                    broker,
                    v0_host=broker.endpoints[0].host,
                    v0_port=broker.endpoints[0].port,
                )
                for broker in self.live_brokers
            )
            message = replace(message, live_brokers=brokers)
        return (yield from ControllerMessage.writing(message, version))


def _endpoints(broker: Any) -> tuple[UpdateMetadataEndpoint, ...]:
    """Return the endpoints of a broker of version 0, 1 or 2, listeners named."""
    if broker.__version__ == 0:
        protocol = 0
        return (
            UpdateMetadataEndpoint(
                port=broker.v0_port,
                host=broker.v0_host,
                listener=_PROTOCOL_NAMES[protocol],
                security_protocol=protocol,
            ),
        )
    return tuple(
        convert(
            endpoint,
            UpdateMetadataEndpoint,
            listener=_protocol_name(endpoint.security_protocol),
        )
        for endpoint in broker.endpoints
    )


def _protocol_name(number: int) -> str:
    known = 0 <= number < len(_PROTOCOL_NAMES)
    return _PROTOCOL_NAMES[number] if known else f"PROTOCOL_{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(ControllerMessage):
    """The whole response."""

    api_key: ClassVar = ApiKey.UPDATE_METADATA
    last_version: ClassVar = 8
    kind: ClassVar = EntityType.response

    error_code: ErrorCode
