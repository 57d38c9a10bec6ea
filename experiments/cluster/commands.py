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
from broker.protocol.schemas.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.protocol.wire.codec import Entity
from experiments.cluster.stage import Node

# A controller that is none of the brokers, in the first epoch above a broker's own.
CONTROLLER_ID, CONTROLLER_EPOCH = 1_000, 1_000
# The inter-broker listener of every broker here.
_LISTENER, _PLAINTEXT = "PLAINTEXT", 0
_TOPIC_IDS = UUID(int=0x6B61666B61)
_VERSION = 6


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
        if self.api_key is ApiKey.LEADER_AND_ISR:
            return _leader_and_isr(self.states, nodes).to_wire(_VERSION)
        return _update_metadata(self.states, nodes).to_wire(_VERSION)

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


def _by_topic(states: Sequence[Leadership]) -> dict[str, list[Leadership]]:
    found: dict[str, list[Leadership]] = {}
    for state in states:
        found.setdefault(state.topic, []).append(state)
    return found


def _topic_id(topic: str) -> UUID:
    """Return the id of a topic: any, as long as all brokers are told the same."""
    return UUID(int=_TOPIC_IDS.int + int.from_bytes(topic.encode()[:8]) * 2**40)


def _leader_and_isr(
    states: Sequence[Leadership], nodes: Sequence[Node]
) -> LeaderAndIsrRequest:
    topics = tuple(
        LeaderAndIsrTopicState(
            topic_name=topic,
            topic_id=_topic_id(topic),
            partition_states=tuple(
                LeaderAndIsrPartitionState(
                    partition_index=it.partition,
                    controller_epoch=CONTROLLER_EPOCH,
                    leader=it.leader,
                    leader_epoch=it.leader_epoch,
                    isr=it.isr,
                    partition_epoch=it.leader_epoch,
                    replicas=it.replicas,
                )
                for it in found
            ),
        )
        for topic, found in _by_topic(states).items()
    )
    leaders = {it.leader for it in states}
    return LeaderAndIsrRequest(
        controller_id=CONTROLLER_ID,
        controller_epoch=CONTROLLER_EPOCH,
        type=1,
        topic_states=topics,
        live_leaders=tuple(
            LeaderAndIsrLiveLeader(
                broker_id=node.number, host_name=node.data.host, port=node.data.port
            )
            for node in nodes
            if node.number in leaders
        ),
    )


def _update_metadata(
    states: Sequence[Leadership], nodes: Sequence[Node]
) -> UpdateMetadataRequest:
    topics = tuple(
        UpdateMetadataTopicState(
            topic_name=topic,
            topic_id=_topic_id(topic),
            partition_states=tuple(
                UpdateMetadataPartitionState(
                    partition_index=it.partition,
                    controller_epoch=CONTROLLER_EPOCH,
                    leader=it.leader,
                    leader_epoch=it.leader_epoch,
                    isr=it.isr,
                    zk_version=it.leader_epoch,
                    replicas=it.replicas,
                )
                for it in found
            ),
        )
        for topic, found in _by_topic(states).items()
    )
    live = tuple(
        UpdateMetadataBroker(
            id=node.number,
            endpoints=(
                UpdateMetadataEndpoint(
                    port=node.data.port,
                    host=node.data.host,
                    listener=_LISTENER,
                    security_protocol=_PLAINTEXT,
                ),
            ),
        )
        for node in nodes
    )
    return UpdateMetadataRequest(
        controller_id=CONTROLLER_ID,
        controller_epoch=CONTROLLER_EPOCH,
        topic_states=topics,
        live_brokers=live,
    )
