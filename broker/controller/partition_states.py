"""States of partitions (new, online, offline, non-existent), and leader elections.

Kafka's ``PartitionStateMachine``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto

from broker.controller.batches import RequestBatch
from broker.controller.context import ControllerContext
from broker.controller.decisions import Decisions, pausing, scan
from broker.controller.leadership import RECOVERING, Leadership, first_leadership
from broker.controller.selectors import (
    leader_at_shutdown,
    offline_leader,
    preferred_leader,
    reassigned_leader,
    unclean_leader,
)
from broker.controller.states import PARTITION_BEFORE, PartitionState
from broker.controller.writing import change_leaderships, write_leaderships
from broker.protocol.topic_partition import TopicPartition


class Election(Enum):
    """The cause of an election, and so its rule."""

    # The leader is offline; unclean only where the topic's config allows it.
    OFFLINE = auto()
    # The leader is offline, and an operator has requested an unclean election.
    UNCLEAN = auto()
    PREFERRED = auto()
    REASSIGNMENT = auto()
    CONTROLLED_SHUTDOWN = auto()


class PartitionStateMachine:
    """State changes of partitions, with their elections.

    ``unclean_election`` returns a topic's ``unclean.leader.election.enable``.
    """

    def __init__(
        self,
        context: ControllerContext,
        batch: RequestBatch,
        unclean_election: Callable[[str], bool],
    ) -> None:
        self._context = context
        self._batch = batch
        self._unclean_election = unclean_election

    def start(self) -> Decisions[None]:
        """Set the states of all partitions, and elect missing leaders."""
        context = self._context
        for count, key in enumerate(context.all_partitions(), 1):
            leadership = context.leadership(key)
            if leadership is None:
                state = PartitionState.NEW
            elif context.is_online(leadership.leader, key):
                state = PartitionState.ONLINE
            else:
                state = PartitionState.OFFLINE
            context.partition_states[key] = state
            yield from pausing(count)
        yield from self.bring_online()

    def bring_online(
        self, topic: str | None = None
    ) -> Decisions[dict[TopicPartition, Leadership]]:
        """Try to elect missing leaders, of all partitions or of one topic."""
        states = self._context.partition_states
        waiting = yield from scan(
            states,
            lambda key: (
                states[key] in (PartitionState.NEW, PartitionState.OFFLINE)
                and topic in (None, key.topic)
                and key.topic not in self._context.to_delete
            ),
        )
        return (yield from self.elect(waiting, Election.OFFLINE))

    def put(
        self, keys: Iterable[TopicPartition], state: PartitionState
    ) -> Decisions[None]:
        """Set a state that is not sent to brokers: new, offline, non-existent."""
        possible = yield from self._may_become(keys, state)
        for count, key in enumerate(possible, 1):
            if state is PartitionState.NON_EXISTENT:
                del self._context.partition_states[key]
            else:
                self._context.partition_states[key] = state
            yield from pausing(count)

    def elect(
        self, keys: Iterable[TopicPartition], election: Election
    ) -> Decisions[dict[TopicPartition, Leadership]]:
        """Bring partitions online; return the leaderships of the elected leaders.

        A new partition gets its first leader; for any other a leader is elected, even
        if it has one. Nothing changes for a partition without an eligible replica.
        """
        states = self._context.partition_states
        possible = yield from self._may_become(keys, PartitionState.ONLINE)
        new = yield from scan(possible, lambda it: self._context.leadership(it) is None)
        created = yield from self._create(new)
        others = yield from scan(possible, lambda it: it not in created)
        elected = created | (yield from self._elect(others, election))
        for count, key in enumerate(elected, 1):
            states[key] = PartitionState.ONLINE
            yield from pausing(count)
        yield from self._batch.flush()
        return elected

    def _may_become(
        self, keys: Iterable[TopicPartition], state: PartitionState
    ) -> Decisions[list[TopicPartition]]:
        states = self._context.partition_states
        before = PARTITION_BEFORE[state]
        nothing = PartitionState.NON_EXISTENT
        return scan(keys, lambda it: states.get(it, nothing) in before)

    def _create(
        self, keys: Collection[TopicPartition]
    ) -> Decisions[dict[TopicPartition, Leadership]]:
        """Write first leaderships: all online replicas in sync, the first one leads.

        A state that already exists in ZooKeeper, written by hand, is kept.
        """
        context = self._context
        wanted = {}
        for count, key in enumerate(keys, 1):
            replicas = context.online_replicas(key)
            if replicas:
                wanted[key] = first_leadership(replicas, context.epoch)
            yield from pausing(count)
        written = yield from write_leaderships(context, wanted)
        for count, (key, leadership) in enumerate(written.items(), 1):
            assignment = context.assignment(key)
            self._batch.lead_or_follow(
                leadership.isr, key, leadership, assignment, is_new=True
            )
            yield from pausing(count)
        return written

    def _elect(
        self, keys: Collection[TopicPartition], election: Election
    ) -> Decisions[dict[TopicPartition, Leadership]]:
        context = self._context
        isrs: dict[TopicPartition, tuple[int, ...]] = {}

        def choose(key: TopicPartition, before: Leadership) -> Leadership | None:
            isrs[key] = before.isr
            return self._choose(key, before, election)

        elected = yield from change_leaderships(context, keys, choose)
        for count, (key, leadership) in enumerate(elected.items(), 1):
            context.unclean_elections += leadership.leader not in isrs[key]
            self._batch.lead_or_follow(
                self._recipients(key, election),
                key,
                leadership,
                context.assignment(key),
            )
            yield from pausing(count)
        return elected

    def _choose(
        self, key: TopicPartition, before: Leadership, election: Election
    ) -> Leadership | None:
        """Return the leadership after an election; None if no replica may lead."""
        context = self._context
        assignment = context.assignment(key)
        isr = before.isr
        online = context.online_replicas(key)
        recovery_state = None
        match election:
            case Election.OFFLINE | Election.UNCLEAN:
                leader = offline_leader(assignment.replicas, isr, online)
                isr = tuple(it for it in isr if context.is_online(it, key))
                if leader is None and self._may_lose_records(key, election):
                    leader = unclean_leader(assignment.replicas, online)
                    isr = () if leader is None else (leader,)
                    recovery_state = RECOVERING
            case Election.PREFERRED:
                leader = preferred_leader(assignment.replicas, isr, online)
            case Election.REASSIGNMENT:
                leader = reassigned_leader(assignment.target, isr, online)
            case Election.CONTROLLED_SHUTDOWN:
                stopping = context.shutting_down
                up = context.online_or_shutting_down(key)
                leader = leader_at_shutdown(assignment.replicas, isr, up, stopping)
                isr = tuple(it for it in isr if it not in stopping)
        if leader is None:
            return None
        return before.next(
            context.epoch, leader=leader, isr=isr, recovery_state=recovery_state
        )

    def _may_lose_records(self, key: TopicPartition, election: Election) -> bool:
        return election is Election.UNCLEAN or self._unclean_election(key.topic)

    def _recipients(self, key: TopicPartition, election: Election) -> tuple[int, ...]:
        context = self._context
        match election:
            case Election.OFFLINE | Election.UNCLEAN:
                return context.online_replicas(key)
            case Election.CONTROLLED_SHUTDOWN:
                return context.online_or_shutting_down(key)
            case Election.REASSIGNMENT:
                return context.assignment(key).target
            case Election.PREFERRED:
                return context.replicas(key)
