"""Deletion of topics (Kafka's ``TopicDeletionManager``).

A topic is deleted when all its replicas are deleted. Brokers first receive the metadata
of the deletion, for their clients; then they stop their replicas, then delete them.
While a replica is offline the topic is ineligible; its deletion resumes when the
replica is online again. The znodes are removed last, so that the next controller finds
the remaining work.

Kafka delays a deletion until the topic's reassignments are complete, and elects no
leaders for the topic meanwhile, so that both may wait for ever. Here a deletion first
cancels reassignments (`Reassignments.abandon`), as Kafka's KRaft controller does; old
and new replicas are deleted alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from broker.controller.assignment import PartitionAndReplica
from broker.controller.batches import RequestBatch
from broker.controller.context import ControllerContext
from broker.controller.decisions import (
    Decisions,
    DeleteTopic,
    RemoveDeletions,
    every,
    pausing,
    scan,
)
from broker.controller.partition_states import PartitionStateMachine
from broker.controller.replica_states import ReplicaStateMachine
from broker.controller.states import PartitionState, ReplicaState
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class TopicDeletions:
    """Topic deletions in progress; ``enabled`` is ``delete.topic.enable``."""

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
        """Queue the deletions of the previous controller; `resume` continues them."""
        context = self._context
        known = yield from self._check(topics)
        self._queue(known)
        replicas = yield from context.replicas_of(context.partitions_of(*known))
        for count, replica in enumerate(replicas, 1):
            if not context.is_online(replica.broker, replica.key):
                context.deletion_ineligible.add(replica.key.topic)
            yield from pausing(count)

    def request(self, topics: Collection[str]) -> Decisions[None]:
        """Delete the topics that are children of ``/admin/delete_topics``."""
        known = yield from self._check(topics)
        self._queue(known)
        yield from self.resume()

    def _check(self, topics: Collection[str]) -> Decisions[list[str]]:
        """Return the existing topics; remove the requests for all others."""
        context = self._context
        known = [it for it in sorted(topics) if self._enabled and it in context.topics]
        unknown = sorted(frozenset(topics).difference(known))
        if unknown:
            yield RemoveDeletions(tuple(unknown))
        return known

    def _queue(self, topics: Iterable[str]) -> None:
        self._context.to_delete.update(dict.fromkeys(topics))

    def retry(self, topics: Iterable[str]) -> Decisions[None]:
        """Resume deletions of topics, since their replicas may be online again."""
        waiting = self._context.to_delete.keys() & set(topics)
        if waiting:
            self._context.deletion_ineligible.difference_update(waiting)
            yield from self.resume()

    def answered(
        self, broker: int, outcomes: Mapping[TopicPartition, ErrorCode]
    ) -> Decisions[None]:
        """Apply the outcome of replica deletions on a broker."""
        begun = {
            PartitionAndReplica(key, broker): code
            for key, code in outcomes.items()
            if key.topic in self._context.deletion_started
        }
        good = yield from scan(begun, lambda it: begun[it] is ErrorCode.none)
        bad = yield from scan(begun, lambda it: begun[it] is not ErrorCode.none)
        yield from self.failed(bad)
        if good:
            yield from self._replicas.change(good, ReplicaState.DELETION_SUCCESSFUL)
            yield from self.resume()

    def failed(self, replicas: Iterable[PartitionAndReplica]) -> Decisions[None]:
        """Mark replicas, and their topics, as ineligible for deletion."""
        failed = yield from scan(
            replicas, lambda it: it.key.topic in self._context.to_delete
        )
        if failed:
            yield from self._replicas.change(failed, ReplicaState.DELETION_INELIGIBLE)
            self._context.deletion_ineligible.update(it.key.topic for it in failed)
            yield from self.resume()

    def resume(self) -> Decisions[None]:
        """Complete finished deletions, and begin those of eligible topics."""
        context = self._context
        successful = self._in(ReplicaState.DELETION_SUCCESSFUL)
        started = self._in(ReplicaState.DELETION_STARTED)
        ineligible = self._in(ReplicaState.DELETION_INELIGIBLE)
        again: list[PartitionAndReplica] = []
        eligible = []
        for count, topic in enumerate(list(context.to_delete), 1):
            yield from pausing(count)
            replicas = yield from context.replicas_of(context.partitions_of(topic))
            deleted = yield from scan(replicas, successful)
            if len(deleted) == len(replicas):
                yield from self._finish(topic, replicas)
            elif not (yield from scan(replicas, started)):
                again += yield from scan(replicas, ineligible)
                if topic not in context.deletion_ineligible:
                    eligible.append(topic)
        yield from self._replicas.change(again, ReplicaState.OFFLINE)
        if eligible:
            yield from self._begin(eligible)

    def _in(self, state: ReplicaState) -> Callable[[PartitionAndReplica], bool]:
        states = self._context.replica_states
        return lambda replica: states.get(replica) is state

    def _finish(
        self, topic: str, replicas: Iterable[PartitionAndReplica]
    ) -> Decisions[None]:
        yield from self._replicas.change(replicas, ReplicaState.NON_EXISTENT)
        yield DeleteTopic(topic)
        yield from self._context.remove_topic(topic)

    def _begin(self, topics: list[str]) -> Decisions[None]:
        context = self._context
        unseen = [it for it in topics if it not in context.deletion_started]
        keys = yield from every(context.partitions_of(*unseen))
        yield from self._partitions.put(keys, PartitionState.OFFLINE)
        yield from self._partitions.put(keys, PartitionState.NON_EXISTENT)
        context.deletion_started.update(unseen)
        keys = yield from every(context.partitions_of(*topics))
        yield from self._batch.send_all_metadata(context.brokers, keys)
        yield from self._batch.flush()
        yield from self._delete_replicas(topics)

    def _delete_replicas(self, topics: Iterable[str]) -> Decisions[None]:
        context = self._context
        dead: list[PartitionAndReplica] = []
        alive: list[PartitionAndReplica] = []
        replicas = yield from context.replicas_of(context.partitions_of(*topics))
        for count, replica in enumerate(replicas, 1):
            if not context.is_online(replica.broker, replica.key):
                dead.append(replica)
                context.deletion_ineligible.add(replica.key.topic)
            else:
                alive.append(replica)
            yield from pausing(count)
        yield from self._replicas.change(dead, ReplicaState.DELETION_INELIGIBLE)
        # Followers stop fetching before any log is deleted.
        yield from self._replicas.change(alive, ReplicaState.OFFLINE)
        yield from self._replicas.change(alive, ReplicaState.DELETION_STARTED)
