"""Membership and controller of a single-broker cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from uuid import UUID

from broker.controller.assignment import ReplicaAssignment
from broker.controller.elections import ElectionType
from broker.controller.isr_proposals import IsrProposal, Judgement
from broker.coordination.coordinator_roles import BrokerRack, CoordinatedBroker, Quorum
from broker.observation.metric import PIECE, Metric
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition
from planes.slices import Pace, in_steps


class SingleNodeMembership(ABC):
    """Base of memberships without storage. `open` sets ``broker``."""

    broker: CoordinatedBroker

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id

    @property
    @abstractmethod
    def broker_epoch(self) -> int:
        """The epoch of the broker's present run."""

    @property
    def generation(self) -> int:
        """The number of changes stored: none."""
        return 0

    async def present_epoch(self) -> int:
        """Return the broker epoch, which is known from the start."""
        return self.broker_epoch

    async def has_elected(self, controller_epoch: int) -> bool:
        """Return True: elections of other controllers are known to the operator only.

        The operator has configured the listeners on which their requests are accepted.
        """
        return True

    @property
    def cluster_id(self) -> str | None:
        """None: the broker's directories store the id."""
        return None

    def live_brokers(self) -> Sequence[BrokerRack]:
        """Return this broker."""
        return (BrokerRack(self.broker_id),)

    async def prepare(self) -> None:
        """Do nothing: there is no other broker."""
        return

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Do nothing: there is no other broker."""
        return

    async def withdraw(self) -> None:
        """Do nothing: no other broker can take over leaderships."""
        return

    async def leave(self) -> None:
        """Do nothing: there is no other broker to notify."""
        return

    def metrics(self) -> Iterator[Metric | None]:
        """Iterate over the gauges of Kafka's controller that alerts use."""
        offline = 0
        for number, topic in enumerate(self.broker.metadata_cache.view().topics(), 1):
            states = topic.partitions.values()
            offline += sum(state.leader == NO_LEADER for state in states)
            if not number % PIECE:
                yield None
        counts = {"activecontrollercount": 1, "offlinepartitionscount": offline}
        for name, value in counts.items():
            yield Metric(
                name=f"kafka_controller_kafkacontroller_{name}",
                kind="gauge",
                value=value,
            )

    async def read_topic_configs(self, names: Iterable[str]) -> None:
        """Do nothing: this broker knows all topics."""
        return


class SingleNodeController:
    """Decisions for a single-broker cluster, which has nothing to elect or move."""

    def __init__(self, membership: SingleNodeMembership) -> None:
        self._membership = membership

    def check_is_controller(self) -> None:
        """Do nothing: this broker is the only controller."""
        return

    def quorum(self) -> Quorum:
        """Return this broker as its only voter; each start is an epoch."""
        membership = self._membership
        return Quorum(
            membership.broker_id, membership.broker_epoch, membership.generation
        )

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> Sequence[TopicPartition]:
        """Move nothing, since there is no other broker.

        Raises BROKER_NOT_AVAILABLE for any other broker, and STALE_BROKER_EPOCH.
        """
        if broker_id != self._membership.broker_id:
            raise KafkaError(
                ErrorCode.broker_not_available, f"broker {broker_id} is not registered"
            )
        present = self._membership.broker_epoch
        if -1 < broker_epoch < present:
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"broker epoch {broker_epoch}, the present one is {present}",
            )
        return self._membership.broker.led_with_others()

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic."""
        return self._membership.broker.metadata_cache.name(topic_id)

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        proposals: Mapping[TopicPartition, IsrProposal],
    ) -> Mapping[TopicPartition, Judgement]:
        """Reject: a partition with other replicas has another controller."""
        raise KafkaError(ErrorCode.not_controller)

    async def elect_leaders(
        self,
        keys: Collection[TopicPartition] | None,
        kind: ElectionType,
        timeout_ms: int = 0,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Elect no leader; report for each partition whether an election is needed."""
        cache = self._membership.broker.metadata_cache
        wanted = keys
        if wanted is None:
            pace = Pace()
            wanted = [
                TopicPartition(topic.name, index)
                async for topic in pace.over(list(cache.topics()))
                async for index in pace.over(list(topic.partitions))
            ]
        return {key: self._election(key, kind) async for key in in_steps(wanted)}

    def _election(self, key: TopicPartition, kind: ElectionType) -> ErrorCode:
        topic = self._membership.broker.metadata_cache.topic(key.topic)
        state = None if topic is None else topic.partitions.get(key.partition)
        if state is None:
            return ErrorCode.unknown_topic_or_partition
        if kind is ElectionType.UNCLEAN:
            return (
                ErrorCode.eligible_leaders_not_available
                if state.leader == NO_LEADER
                else ErrorCode.election_not_needed
            )
        if state.replicas[:1] == (state.leader,):
            return ErrorCode.election_not_needed
        return ErrorCode.preferred_leader_not_available

    async def alter_partition_reassignments(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        keep_replication_factor: bool = False,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Move nothing: accept only assignments that equal the present replicas."""
        return {
            key: self._reassignment(key, target)
            async for key, target in in_steps(wanted.items())
        }

    def _reassignment(
        self, key: TopicPartition, target: tuple[int, ...] | None
    ) -> KafkaError | None:
        topic = self._membership.broker.metadata_cache.topic(key.topic)
        if topic is None or key.partition not in topic.partitions:
            return KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"there is no partition {key.topic}-{key.partition}",
            )
        if target is None:
            return KafkaError(ErrorCode.no_reassignment_in_progress)
        present = self._membership.broker_id
        if target != (present,):
            return KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"replicas {target}, and only broker {present} is alive",
            )
        return None

    def reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Return no reassignments: there is no other broker."""
        return {}
