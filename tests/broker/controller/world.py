"""A cluster around a controller's core: znodes and naive brokers.

`World` carries out decisions as the driver of a real controller does, and checks the
safety of each decision. Its brokers only know Kafka's fencing rules. Their state shows
whether the order and the epochs of requests leave every broker with the newest state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from uuid import UUID

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.controller.controller import (
    ControllerConfig,
    KafkaController,
)
from broker.controller.decisions import (
    NOTHING_FOUND,
    Decision,
    Decisions,
    DeleteTopic,
    Found,
    RemoveDeletions,
    RemovePreferredElection,
    Send,
    WriteAssignment,
    WriteLeaderships,
    WriteReassignments,
)
from broker.controller.isr_proposals import IsrProposal
from broker.controller.leadership import Leadership
from broker.protocol.errors import KafkaError
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataRequest,
)
from broker.protocol.topic_partition import TopicPartition
from tests.broker.controller.naive_broker import Broker, partitions_of
from tests.broker.controller.znodes import Znodes, registration

ORDER = [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]
NO_LEADER = -1


class Crash(Exception):
    """The controller crashes between two of its decisions."""


class World:
    """Znodes, brokers, channels, and the current controller."""

    def __init__(self, brokers: int) -> None:
        self.znodes = Znodes()
        self.brokers = {number: Broker(number) for number in range(1, brokers + 1)}
        self.channels: dict[int, deque] = {}
        self.unclean: set[str] = set()
        self.controller_epoch = 0
        self._zxid = count(1)
        self._ids = count(1)
        # The leader of each partition and epoch, by topic id: there is at most one.
        self.leaders: dict[tuple[UUID | None, int, int], int] = {}
        self.epochs: dict[tuple[UUID | None, int], int] = {}
        # A function that runs once, before the next write.
        self.meddle: Callable[[WriteLeaderships], None] | None = None
        self._late_answers: list = []
        # Partitions whose leaders have written their ISRs and have sent a notification.
        self.isr_notifications: set[TopicPartition] = set()
        # The controller crashes after this number of further decisions.
        self.decisions_left: int | None = None
        # Proposed ISRs, and whether an election may be unclean, in the current run.
        self.proposal: dict[TopicPartition, tuple[int, ...]] = {}
        self.unclean_now = False
        self.sent: list[tuple[int, object]] = []
        self.decisions: list[Decision] = []
        self.core: KafkaController

    # ---- live brokers -----------------------------------------------------------

    def start_broker(self, number: int) -> None:
        epoch = next(self._zxid)
        self.brokers[number].start(epoch)
        self.znodes.brokers[number] = registration(number, epoch)

    def stop_broker(self, number: int) -> None:
        del self.znodes.brokers[number]

    def notice_brokers(self) -> None:
        """Read the list of live brokers as the controller's watch does."""
        known = self.core.context.brokers
        there = self.znodes.brokers
        for number in list(self.channels):
            if number not in there or there[number] != known.get(number):
                del self.channels[number]
        for number in there:
            self.channels.setdefault(number, deque())
        self.run(self.core.brokers_changed(dict(there)))

    # ---- the controller ---------------------------------------------------------

    def elect_controller(self) -> None:
        """Begin a new term; requests of the last controller may still arrive."""
        self.controller_epoch += 1
        late = self.channels
        self.isr_notifications.clear()
        self.channels = {number: deque() for number in self.znodes.brokers}
        self.core = KafkaController(
            1,
            self.controller_epoch,
            ControllerConfig(
                inter_broker_listener="PLAINTEXT",
                unclean_election=lambda topic: topic in self.unclean,
            ),
        )
        self.run(self.core.start(self.znodes.snapshot()))
        for number, requests in late.items():
            if number in self.znodes.brokers:
                for request in requests:
                    self.brokers[number].obey(request)

    def run(self, steps: Decisions):
        """Carry out decisions; after a crash, elect the next controller."""
        try:
            outcome = self._carry_out_all(steps)
        except Crash:
            steps.close()
            self.decisions_left, self.proposal = None, {}
            self.elect_controller()
            return None
        self.check_states()
        return outcome

    def _carry_out_all(self, steps: Decisions):
        try:
            decision = next(steps)
            while True:
                if self.decisions_left is not None:
                    if self.decisions_left == 0:
                        raise Crash
                    self.decisions_left -= 1
                self.decisions.append(decision)
                decision = steps.send(self._carry_out(decision))
        except StopIteration as done:
            return done.value

    def _carry_out(self, decision: Decision) -> Found:
        znodes = self.znodes
        match decision:
            case WriteLeaderships():
                return self._write(decision)
            case WriteAssignment():
                znodes.add(decision.topic, decision.assignment.partitions)
            case DeleteTopic():
                self._delete_topic(decision.topic)
            case RemoveDeletions():
                znodes.deletions.difference_update(decision.topics)
            case WriteReassignments():
                znodes.reassignments = dict(decision.remaining)
            case RemovePreferredElection():
                znodes.preferred = None
            case Send():
                self._send(decision)
        return NOTHING_FOUND

    def _write(self, decision: WriteLeaderships) -> Found:
        assert decision.wanted, "a write of nothing"
        if self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle(decision)
        states = self.znodes.states
        for key, wanted in decision.wanted.items():
            before = states.get(key)
            if (before.version + 1 if before else 0) == wanted.version:
                self._check_write(key, before, wanted)
                states[key] = wanted
        return {key: states.get(key) for key in decision.wanted}

    def _check_write(
        self, key: TopicPartition, before: Leadership | None, after: Leadership
    ) -> None:
        topic_id = self.znodes.topics[key.topic].topic_id
        context = self.core.context
        assert after.controller_epoch == self.controller_epoch
        assert after.isr, "somebody is always in the ISR"
        assert len(set(after.isr)) == len(after.isr)
        # An elected leader is live and in the ISR.
        if after.leader != NO_LEADER:
            assert after.leader in after.isr
            if before is None or before.leader != after.leader:
                assert context.is_live(after.leader)
                assert key not in context.offline_dirs.get(after.leader, ())
                epoch = (topic_id, key.partition, after.leader_epoch)
                assert self.leaders.setdefault(epoch, after.leader) == after.leader
        if before is None:
            assert after.leader_epoch == 0
            return
        grown = set(after.isr) - set(before.isr)
        if key in self.proposal:
            assert after.leader_epoch == before.leader_epoch
            assert after.isr == self.proposal[key]
            assert context.live_brokers.issuperset(after.isr)
        else:
            assert after.leader_epoch == before.leader_epoch + 1
            may_lose = self.unclean_now or key.topic in self.unclean
            is_unclean = after.leader not in (NO_LEADER, *before.isr)
            assert not grown or (
                may_lose and is_unclean and after.isr == (after.leader,)
            )

    def _delete_topic(self, topic: str) -> None:
        for index, assignment in self.znodes.topics[topic].partitions.items():
            key = TopicPartition(topic, index)
            for broker in self.brokers.values():
                if broker.id in assignment.replicas:
                    assert key not in broker.logs, f"{broker.id} still has {key}"
            self.znodes.states.pop(key, None)
        del self.znodes.topics[topic]
        self.znodes.deletions.discard(topic)

    def _send(self, decision: Send) -> None:
        assert decision.requests
        last: dict[int, int] = {}
        for number, request in decision.requests:
            at = ORDER.index(type(request))
            assert last.get(number, -1) < at, ORDER
            last[number] = at
            assert request.controller_epoch == self.controller_epoch
            assert request.broker_epoch == self.core.context.brokers[number].epoch
            if isinstance(request, LeaderAndIsrRequest):
                self._check_leaders(request)
            if isinstance(request, StopReplicaRequest):
                self._check_deletions(number, request)
            self.sent.append((number, request))
            if number in self.channels:
                self.channels[number].append(request)

    def _check_leaders(self, request: LeaderAndIsrRequest) -> None:
        for key, topic, state in partitions_of(request):
            if state.leader != NO_LEADER:
                epoch = (topic.topic_id, key.partition, state.leader_epoch)
                assert self.leaders.setdefault(epoch, state.leader) == state.leader

    def _check_deletions(self, number: int, request: StopReplicaRequest) -> None:
        """A replica is deleted with its topic, or once it is not in the ISR."""
        for key, _, state in partitions_of(request):
            there = self.znodes.states.get(key)
            if state.delete_partition and there is not None:
                assert state.leader_epoch == -2 or number not in there.isr

    def check_states(self) -> None:
        """Check the invariants that hold between two events."""
        for key, state in self.znodes.states.items():
            assert self.core.context.leadership(key) == state, key
            if key.topic not in self.znodes.deletions:
                assert set(state.isr) <= set(self.znodes.replicas(key).replicas), key
            topic_id = self.znodes.topics[key.topic].topic_id
            partition = (topic_id, key.partition)
            assert self.epochs.get(partition, 0) <= state.leader_epoch
            self.epochs[partition] = state.leader_epoch

    # ---- requests and answers ---------------------------------------------------

    def deliver(self, number: int, *, answer_late: bool = False) -> None:
        """Deliver a broker's next request, and its answer to the controller."""
        request = self.channels[number].popleft()
        answer = self.brokers[number].obey(request)
        self._late_answers.append((self.core, number, request, answer))
        if not answer_late:
            self.hear_late_answers()

    def hear_late_answers(self) -> None:
        """Deliver all answers, except answers to a previous controller."""
        late, self._late_answers = self._late_answers, []
        for core, number, request, answer in late:
            if core is self.core and isinstance(answer, LeaderAndIsrResponse):
                self.run(core.leader_and_isr_answered(number, request, answer))
            elif core is self.core and isinstance(answer, StopReplicaResponse):
                self.run(core.stop_replica_answered(number, request, answer))

    def settle(self) -> None:
        """Deliver all requests and their consequences until none is in flight."""
        while any(self.channels.values()) or self.isr_notifications:
            self.hear_late_answers()
            self.notice_isrs()
            for number in list(self.channels):
                if self.channels.get(number):
                    self.deliver(number)

    def notice_isrs(self) -> None:
        """Read the ISRs of the notified partitions as the controller."""
        states = self.znodes.states
        told = [key for key in sorted(self.isr_notifications) if key in states]
        self.isr_notifications.clear()
        self.run(self.core.isrs_changed({key: states[key] for key in told}))

    def led(
        self,
    ) -> Iterator[tuple[Broker, TopicPartition, LeaderAndIsrPartitionState]]:
        """Yield each partition that a broker believes it leads."""
        for number in sorted(self.znodes.brokers):
            broker = self.brokers[number]
            for key, state in sorted(broker.replicas.items()):
                if state.leader == number:
                    yield broker, key, state

    def propose(
        self, broker: Broker, key: TopicPartition, isr: tuple[int, ...]
    ) -> object:
        """Propose an ISR as a leader does, from its last LeaderAndIsr state."""
        mine = broker.replicas[key]
        self.proposal = {key: isr}
        steps = self.core.alter_partition(
            broker.id,
            broker.epoch,
            {
                key: IsrProposal(
                    leader_epoch=mine.leader_epoch,
                    partition_epoch=mine.partition_epoch,
                    isr=isr,
                )
            },
        )
        core = self.core
        try:
            # Later writes complete a reassignment and are not part of the proposal.
            answer = self.run(_forgetting(steps, self.proposal))
        except KafkaError as refused:
            return refused.code
        finally:
            self.proposal = {}
        if core is not self.core or answer is None:
            return None
        outcome = answer[key]
        if isinstance(outcome, Leadership):
            assert outcome.leader_epoch == mine.leader_epoch
            assert (outcome.leader, outcome.isr) == (broker.id, isr)
        if isinstance(outcome, Leadership) and broker.replicas.get(key) is mine:
            broker.replicas[key] = replace(
                mine, isr=outcome.isr, partition_epoch=outcome.version
            )
        return outcome

    # ---- requests of clients ----------------------------------------------------

    def create_topic(self, name: str, *assignment: tuple[int, ...]) -> None:
        """Create a topic and notify the controller."""
        self.znodes.topics[name] = TopicAssignment(
            UUID(int=next(self._ids)),
            {index: ReplicaAssignment(it) for index, it in enumerate(assignment)},
        )
        self.notice_topics()

    def notice_topics(self) -> None:
        """Read the list of topics as the controller."""
        known = self.core.context.topics
        topics = self.znodes.topics
        added = {name: it for name, it in topics.items() if name not in known}
        self.run(self.core.topics_changed(set(topics), added))

    def add_partition(self, name: str, replicas: tuple[int, ...]) -> None:
        """Add a partition to a topic without notifying the controller."""
        index = len(self.znodes.topics[name].partitions)
        self.znodes.add(name, {index: ReplicaAssignment(replicas)})

    def notice_partitions(self, name: str) -> None:
        """Read the partitions of a topic as the controller."""
        if name in self.core.context.topics:
            self.run(self.core.partitions_changed(name, self.znodes.topics[name]))

    def delete_topic(self, name: str) -> None:
        """Request the deletion of a topic and notify the controller."""
        self.znodes.deletions.add(name)
        self.run(self.core.deletions_requested(set(self.znodes.deletions)))


def _forgetting(steps: Decisions, proposal: dict) -> Decisions:
    """Forward ``steps``; clear ``proposal`` after the first write of leaderships."""
    found = None
    try:
        decision = next(steps)
        while True:
            found = yield decision
            if isinstance(decision, WriteLeaderships):
                proposal.clear()
            decision = steps.send(found)
    except StopIteration as done:
        return done.value
