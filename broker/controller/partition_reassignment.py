"""Moving partitions to other brokers (KIP-455).

RS is the replica set of a partition, AR and RR the replicas being added and removed,
and TRS the target. A topic's znode is sufficient to continue after a fail-over:

U. Write RS = TRS and the previous replicas, with AR and RR, to the znode. Delete
   replicas that only an earlier target included.
A. While the ISR lacks replicas of TRS: raise the leader epoch, so that the leader
   applies RS, and start the replicas in AR.
B. When the ISR includes TRS: move the leader into TRS, remove the replicas in RR from
   the ISR and delete them, write RS = TRS to the znode, and update all brokers.

A cancellation is a reassignment to the previous replicas. Their order may differ, since
RS begins with the target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from broker.controller.assignment import (
    PartitionAndReplica,
    ReplicaAssignment,
)
from broker.controller.batches import RequestBatch
from broker.controller.context import ControllerContext
from broker.controller.decisions import (
    Decisions,
    WriteAssignment,
    WriteReassignments,
    pausing,
    scan,
)
from broker.controller.leadership import Leadership
from broker.controller.partition_states import Election, PartitionStateMachine
from broker.controller.replica_states import ReplicaStateMachine
from broker.controller.selectors import reassigned_leader
from broker.controller.states import PartitionState, ReplicaState
from broker.controller.writing import change_leaderships
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition

Targets = Mapping[TopicPartition, tuple[int, ...]]


class Reassignments:
    """The reassignments in progress."""

    def __init__(
        self,
        context: ControllerContext,
        batch: RequestBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
    ) -> None:
        self._context = context
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        # The content of ``/admin/reassign_partitions``.
        self._in_znode: dict[TopicPartition, tuple[int, ...]] = {}

    # ---- events -----------------------------------------------------------------

    def request(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        keep_replication_factor: bool = False,
    ) -> Decisions[dict[TopicPartition, KafkaError | None]]:
        """Reassign partitions, or cancel where ``wanted`` has None.

        ``keep_replication_factor`` refuses to change the number of replicas (KIP-860).
        Returns each partition's error, or None.
        """
        outcome: dict[TopicPartition, KafkaError | None] = {}
        accepted: dict[TopicPartition, ReplicaAssignment] = {}
        for count, (key, target) in enumerate(wanted.items(), 1):
            try:
                planned = self._planned(key, target)
                if keep_replication_factor and target is not None:
                    self._expect_as_many(key, target)
                accepted[key] = planned
            except KafkaError as refusal:
                outcome[key] = refusal
            else:
                outcome[key] = None
            yield from pausing(count)
        # A later reassignment replaces an earlier one in the znode.
        yield from self._remove_from_znode(accepted)
        for key, assignment in accepted.items():
            yield from self._advance(key, assignment)
        return outcome

    def _expect_as_many(self, key: TopicPartition, target: tuple[int, ...]) -> None:
        """Compare the number with that of the current replicas, or current target."""
        before = len(self._context.assignment(key).target)
        if len(target) != before:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"the replication factor would change from {before} to {len(target)}",
            )

    def request_in_znode(self, targets: Targets) -> Decisions[None]:
        """Apply the content of ``/admin/reassign_partitions``."""
        self._in_znode = dict(targets)
        refused = []
        for count, (key, target) in enumerate(targets.items(), 1):
            yield from pausing(count)
            if key in self._context.reassigned and (
                self._context.assignment(key).target == target
            ):
                continue
            try:
                assignment = self._planned(key, target)
            except KafkaError:
                refused.append(key)
            else:
                yield from self._advance(key, assignment)
        yield from self._remove_from_znode(refused)

    def resume(self, wanted: Callable[[ReplicaAssignment], bool]) -> Decisions[None]:
        """Resume reassignments, since their brokers may be live again."""
        assignment = self._context.assignment
        wanting = yield from scan(
            self._context.reassigned, lambda key: wanted(assignment(key))
        )
        for key in wanting:
            yield from self._advance(key, assignment(key))

    def abandon(self, topics: Collection[str]) -> Decisions[None]:
        """Cancel the reassignments of topics that are to be deleted."""
        context = self._context
        named = frozenset(topics)
        cancelled = yield from scan(context.reassigned, lambda it: it.topic in named)
        for count, key in enumerate(cancelled, 1):
            del context.reassigned[key]
            yield from pausing(count)
        in_znode = yield from scan(self._in_znode, lambda it: it.topic in named)
        yield from self._remove_from_znode(in_znode)

    def complete(self, keys: Iterable[TopicPartition]) -> Decisions[None]:
        """Complete reassignments whose target is in sync, after ISRs have changed."""
        for count, key in enumerate(keys, 1):
            yield from pausing(count)
            if key in self._context.reassigned:
                assignment = self._context.assignment(key)
                if self._is_caught_up(key, assignment):
                    yield from self._advance(key, assignment)

    # ---- checks -----------------------------------------------------------------

    def _planned(
        self, key: TopicPartition, target: tuple[int, ...] | None
    ) -> ReplicaAssignment:
        """Return the assignment during the reassignment; raise `KafkaError`."""
        context = self._context
        current = context.assignment(key)
        if not current.replicas or key.topic in context.to_delete:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, "The partition does not exist."
            )
        if target is None:
            if not current.is_being_reassigned:
                raise KafkaError(ErrorCode.no_reassignment_in_progress)
            target = current.origin
        planned = current.reassign_to(target)
        self._check(key, target, planned)
        return planned

    def _check(
        self,
        key: TopicPartition,
        target: tuple[int, ...],
        planned: ReplicaAssignment,
    ) -> None:
        leadership = self._context.leadership(key)
        if not target:
            reason = "The list of replicas is empty."
        elif len(set(target)) < len(target):
            reason = f"Brokers occur twice in the list of replicas {list(target)}."
        elif min(target) < 0:
            reason = f"The list of replicas {list(target)} has no valid broker ids."
        elif not self._context.live_brokers.issuperset(planned.adding):
            reason = (
                f"Of the replicas to be added, {list(planned.adding)}, some are on "
                f"brokers that are not alive; {sorted(self._context.live_brokers)} are."
            )
        elif leadership and not set(leadership.isr).intersection(planned.replicas):
            # All in-sync replicas belong to an earlier target: records would be lost.
            reason = f"None of the replicas in sync, {list(leadership.isr)}, remains."
        else:
            return
        raise KafkaError(ErrorCode.invalid_replica_assignment, reason)

    def _is_caught_up(self, key: TopicPartition, assignment: ReplicaAssignment) -> bool:
        """Return whether the target is in sync, and has an online replica to lead.

        Kafka checks the former only, and may leave the partition without a leader.
        """
        leadership = self._context.leadership(key)
        if leadership is None:
            return False
        target, isr = assignment.target, leadership.isr
        online = self._context.online_replicas(key)
        return set(isr).issuperset(target) and (
            reassigned_leader(target, isr, online) is not None
        )

    # ---- the phases -------------------------------------------------------------

    def _advance(
        self, key: TopicPartition, assignment: ReplicaAssignment
    ) -> Decisions[None]:
        """Carry out all phases that are possible now."""
        self._context.reassigned.setdefault(key)
        yield from self._assign(key, assignment)
        if self._context.leadership(key) is None:
            # The partition never had a leader: a new replica may be the first online.
            yield from self._start_new_replicas(key, assignment)
            yield from self._partitions.elect([key], Election.OFFLINE)
        done = False
        if self._is_caught_up(key, assignment):
            done = yield from self._finish(key, assignment)
        if not done:
            yield from self._raise_epoch(key, assignment)
            yield from self._start_new_replicas(key, assignment)

    def _assign(
        self, key: TopicPartition, assignment: ReplicaAssignment
    ) -> Decisions[None]:
        context = self._context
        before = context.assignment(key)
        if before == assignment:
            return
        context.put_assignment(key, assignment)
        unneeded = [it for it in before.replicas if it not in assignment.replicas]
        leadership = context.leadership(key)
        # The remaining replicas receive the change before the znode is written. If the
        # controller fails in between, the next one reads the former target from the
        # znode, and sends it to all of them.
        if leadership is not None and leadership.leader in unneeded:
            yield from self._partitions.elect([key], Election.OFFLINE)
        elif unneeded:
            yield from self._raise_epoch(key, assignment)
        yield from self._write(key, assignment)
        yield from self._delete_replicas(key, unneeded)

    def _write(
        self, key: TopicPartition, assignment: ReplicaAssignment
    ) -> Decisions[None]:
        self._context.put_assignment(key, assignment)
        yield WriteAssignment(key.topic, self._context.assignment_of(key.topic))

    def _raise_epoch(
        self, key: TopicPartition, assignment: ReplicaAssignment
    ) -> Decisions[None]:
        changed = yield from change_leaderships(
            self._context, [key], self._in_next_epoch
        )
        for leadership in changed.values():
            # An existing replica must not be created again where its disk is offline.
            self._batch.lead_or_follow(
                assignment.origin, key, leadership, assignment, is_new=False
            )
            self._batch.lead_or_follow(
                assignment.adding, key, leadership, assignment, is_new=True
            )
        yield from self._batch.flush()

    def _in_next_epoch(self, key: TopicPartition, before: Leadership) -> Leadership:
        return before.next(self._context.epoch, leader=before.leader, isr=before.isr)

    def _start_new_replicas(
        self, key: TopicPartition, assignment: ReplicaAssignment
    ) -> Decisions[None]:
        for broker in assignment.adding:
            yield from self._replicas.change(
                [PartitionAndReplica(key, broker)], ReplicaState.NEW
            )

    def _finish(
        self, key: TopicPartition, assignment: ReplicaAssignment
    ) -> Decisions[bool]:
        """Complete a reassignment; False if the ISR has changed before the first write.

        After that write, leaders propose ISRs only with the new epoch and replicas.
        """
        context = self._context
        added = [PartitionAndReplica(key, it) for it in assignment.adding]
        yield from self._replicas.change(added, ReplicaState.ONLINE)
        completed = ReplicaAssignment(assignment.target)
        context.put_assignment(key, completed)
        yield from self._move_leader(key, completed)
        if not self._is_caught_up(key, completed):
            context.put_assignment(key, assignment)
            return False
        yield from self._delete_replicas(key, assignment.removing)
        yield from self._write(key, completed)
        context.reassigned.pop(key, None)
        if self._in_znode.get(key) == completed.replicas:
            yield from self._remove_from_znode([key])
        self._batch.send_metadata(context.brokers, [key])
        yield from self._batch.flush()
        return True

    def _move_leader(
        self, key: TopicPartition, completed: ReplicaAssignment
    ) -> Decisions[None]:
        leadership = self._context.leadership(key)
        assert leadership is not None, key
        leader = leadership.leader
        stays = leader in completed.replicas and self._context.is_online(leader, key)
        if stays:
            yield from self._raise_epoch(key, completed)
        else:
            yield from self._partitions.elect([key], Election.REASSIGNMENT)

    def _delete_replicas(
        self, key: TopicPartition, brokers: Iterable[int]
    ) -> Decisions[None]:
        """Take replicas out of the ISR and delete them, without waiting."""
        replicas = [PartitionAndReplica(key, it) for it in brokers]
        for state in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            yield from self._replicas.change(replicas, state)
        leadership = self._context.leadership(key)
        if leadership is not None and leadership.leader == NO_LEADER:
            # The first in-sync replica that returns is elected.
            yield from self._partitions.put([key], PartitionState.OFFLINE)

    def _remove_from_znode(self, keys: Iterable[TopicPartition]) -> Decisions[None]:
        removed = [key for key in keys if self._in_znode.pop(key, None) is not None]
        if removed:
            yield WriteReassignments(dict(self._in_znode))
