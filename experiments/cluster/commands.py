"""What a controller says of an election, and how waiting commands are merged.

A batch of Kafka's controller is a LEADER_AND_ISR to the replicas of the partitions that
it is about, then an UPDATE_METADATA to all brokers. Requests of one kind to one broker
that wait behind an earlier one can be merged into one, as LinkedIn's fork of Kafka did:
the newest word on a partition counts, and UPDATE_METADATA still comes after what made
it true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas.composing import (
    ControllerRequests,
    live_leaders,
    metadata_of,
)
from broker.protocol.schemas.leader_and_isr import LeaderAndIsrPartitionState
from broker.protocol.schemas.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
)
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import Entity
from experiments.cluster.stage import Node

# A controller that is none of the brokers, in the first epoch above a broker's own.
CONTROLLER_ID, CONTROLLER_EPOCH = 1_000, 1_000
# The inter-broker listener of every broker here.
_LISTENER, _PLAINTEXT = "PLAINTEXT", 0
_TOPIC_IDS = UUID(int=0x6B61666B61)
_VERSION = 6
# LeaderAndIsr's type of a request that is not about all partitions.
_INCREMENTAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who leads a partition in which epoch, and which replicas are in sync."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A request of the controller's to a broker: its kind, and what it tells."""

    api_key: ApiKey
    states: tuple[Leadership, ...]

    def body(self, nodes: Sequence[Node]) -> Entity:
        """Return the request for a cluster in which these nodes are alive."""
        requests = ControllerRequests(
            controller_id=CONTROLLER_ID,
            controller_epoch=CONTROLLER_EPOCH,
            topic_ids={it.topic: _topic_id(it.topic) for it in self.states},
        )
        told = {
            TopicPartition(it.topic, it.partition): _state(it) for it in self.states
        }
        live = [_live_broker(node) for node in nodes]
        if self.api_key is ApiKey.LEADER_AND_ISR:
            leaders = live_leaders(told.values(), live, _LISTENER)
            request = requests.leader_and_isr(told, leaders, kind=_INCREMENTAL)
            return request.to_wire(_VERSION)
        metadata = {key: metadata_of(it) for key, it in told.items()}
        return requests.update_metadata(metadata, live).to_wire(_VERSION)

    @property
    def version(self) -> int:
        """Return the version that it is sent in."""
        return _VERSION


def batch(states: Sequence[Leadership]) -> tuple[Command, ...]:
    """Return what a batch sends to one broker, in Kafka's order."""
    told = tuple(states)
    return (
        Command(api_key=ApiKey.LEADER_AND_ISR, states=told),
        Command(api_key=ApiKey.UPDATE_METADATA, states=told),
    )


def introduction() -> Command:
    """Return what tells a broker who is alive, before it is to follow anybody."""
    return Command(api_key=ApiKey.UPDATE_METADATA, states=())


def merged(waiting: Iterable[Command]) -> list[Command]:
    """Merge the commands that wait for one broker, one of each kind at most."""
    newest: dict[ApiKey, dict[tuple[str, int], Leadership]] = {}
    for command in waiting:
        known = newest.setdefault(command.api_key, {})
        known.update({(it.topic, it.partition): it for it in command.states})
    # The API keys of LEADER_AND_ISR and UPDATE_METADATA are in the order to keep.
    return [
        Command(api_key=key, states=tuple(newest[key].values()))
        for key in sorted(newest)
    ]


def _topic_id(topic: str) -> UUID:
    """Return the id of a topic: any, as long as all brokers are told the same."""
    return UUID(int=_TOPIC_IDS.int + int.from_bytes(topic.encode()[:8]) * 2**40)


def _state(told: Leadership) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=told.partition,
        controller_epoch=CONTROLLER_EPOCH,
        leader=told.leader,
        leader_epoch=told.leader_epoch,
        isr=told.isr,
        partition_epoch=told.leader_epoch,
        replicas=told.replicas,
    )


def _live_broker(node: Node) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(
        port=node.data.port,
        host=node.data.host,
        listener=_LISTENER,
        security_protocol=_PLAINTEXT,
    )
    return UpdateMetadataBroker(id=node.number, endpoints=(endpoint,))
