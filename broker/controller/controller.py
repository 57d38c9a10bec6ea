"""Kafka's controller (3.9, ZooKeeper mode) without threads and sockets.

`KafkaController` is one term of one controller, from its election to its resignation,
under one controller epoch; a new term is a new object. Every method but the constructor
handles an event. It returns a generator of decisions, which the driver carries out one
by one (`broker.controller.decisions`) and whose value is the response to the request; a
`KafkaError` refuses the request as a whole. Each event is handled completely before the
next one.

Other duties of the driver:

- It has a channel to every registered broker. Before it calls `brokers_changed` it
  opens channels to new brokers, closes the channels of lost brokers, and does both for
  a broker with a new epoch; requests queued there are lost.
- It passes in the responses to LeaderAndIsr and StopReplica, with their requests.
- It sets a watch on each znode that it reads, and passes in its content as one event.
- It calls `auto_rebalance` every ``leader.imbalance.check.interval.seconds``, the first
  time five seconds after `start`.
- It removes children of ``/isr_change_notification`` and
  ``/log_dir_event_notification`` when their changes have been handled, and all existing
  ones before `start`.

Cost: events of a broker are O(partitions of the cluster), as in Kafka; events of a
partition are O(its replicas), except for the UpdateMetadata to every broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.controller.batches import RequestBatch
from broker.controller.broker_changes import Brokers
from broker.controller.context import ControllerContext, RegisteredBroker
from broker.controller.decisions import (
    Decisions,
    RemovePreferredElection,
    every,
    pausing,
    scan,
)
from broker.controller.deletion import TopicDeletions
from broker.controller.elections import Elections, ElectionType
from broker.controller.isr_proposals import IsrJudge, IsrProposal, Judgement
from broker.controller.leadership import Leadership
from broker.controller.partition_reassignment import Reassignments, Targets
from broker.controller.partition_states import Election, PartitionStateMachine
from broker.controller.replica_states import ReplicaStateMachine
from broker.controller.states import PartitionState, ReplicaState
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The keys that the controller uses, with Kafka's defaults.

    ``unclean_election`` returns ``unclean.leader.election.enable`` of a topic.
    """

    inter_broker_listener: str
    unclean_election: Callable[[str], bool]
    delete_topic_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperState:
    """The cluster's state in ZooKeeper when a controller is elected.

    Partitions without a state znode have no item in ``leaderships``.
    """

    brokers: Mapping[int, RegisteredBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicAssignment] = field(default_factory=dict)
    leaderships: Mapping[TopicPartition, Leadership] = field(default_factory=dict)
    deletions: Collection[str] = ()
    reassignments: Targets = field(default_factory=dict)
    preferred_election: Collection[TopicPartition] | None = None


class KafkaController:
    """The controller ``controller_id`` in its term ``controller_epoch``."""

    def __init__(
        self, controller_id: int, controller_epoch: int, config: ControllerConfig
    ) -> None:
        self.context = ControllerContext(controller_id, controller_epoch)
        context = self.context
        batch = RequestBatch(context, config.inter_broker_listener)
        self._batch = batch
        self._partitions = PartitionStateMachine(
            context, batch, config.unclean_election
        )
        self._replicas = ReplicaStateMachine(context, batch)
        self._deletions = TopicDeletions(
            context,
            batch,
            self._partitions,
            self._replicas,
            enabled=config.delete_topic_enable,
        )
        self._reassignments = Reassignments(
            context, batch, self._partitions, self._replicas
        )
        self._brokers = Brokers(
            context,
            batch,
            self._partitions,
            self._replicas,
            self._deletions,
            self._reassignments,
        )
        self._isr_judge = IsrJudge(context, batch, self._reassignments)
        self._elections = Elections(
            context, self._partitions, config.leader_imbalance_per_broker_percentage
        )

    # ---- the term begins --------------------------------------------------------

    def start(self, found: ZooKeeperState) -> Decisions[None]:
        """Begin the term: send all brokers the state, and resume unfinished work."""
        context = self.context
        context.brokers.update(found.brokers)
        for name, topic in found.topics.items():
            context.put_topic(name, topic)
        for count, key in enumerate(context.all_partitions(), 1):
            if key in found.leaderships:
                context.put_leadership(key, found.leaderships[key])
            yield from pausing(count)
        yield from self._deletions.take_over(found.deletions)
        reassigned = yield from scan(
            context.all_partitions(),
            lambda key: (
                context.assignment(key).is_being_reassigned
                and key.topic not in context.to_delete
            ),
        )
        context.reassigned.update(dict.fromkeys(reassigned))
        # Brokers need the list of live brokers before they follow one of them. Unlike
        # Kafka, the first request also has all partitions: otherwise a broker that has
        # just started would report to its clients that topics do not exist.
        yield from self._batch.send_all_metadata(
            context.brokers, (yield from context.led_partitions())
        )
        yield from self._batch.flush()
        yield from self._replicas.start()
        yield from self._partitions.start()
        yield from self._reassignments.request_in_znode(found.reassignments)
        yield from self._reassignments.resume(lambda assignment: True)
        yield from self._deletions.resume()
        if found.preferred_election is not None:
            yield from self.preferred_election_requested(found.preferred_election)

    # ---- changes of znodes ------------------------------------------------------

    def brokers_changed(
        self, brokers: Mapping[int, RegisteredBroker]
    ) -> Decisions[None]:
        """Apply all children of ``/brokers/ids``."""
        yield from self._brokers.registered(brokers)

    def topics_changed(
        self, names: Collection[str], added: Mapping[str, TopicAssignment]
    ) -> Decisions[None]:
        """Apply the children of ``/brokers/topics``.

        ``added`` has the topics that ``context.topics`` lacks, except any removed
        before they could be read. The driver has assigned missing topic IDs.
        """
        context, there = self.context, frozenset(names)
        deleted = yield from scan(context.topics, lambda it: it not in there)
        for name in deleted:
            yield from context.remove_topic(name)
        new = [it for it in sorted(added) if it not in context.topics]
        for count, name in enumerate(new, 1):
            context.put_topic(name, added[name])
            yield from pausing(count)
        yield from self._create((yield from every(context.partitions_of(*new))))

    def partitions_changed(self, name: str, topic: TopicAssignment) -> Decisions[None]:
        """Apply ``/brokers/topics/T``, in which partitions may be new.

        Partitions added to a topic during its deletion are deleted with it.
        """
        context = self.context
        known = context.topics.get(name, {})
        added = [
            TopicPartition(name, it)
            for it in sorted(topic.partitions)
            if it not in known
        ]
        if name in context.to_delete:
            return
        context.put_topic(name, topic)
        yield from self._create(added)

    def _create(self, keys: Collection[TopicPartition]) -> Decisions[None]:
        replicas = yield from self.context.replicas_of(keys)
        yield from self._partitions.put(keys, PartitionState.NEW)
        yield from self._replicas.change(replicas, ReplicaState.NEW)
        yield from self._partitions.elect(keys, Election.OFFLINE)
        yield from self._replicas.change(replicas, ReplicaState.ONLINE)

    def deletions_requested(self, topics: Collection[str]) -> Decisions[None]:
        """Apply the children of ``/admin/delete_topics``.

        Requests for unknown topics are dropped. The driver therefore reads
        ``/brokers/topics`` again before it passes in topics that are unknown here.
        """
        yield from self._reassignments.abandon(topics)
        yield from self._deletions.request(topics)

    def isrs_changed(
        self, found: Mapping[TopicPartition, Leadership]
    ) -> Decisions[None]:
        """Apply the states of the partitions in ``/isr_change_notification``."""
        yield from self._isr_judge.changed(found)

    def reassignments_in_znode(self, targets: Targets) -> Decisions[None]:
        """Apply the content of ``/admin/reassign_partitions``."""
        yield from self._reassignments.request_in_znode(targets)

    def preferred_election_requested(
        self, keys: Collection[TopicPartition]
    ) -> Decisions[None]:
        """Elect preferred leaders as requested in the znode of that name."""
        yield from self._elections.elect(keys, ElectionType.PREFERRED)
        yield RemovePreferredElection()

    def log_dirs_changed(self, brokers: Collection[int]) -> Decisions[None]:
        """Query the offline replicas of brokers in ``/log_dir_event_notification``."""
        yield from self._brokers.log_dirs_changed(brokers)

    def unclean_election_enabled(self, topic: str | None) -> Decisions[None]:
        """Elect leaders after a topic's config, or the default, allows unclean ones."""
        yield from self._partitions.bring_online(topic)

    # ---- requests and responses of brokers --------------------------------------

    def leader_and_isr_answered(
        self,
        broker: int,
        request: LeaderAndIsrRequest,
        response: LeaderAndIsrResponse,
    ) -> Decisions[None]:
        """Apply the offline and online replicas of a response."""
        context = self.context
        if self._is_late(broker, request) or response.error_code is not ErrorCode.none:
            return
        outcomes = {}
        for it in response.partition_errors:
            name = it.topic_name
            if name is None and it.topic_id is not None:
                name = context.topic_names.get(it.topic_id)
            if name is not None and name in context.topics:
                outcomes[TopicPartition(name, it.partition_index)] = it.error_code
        yield from self._brokers.answered(broker, outcomes)

    def stop_replica_answered(
        self,
        broker: int,
        request: StopReplicaRequest,
        response: StopReplicaResponse,
    ) -> Decisions[None]:
        """Apply the outcome of replica deletions, of topics that are being deleted."""
        if self._is_late(broker, request):
            return
        outcomes = {
            TopicPartition(it.topic_name, it.partition_index): it.error_code
            for it in response.partition_errors
        }
        yield from self._deletions.answered(
            broker,
            {
                key: outcomes.get(key, response.error_code)
                for topic in request.topic_states
                for state in topic.partition_states
                if state.delete_partition
                for key in [TopicPartition(topic.topic_name, state.partition_index)]
            },
        )

    def _is_late(
        self, broker: int, request: LeaderAndIsrRequest | StopReplicaRequest
    ) -> bool:
        """Return whether the broker has left, or restarted, since the request."""
        registered = self.context.brokers.get(broker)
        return registered is None or registered.epoch != request.broker_epoch

    def controlled_shutdown(
        self, broker: int, broker_epoch: int
    ) -> Decisions[tuple[TopicPartition, ...]]:
        """Move all leaderships off a broker; return the partitions it still leads."""
        return (yield from self._brokers.shut_down(broker, broker_epoch))

    def alter_partition(
        self,
        broker: int,
        broker_epoch: int,
        proposals: Mapping[TopicPartition, IsrProposal],
    ) -> Decisions[dict[TopicPartition, Judgement]]:
        """Accept or refuse a leader's ISR proposals, and write the accepted ones."""
        return (yield from self._isr_judge.propose(broker, broker_epoch, proposals))

    # ---- requests of operators --------------------------------------------------

    def elect_leaders(
        self, keys: Collection[TopicPartition], kind: ElectionType
    ) -> Decisions[dict[TopicPartition, ErrorCode]]:
        """Elect leaders of partitions; return each one's outcome."""
        return (yield from self._elections.elect(keys, kind))

    def alter_partition_reassignments(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        keep_replication_factor: bool = False,
    ) -> Decisions[dict[TopicPartition, KafkaError | None]]:
        """Begin reassignments, or cancel them where ``wanted`` has None.

        Returns each partition's error, or None.
        """
        return (
            yield from self._reassignments.request(
                wanted, keep_replication_factor=keep_replication_factor
            )
        )

    @property
    def reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """The reassignments in progress."""
        return {key: self.context.assignment(key) for key in self.context.reassigned}

    def auto_rebalance(self) -> Decisions[None]:
        """Elect preferred leaders for brokers whose imbalance is above the bound."""
        yield from self._elections.rebalance()
