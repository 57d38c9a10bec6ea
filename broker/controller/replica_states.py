"""States of replicas (started, stopped, deleted), and the requests that change them.

Kafka's ``ReplicaStateMachine``. `change` brings replicas into one state, in any order,
and sends the requests in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.controller.assignment import PartitionAndReplica
from broker.controller.batches import RequestBatch
from broker.controller.context import ControllerContext
from broker.controller.decisions import Decisions, pausing, scan
from broker.controller.leadership import Leadership
from broker.controller.states import REPLICA_BEFORE, ReplicaState
from broker.controller.writing import change_leaderships
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition


class ReplicaStateMachine:
    """Moves replicas from state to state."""

    def __init__(self, context: ControllerContext, batch: RequestBatch) -> None:
        self._context = context
        self._batch = batch

    def start(self) -> Decisions[None]:
        """Start the replicas that are online, and remove the others from their ISRs.

        The latter begin as ineligible for deletion, from which offline is reachable.
        """
        context = self._context
        states = context.replica_states
        online: list[PartitionAndReplica] = []
        offline: list[PartitionAndReplica] = []
        for count, key in enumerate(context.all_partitions(), 1):
            for broker in context.replicas(key):
                replica = PartitionAndReplica(key, broker)
                if context.is_online(broker, key):
                    states[replica] = ReplicaState.ONLINE
                    online.append(replica)
                else:
                    states[replica] = ReplicaState.DELETION_INELIGIBLE
                    offline.append(replica)
            yield from pausing(count)
        yield from self.change(online, ReplicaState.ONLINE)
        yield from self.change(offline, ReplicaState.OFFLINE)

    def change(
        self, replicas: Iterable[PartitionAndReplica], state: ReplicaState
    ) -> Decisions[None]:
        """Bring replicas into a state; skip those whose state does not allow it."""
        possible = yield from self._may_become(replicas, state)
        match state:
            case ReplicaState.NEW:
                yield from self._start_new(possible)
            case ReplicaState.ONLINE:
                yield from self._start_again(possible)
            case ReplicaState.OFFLINE:
                yield from self._stop(possible)
            case ReplicaState.DELETION_STARTED:
                yield from self._delete(possible)
            case ReplicaState.NON_EXISTENT:
                yield from self._remove(possible)
            case ReplicaState.DELETION_SUCCESSFUL | ReplicaState.DELETION_INELIGIBLE:
                yield from self._put(possible, state)
        yield from self._batch.flush()

    def _may_become(
        self, replicas: Iterable[PartitionAndReplica], state: ReplicaState
    ) -> Decisions[list[PartitionAndReplica]]:
        states = self._context.replica_states
        before = REPLICA_BEFORE[state]
        nothing = ReplicaState.NON_EXISTENT
        return scan(replicas, lambda it: states.get(it, nothing) in before)

    def _put(
        self, replicas: Iterable[PartitionAndReplica], state: ReplicaState
    ) -> Decisions[None]:
        for count, replica in enumerate(replicas, 1):
            self._context.replica_states[replica] = state
            yield from pausing(count)

    def _start_new(self, replicas: Iterable[PartitionAndReplica]) -> Decisions[None]:
        """Start replicas that have no log yet, except leaders, which have started."""
        context = self._context
        for count, replica in enumerate(replicas, 1):
            yield from pausing(count)
            leadership = context.leadership(replica.key)
            if leadership is not None:
                if leadership.leader == replica.broker:
                    continue
                self._lead_or_follow([replica.broker], replica.key, is_new=True)
            context.replica_states[replica] = ReplicaState.NEW

    def _start_again(self, replicas: Iterable[PartitionAndReplica]) -> Decisions[None]:
        """Start replicas that may have a log; new ones have started already."""
        states = self._context.replica_states
        for count, replica in enumerate(replicas, 1):
            yield from pausing(count)
            if states[replica] is not ReplicaState.NEW:
                self._lead_or_follow([replica.broker], replica.key)
            states[replica] = ReplicaState.ONLINE

    def _stop(self, replicas: list[PartitionAndReplica]) -> Decisions[None]:
        """Stop replicas, remove them from their ISRs, and update the other replicas."""
        context = self._context
        by_broker: dict[int, list[TopicPartition]] = {}
        for count, (key, broker) in enumerate(replicas, 1):
            self._batch.stop([broker], key, delete=False)
            by_broker.setdefault(broker, []).append(key)
            yield from pausing(count)
        for broker, keys in by_broker.items():
            yield from change_leaderships(context, keys, self._leave_isr(broker))
            for count, key in enumerate(keys, 1):
                yield from pausing(count)
                if context.leadership(key) is None:
                    self._batch.send_metadata(context.brokers, [])
                elif key.topic not in context.to_delete:
                    others = [it for it in context.replicas(key) if it != broker]
                    self._lead_or_follow(others, key)
                context.replica_states[PartitionAndReplica(key, broker)] = (
                    ReplicaState.OFFLINE
                )

    def _leave_isr(
        self, broker: int
    ) -> Callable[[TopicPartition, Leadership], Leadership | None]:
        """Return the change that removes a broker; the last member of an ISR stays."""

        def leave(key: TopicPartition, before: Leadership) -> Leadership | None:
            if broker not in before.isr:
                return None
            isr = tuple(it for it in before.isr if it != broker) or before.isr
            leader = NO_LEADER if before.leader == broker else before.leader
            if (leader, isr) == (before.leader, before.isr):
                return None
            return before.next(self._context.epoch, leader=leader, isr=isr)

        return leave

    def _delete(self, replicas: Iterable[PartitionAndReplica]) -> Decisions[None]:
        for count, replica in enumerate(replicas, 1):
            self._batch.stop([replica.broker], replica.key, delete=True)
            self._context.replica_states[replica] = ReplicaState.DELETION_STARTED
            yield from pausing(count)

    def _remove(self, replicas: Iterable[PartitionAndReplica]) -> Decisions[None]:
        context = self._context
        for count, replica in enumerate(replicas, 1):
            assignment = context.assignment(replica.key)
            context.put_assignment(replica.key, assignment.without(replica.broker))
            del context.replica_states[replica]
            yield from pausing(count)

    def _lead_or_follow(
        self, brokers: list[int], key: TopicPartition, *, is_new: bool = False
    ) -> None:
        leadership = self._context.leadership(key)
        if leadership is not None:
            assignment = self._context.assignment(key)
            self._batch.lead_or_follow(
                brokers, key, leadership, assignment, is_new=is_new
            )
