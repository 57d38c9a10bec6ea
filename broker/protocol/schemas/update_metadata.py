"""UpdateMetadata (6), versions 0-8: the controller fills the brokers' metadata cache.

Version 1 gives a broker several endpoints, 2 adds the rack, 3 the listener's name, 4
offline replicas, 5 the broker epoch and partitions grouped by topic, 6 is flexible, 7
adds topic ids, 8 the request's type and whether a KRaft controller sent it (KIP-866).
Follows Kafka 3.9's ``UpdateMetadataRequest.json`` and ``UpdateMetadataResponse.json``.

Before version 3 a listener is named after its security protocol, as Kafka does.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas.convert import (
    Stepping,
    convert,
    converting,
    converting_all,
    drained,
    grouping,
)
from broker.protocol.schemas.message import (
    Field,
    Message,
    Struct,
    Versioned,
    entity_type,
    nested_type,
)

# SecurityProtocol's numbers.
_PROTOCOL_NAMES: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_PARTITION_STATE: Final = Struct(
    name="UpdateMetadataPartitionState",
    fields=(
        Field(name="topic_name", type="topicName", until=4),
        Field(name="partition_index", type="int32"),
        Field(name="controller_epoch", type="int32"),
        Field(name="leader", type="brokerId"),
        Field(name="leader_epoch", type="int32"),
        Field(name="isr", type="brokerId", array=True),
        Field(name="zk_version", type="int32"),
        Field(name="replicas", type="brokerId", array=True),
        Field(name="offline_replicas", type="brokerId", array=True, since=4),
    ),
)
_TOPIC_STATE: Final = Struct(
    name="UpdateMetadataTopicState",
    fields=(
        Field(name="topic_name", type="topicName"),
        Field(name="topic_id", type="uuid", since=7),
        Field(name="partition_states", type=_PARTITION_STATE, array=True),
    ),
)
_ENDPOINT: Final = Struct(
    name="UpdateMetadataEndpoint",
    fields=(
        Field(name="port", type="int32"),
        Field(name="host", type="string"),
        Field(name="listener", type="string", since=3),
        Field(name="security_protocol", type="int16"),
    ),
)
_BROKER: Final = Struct(
    name="UpdateMetadataBroker",
    fields=(
        Field(name="id", type="brokerId"),
        Field(name="v0_host", type="string", until=0),
        Field(name="v0_port", type="int32", until=0),
        Field(name="endpoints", type=_ENDPOINT, array=True, since=1),
        Field(name="rack", type="string", since=2, nullable=True),
    ),
)
REQUEST: Final = Message(
    api_key=ApiKey.UPDATE_METADATA,
    kind=EntityType.request,
    last_version=8,
    body=Struct(
        name="UpdateMetadataRequest",
        fields=(
            Field(name="controller_id", type="brokerId"),
            Field(name="is_kraft_controller", type="bool", since=8, default=False),
            Field(name="type", type="int8", since=8, default=0, tag=0),
            Field(name="controller_epoch", type="int32"),
            Field(name="broker_epoch", type="int64", since=5, default=-1),
            Field(
                name="ungrouped_partition_states",
                type=_PARTITION_STATE,
                array=True,
                until=4,
            ),
            Field(name="topic_states", type=_TOPIC_STATE, array=True, since=5),
            Field(name="live_brokers", type=_BROKER, array=True),
        ),
    ),
)
RESPONSE: Final = Message(
    api_key=ApiKey.UPDATE_METADATA,
    kind=EntityType.response,
    last_version=8,
    body=Struct(
        name="UpdateMetadataResponse",
        fields=(Field(name="error_code", type="errorCode"),),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState:
    """What brokers shall tell clients of one partition."""

    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState:
    """The partitions of one topic; ``topic_id`` is ``None`` before version 7."""

    topic_name: str
    topic_id: UUID | None = None
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint:
    """One listener of a broker; ``security_protocol`` is Kafka's number of it."""

    port: int
    host: str
    listener: str
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker:
    """A live broker and how it is reached."""

    id: int
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    """The whole request; ``type`` is 0 unknown, 1 incremental, 2 full."""

    controller_id: int
    is_kraft_controller: bool = False
    type: int = 0
    controller_epoch: int
    broker_epoch: int = -1
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]

    @classmethod
    def from_wire(cls, entity: Any) -> UpdateMetadataRequest:
        """Return what ``entity``, of any version, says."""
        return drained(cls.reading(entity))

    @classmethod
    def reading(cls, entity: Any) -> Stepping[UpdateMetadataRequest]:
        """Do as `from_wire`, in steps."""
        arranged: dict[str, Any] = {}
        numbers = count(1)
        if entity.__version__ <= 4:
            topics = []
            groups = yield from grouping(entity.ungrouped_partition_states)
            for name, states in groups:
                converted = yield from converting_all(
                    states, UpdateMetadataPartitionState, numbers
                )
                topics.append(
                    UpdateMetadataTopicState(
                        topic_name=name, partition_states=converted
                    )
                )
            arranged["topic_states"] = tuple(topics)
        if entity.__version__ <= 2:
            brokers = []
            for broker in entity.live_brokers:
                endpoints = _endpoints(broker)
                brokers.append(
                    convert(broker, UpdateMetadataBroker, endpoints=endpoints)
                )
                yield
            arranged["live_brokers"] = tuple(brokers)
        return (yield from converting(entity, cls, numbers, **arranged))

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this.

        Version 0 carries a broker's first endpoint only.
        """
        entity = entity_type(REQUEST, version)
        arranged: dict[str, Any] = {}
        if version <= 4:
            item = nested_type(entity, "ungrouped_partition_states")
            arranged["ungrouped_partition_states"] = tuple(
                convert(state, item, topic_name=topic.topic_name)
                for topic in self.topic_states
                for state in topic.partition_states
            )
        if version == 0:
            item = nested_type(entity, "live_brokers")
            arranged["live_brokers"] = tuple(
                item(
                    id=broker.id,
                    v0_host=broker.endpoints[0].host,
                    v0_port=broker.endpoints[0].port,
                )
                for broker in self.live_brokers
            )
        return convert(self, entity, **arranged)


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
class UpdateMetadataResponse:
    """The whole answer."""

    error_code: ErrorCode

    @classmethod
    def from_wire(cls, entity: Any) -> UpdateMetadataResponse:
        """Return what ``entity``, of any version, says."""
        return convert(entity, cls)

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this."""
        return convert(self, entity_type(RESPONSE, version))
