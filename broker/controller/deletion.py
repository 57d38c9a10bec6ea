"""Topics on their way out (Kafka's ``TopicDeletionManager``).

A topic is deleted when all its replicas are: clients are told first, then each broker
stops its replicas, then deletes them. While a replica is not online the topic is
ineligible; its deletion goes on when that has changed. Its znodes go last, so that a
controller that takes over finds the remaining work.

Kafka lets a deletion wait until the topic's reassignments are done, and elects no
leaders for it meanwhile, so that both may wait for ever. Here a request for deletion
first ends reassignments (`Reassignments.abandon`), as Kafka's KRaft controller does;
old and new replicas go alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from broker.controller.assignment import PartitionAndReplica
from broker.controller.batches import RequestBatch
from broker.controller.context import ControllerContext
from broker.controller.decisions import Decisions, DeleteTopic, ForgetDeletions
from broker.controller.partition_states import PartitionStateMachine
from broker.controller.replica_states import ReplicaStateMachine
from broker.controller.states import PartitionState, ReplicaState
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class TopicDeletions:
    """``enabled`` is ``delete.topic.enable``."""

    def __init__(
        self,
        context: ControllerContext,
        batch: RequestBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        *,
        enabled: bool,
    ) -> None:
        self._context = context
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._enabled = enabled

    def take_over(self, topics: Collection[str]) -> Decisions[None]:
        """Know of deletions that a former controller has begun; `resume` continues."""
        known = yield from self._check(topics)
        self._queue(known)
        for topic in known:
            keys = self._context.partitions_of(topic)
            if not all(
                self._context.is_online(broker, key)
                for key, broker in self._context.replicas_of(keys)
            ):
                self._context.deletion_ineligible.add(topic)

    def request(self, topics: Collection[str]) -> Decisions[None]:
        """Delete topics, as children of ``/admin/delete_topics`` ask for it."""
        known = yield from self._check(topics)
        self._queue(known)
        yield from self.resume()

    def _check(self, topics: Collection[str]) -> Decisions[list[str]]:
        """Return the topics that there are; the others' requests are forgotten."""
        context = self._context
        known = [it for it in sorted(topics) if self._enabled and it in context.topics]
        unknown = [it for it in sorted(topics) if it not in known]
        if unknown:
            yield ForgetDeletions(tuple(unknown))
        return known

    def _queue(self, topics: Iterable[str]) -> None:
        self._context.to_delete.update(dict.fromkeys(topics))

    def retry(self, topics: Iterable[str]) -> Decisions[None]:
        """Go on with topics, since what has held them up may be gone."""
        waiting = self._context.to_delete.keys() & set(topics)
        if waiting:
            self._context.deletion_ineligible.difference_update(waiting)
            yield from self.resume()

    def answered(
        self, broker: int, outcomes: Mapping[TopicPartition, ErrorCode]
    ) -> Decisions[None]:
        """Learn whether a broker has deleted replicas."""
        begun = {
            PartitionAndReplica(key, broker): code
            for key, code in outcomes.items()
            if key.topic in self._context.deletion_started
        }
        good = [it for it, code in begun.items() if code is ErrorCode.none]
        yield from self.failed(it for it in begun if it not in good)
        if good:
            yield from self._replicas.change(good, ReplicaState.DELETION_SUCCESSFUL)
            yield from self.resume()

    def failed(self, replicas: Iterable[PartitionAndReplica]) -> Decisions[None]:
        """Learn that replicas cannot be deleted as long as their brokers are gone."""
        failed = [it for it in replicas if it.key.topic in self._context.to_delete]
        if failed:
            yield from self._replicas.change(failed, ReplicaState.DELETION_INELIGIBLE)
            self._context.deletion_ineligible.update(it.key.topic for it in failed)
            yield from self.resume()

    def resume(self) -> Decisions[None]:
        """Complete finished deletions, and go on with every topic that is eligible."""
        context = self._context
        again: list[PartitionAndReplica] = []
        eligible = []
        for topic in list(context.to_delete):
            replicas = context.replicas_of(context.partitions_of(topic))
            states = {context.replica_states.get(it) for it in replicas}
            if states <= {ReplicaState.DELETION_SUCCESSFUL}:
                yield from self._finish(topic, replicas)
            elif ReplicaState.DELETION_STARTED not in states:
                again += context.replicas_in(topic, ReplicaState.DELETION_INELIGIBLE)
                if topic not in context.deletion_ineligible:
                    eligible.append(topic)
        yield from self._replicas.change(again, ReplicaState.OFFLINE)
        if eligible:
            yield from self._begin(eligible)

    def _finish(
        self, topic: str, replicas: Iterable[PartitionAndReplica]
    ) -> Decisions[None]:
        yield from self._replicas.change(replicas, ReplicaState.NON_EXISTENT)
        yield DeleteTopic(topic)
        self._context.remove_topic(topic)

    def _begin(self, topics: list[str]) -> Decisions[None]:
        context = self._context
        unseen = [it for it in topics if it not in context.deletion_started]
        keys = [key for topic in unseen for key in context.partitions_of(topic)]
        self._partitions.put(keys, PartitionState.OFFLINE)
        self._partitions.put(keys, PartitionState.NON_EXISTENT)
        context.deletion_started.update(unseen)
        every = [key for topic in topics for key in context.partitions_of(topic)]
        self._batch.tell(context.brokers, every)
        yield from self._batch.flush()
        yield from self._delete_replicas(topics)

    def _delete_replicas(self, topics: Iterable[str]) -> Decisions[None]:
        context = self._context
        dead: list[PartitionAndReplica] = []
        alive: list[PartitionAndReplica] = []
        for topic in topics:
            for replica in context.replicas_of(context.partitions_of(topic)):
                if not context.is_online(replica.broker, replica.key):
                    dead.append(replica)
                    context.deletion_ineligible.add(topic)
                else:
                    alive.append(replica)
        yield from self._replicas.change(dead, ReplicaState.DELETION_INELIGIBLE)
        # Followers stop fetching before anybody's log is gone.
        yield from self._replicas.change(alive, ReplicaState.OFFLINE)
        yield from self._replicas.change(alive, ReplicaState.DELETION_STARTED)
