"""The controller's view of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from broker.controller.assignment import (
    PartitionAndReplica,
    ReplicaAssignment,
    TopicAssignment,
)
from broker.controller.decisions import Decisions, pausing, scan
from broker.controller.leadership import Leadership
from broker.controller.states import PartitionState, ReplicaState
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataEndpoint
from broker.protocol.sentinels import EPOCH_DURING_DELETE, NO_EPOCH
from broker.protocol.topic_partition import TopicPartition

_NONE = ReplicaAssignment(())


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredBroker:
    """A broker's registration; its epoch is the znode's czxid (KIP-380)."""

    id: int
    epoch: int
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = None


class ControllerContext:
    """The cluster, under one controller ``epoch``."""

    def __init__(self, controller_id: int, epoch: int) -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        # Registered brokers, including those that are shutting down.
        self.brokers: dict[int, RegisteredBroker] = {}
        self.shutting_down: set[int] = set()
        # Partitions whose log directory is offline, by broker.
        self.offline_dirs: dict[int, frozenset[TopicPartition]] = {}
        self.topic_ids: dict[str, UUID | None] = {}
        self.topic_names: dict[UUID, str] = {}
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self._leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_states: dict[TopicPartition, PartitionState] = {}
        self.replica_states: dict[PartitionAndReplica, ReplicaState] = {}
        # Dictionaries as ordered sets.
        self.reassigned: dict[TopicPartition, None] = {}
        self.to_delete: dict[str, None] = {}
        self.deletion_started: set[str] = set()
        self.deletion_ineligible: set[str] = set()
        self.unclean_elections = 0

    # ---- brokers ----------------------------------------------------------------

    def is_live(self, broker: int) -> bool:
        """Return whether a broker is registered and not shutting down."""
        return broker in self.brokers and broker not in self.shutting_down

    @property
    def live_brokers(self) -> frozenset[int]:
        """The brokers that are registered and not shutting down."""
        return frozenset(self.brokers) - self.shutting_down

    def is_online(self, broker: int, key: TopicPartition) -> bool:
        """Return whether a replica's broker is live, and its log directory."""
        return self.is_live(broker) and not self._is_offline_dir(broker, key)

    def online_replicas(self, key: TopicPartition) -> tuple[int, ...]:
        """Return the replicas that are online, in the order of the assignment."""
        return tuple(it for it in self.replicas(key) if self.is_online(it, key))

    def online_or_shutting_down(self, key: TopicPartition) -> tuple[int, ...]:
        """Return the online replicas, including those on stopping brokers."""
        return tuple(
            it
            for it in self.replicas(key)
            if it in self.brokers and not self._is_offline_dir(it, key)
        )

    def _is_offline_dir(self, broker: int, key: TopicPartition) -> bool:
        return key in self.offline_dirs.get(broker, ())

    # ---- topics and their replicas ----------------------------------------------

    @property
    def topics(self) -> Mapping[str, Mapping[int, ReplicaAssignment]]:
        """The assignments by topic and partition."""
        return self._assignments

    def put_topic(self, name: str, topic: TopicAssignment) -> None:
        """Add a topic, or further partitions of one."""
        self.topic_ids[name] = topic.topic_id
        if topic.topic_id is not None:
            self.topic_names[topic.topic_id] = name
        known = self._assignments.setdefault(name, {})
        for index in sorted(topic.partitions):
            known.setdefault(index, topic.partitions[index])

    def remove_topic(self, name: str) -> Decisions[None]:
        """Remove a topic and all its state."""
        assignments = self._assignments.pop(name, {})
        topic_id = self.topic_ids.pop(name, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)
        for count, (index, assignment) in enumerate(assignments.items(), 1):
            key = TopicPartition(name, index)
            for broker in assignment.replicas:
                self.replica_states.pop(PartitionAndReplica(key, broker), None)
            self._leaderships.pop(key, None)
            self.partition_states.pop(key, None)
            self.reassigned.pop(key, None)
            yield from pausing(count)
        self.to_delete.pop(name, None)
        self.deletion_started.discard(name)
        self.deletion_ineligible.discard(name)

    def assignment_of(self, name: str) -> TopicAssignment:
        """Return the content of a topic's znode."""
        return TopicAssignment(self.topic_ids[name], dict(self._assignments[name]))

    def assignment(self, key: TopicPartition) -> ReplicaAssignment:
        """Return a partition's assignment; empty for an unknown partition."""
        return self._assignments.get(key.topic, {}).get(key.partition, _NONE)

    def put_assignment(
        self, key: TopicPartition, assignment: ReplicaAssignment
    ) -> None:
        """Replace the assignment of an existing partition."""
        self._assignments[key.topic][key.partition] = assignment

    def replicas(self, key: TopicPartition) -> tuple[int, ...]:
        """Return a partition's replicas, the preferred one first."""
        return self.assignment(key).replicas

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Yield every partition of every topic."""
        return self.partitions_of(*self._assignments)

    def partitions_of(self, *names: str) -> Iterator[TopicPartition]:
        """Yield the partitions of topics."""
        for name in names:
            for index in self._assignments.get(name, ()):
                yield TopicPartition(name, index)

    def partitions_on(self, broker: int) -> Decisions[list[TopicPartition]]:
        """Return the partitions that a broker holds; O(all partitions)."""
        return scan(self.all_partitions(), lambda it: broker in self.replicas(it))

    def replicas_on(
        self, brokers: Iterable[int]
    ) -> Decisions[list[PartitionAndReplica]]:
        """Return the replicas on some brokers; O(all partitions) for each."""
        found = []
        for broker in brokers:
            for count, key in enumerate((yield from self.partitions_on(broker)), 1):
                found.append(PartitionAndReplica(key, broker))
                yield from pausing(count)
        return found

    def replicas_of(
        self, keys: Iterable[TopicPartition]
    ) -> Decisions[list[PartitionAndReplica]]:
        """Return all replicas of some partitions."""
        found: list[PartitionAndReplica] = []
        for count, key in enumerate(keys, 1):
            found += [PartitionAndReplica(key, it) for it in self.replicas(key)]
            yield from pausing(count)
        return found

    # ---- leaders ----------------------------------------------------------------

    def leadership(self, key: TopicPartition) -> Leadership | None:
        """Return a partition's leadership; None before the first election."""
        return self._leaderships.get(key)

    def put_leadership(self, key: TopicPartition, leadership: Leadership) -> None:
        """Record a partition's leadership."""
        self._leaderships[key] = leadership

    def drop_leadership(self, key: TopicPartition) -> None:
        """Remove a partition's leadership, since its znode has been removed."""
        self._leaderships.pop(key, None)

    def epoch_to_stop(self, key: TopicPartition) -> int:
        """Return the leader epoch of a StopReplica request for a partition."""
        if key.topic in self.to_delete:
            return EPOCH_DURING_DELETE
        leadership = self._leaderships.get(key)
        return NO_EPOCH if leadership is None else leadership.leader_epoch

    def led_partitions(self) -> Decisions[list[TopicPartition]]:
        """Return the partitions that have a leadership; O(all partitions)."""
        return scan(self._leaderships, lambda it: it.topic not in self.to_delete)

    def with_offline_leader(self) -> Decisions[list[TopicPartition]]:
        """Return the partitions whose leader is not online; O(all partitions)."""
        leaderships = self._leaderships
        return scan(
            leaderships,
            lambda key: (
                key.topic not in self.to_delete
                and not self.is_online(leaderships[key].leader, key)
            ),
        )

    def led_by(self, broker: int) -> Decisions[list[TopicPartition]]:
        """Return a broker's led partitions with other replicas; O(all partitions)."""
        leaderships = self._leaderships
        return scan(
            leaderships,
            lambda key: (
                leaderships[key].leader == broker
                and key.topic not in self.to_delete
                and len(self.replicas(key)) > 1
            ),
        )
