"""Changes of brokers: registration, restart, loss, shutdown, failed log directories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from broker.controller.assignment import PartitionAndReplica, ReplicaAssignment
from broker.controller.batches import RequestBatch
from broker.controller.context import ControllerContext, RegisteredBroker
from broker.controller.decisions import Decisions, pausing
from broker.controller.deletion import TopicDeletions
from broker.controller.partition_reassignment import Reassignments
from broker.controller.partition_states import Election, PartitionStateMachine
from broker.controller.replica_states import ReplicaStateMachine
from broker.controller.states import PartitionState, ReplicaState
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition


class Brokers:
    """Consequences of a change of a broker's state."""

    def __init__(
        self,
        context: ControllerContext,
        batch: RequestBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deletions: TopicDeletions,
        reassignments: Reassignments,
    ) -> None:
        self._context = context
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._deletions = deletions
        self._reassignments = reassignments

    def registered(self, brokers: Mapping[int, RegisteredBroker]) -> Decisions[None]:
        """Apply the list of registered brokers; a new epoch of a broker is a restart.

        The order is Kafka's: new, restarted, lost brokers.
        """
        known = self._context.brokers
        new = sorted(brokers.keys() - known.keys())
        bounced = sorted(
            it
            for it in brokers.keys() & known.keys()
            if brokers[it].epoch > known[it].epoch
        )
        dead = sorted(known.keys() - brokers.keys())
        moved = [
            it
            for it in sorted(brokers.keys() & known.keys())
            if it not in bounced and brokers[it] != known[it]
        ]
        yield from self._come(new, brokers)
        yield from self._go(bounced)
        yield from self._come(bounced, brokers)
        yield from self._go(dead)
        if moved:
            known.update((it, brokers[it]) for it in moved)
            self._batch.send_metadata(known, [])
            yield from self._batch.flush()

    def _come(
        self, new: list[int], brokers: Mapping[int, RegisteredBroker]
    ) -> Decisions[None]:
        if not new:
            return
        context = self._context
        before = list(context.brokers)
        for broker in new:
            context.brokers[broker] = brokers[broker]
            context.offline_dirs.pop(broker, None)
        self._batch.send_metadata(before, [])
        yield from self._batch.flush()
        # A broker needs the list of live brokers before it follows one of them.
        yield from self._batch.send_all_metadata(
            new, (yield from context.led_partitions())
        )
        yield from self._batch.flush()
        replicas = yield from context.replicas_on(new)
        yield from self._replicas.change(replicas, ReplicaState.ONLINE)
        yield from self._resume(new, replicas)

    def _resume(
        self, brokers: Collection[int], replicas: Iterable[PartitionAndReplica]
    ) -> Decisions[None]:
        """Resume work that has waited for brokers and their replicas."""
        yield from self._partitions.bring_online()

        def waits_for_them(assignment: ReplicaAssignment) -> bool:
            return not set(assignment.target).isdisjoint(brokers)

        yield from self._reassignments.resume(waits_for_them)
        yield from self._deletions.retry(dict.fromkeys(it.key.topic for it in replicas))

    def _go(self, dead: list[int]) -> Decisions[None]:
        if not dead:
            return
        context = self._context
        for broker in dead:
            del context.brokers[broker]
            context.offline_dirs.pop(broker, None)
            context.shutting_down.discard(broker)
        replicas = yield from context.replicas_on(dead)
        yield from self._replicas_went_offline(replicas)

    def _replicas_went_offline(
        self, replicas: Iterable[PartitionAndReplica]
    ) -> Decisions[None]:
        context = self._context
        being_deleted: list[PartitionAndReplica] = []
        others: list[PartitionAndReplica] = []
        for count, replica in enumerate(replicas, 1):
            yield from pausing(count)
            to_delete = replica.key.topic in context.to_delete
            (being_deleted if to_delete else others).append(replica)
        leaderless = yield from context.with_offline_leader()
        yield from self._partitions.put(leaderless, PartitionState.OFFLINE)
        elected = yield from self._partitions.bring_online()
        yield from self._replicas.change(others, ReplicaState.OFFLINE)
        yield from self._deletions.failed(being_deleted)
        if not others and not elected:
            # No other request has sent the live brokers.
            self._batch.send_metadata(context.brokers, [])
            yield from self._batch.flush()

    def shut_down(
        self, broker: int, broker_epoch: int
    ) -> Decisions[tuple[TopicPartition, ...]]:
        """Move leaderships off a broker in controlled shutdown, and stop its followers.

        Returns the partitions that the broker still leads, since no other replica is in
        sync; the broker will retry. Epoch -1 means that the broker does not know it.
        Raises BROKER_NOT_AVAILABLE and STALE_BROKER_EPOCH.
        """
        context = self._context
        registered = context.brokers.get(broker)
        if registered is None:
            raise KafkaError(
                ErrorCode.broker_not_available, f"broker {broker} is not registered"
            )
        if -1 < broker_epoch < registered.epoch:
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"broker epoch {broker_epoch}, the present one is {registered.epoch}",
            )
        context.shutting_down.add(broker)
        led: list[TopicPartition] = []
        followed: list[TopicPartition] = []
        held = yield from context.partitions_on(broker)
        for count, key in enumerate(held, 1):
            yield from pausing(count)
            leadership = context.leadership(key)
            if (
                leadership is not None
                and len(context.replicas(key)) > 1
                and key.topic not in context.to_delete
            ):
                (led if leadership.leader == broker else followed).append(key)
        yield from self._partitions.elect(led, Election.CONTROLLED_SHUTDOWN)
        for count, key in enumerate(followed, 1):
            self._batch.stop([broker], key, delete=False)
            yield from pausing(count)
        yield from self._batch.flush()
        yield from self._replicas.change(
            [PartitionAndReplica(key, broker) for key in followed],
            ReplicaState.OFFLINE,
        )
        return tuple(sorted((yield from context.led_by(broker))))

    def log_dirs_changed(self, brokers: Iterable[int]) -> Decisions[None]:
        """Start all replicas of brokers; the responses list the offline ones."""
        known = [it for it in sorted(set(brokers)) if it in self._context.brokers]
        replicas = yield from self._context.replicas_on(known)
        yield from self._replicas.change(replicas, ReplicaState.ONLINE)

    def answered(
        self, broker: int, outcomes: Mapping[TopicPartition, ErrorCode]
    ) -> Decisions[None]:
        """Apply the offline and online replicas of a LeaderAndIsr response.

        A replica may return without a restart, for example after a full disk: work that
        has waited for it is resumed. Kafka's controller resumes that work only when
        some broker registers.
        """
        context = self._context
        before = context.offline_dirs.get(broker, frozenset())
        storage_error = ErrorCode.kafka_storage_error
        offline = {key for key, code in outcomes.items() if code is storage_error}
        online = {key for key, code in outcomes.items() if code is ErrorCode.none}
        context.offline_dirs[broker] = (before - online) | offline
        lost = sorted(offline - before)
        if lost:
            yield from self._replicas_went_offline(
                [PartitionAndReplica(key, broker) for key in lost]
            )
        back = sorted(before & online)
        if back:
            replicas = [PartitionAndReplica(key, broker) for key in back]
            yield from self._resume([broker], replicas)
