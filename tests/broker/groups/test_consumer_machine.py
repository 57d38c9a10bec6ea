"""A consumer group under arbitrary members, topics, faults and restarts.

The model has only the answers that clients received. No two clients own a partition at
once: a client owns its assigned partitions until it revokes them. A live member's epoch
never decreases. Once the faults are over and all clients continue, each partition of a
topic with subscribers has an owner.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from broker.protocol.errors import ErrorCode, KafkaError

CLIENTS = st.integers(0, 3)
TOPICS = ("t", "u", "v")
SUBSCRIPTIONS = st.frozensets(st.sampled_from(TOPICS), min_size=1)

Partition = tuple[UUID, int]


class Client:
    """A consumer's view of itself."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance_id = "static" if number == 3 else None
        self.incarnation = 0
        self.topics = frozenset({"t"})
        self.regex = ""
        self.assignor: str | None = None
        self.start()

    def start(self) -> None:
        """Start a new process, with a new member id."""
        self.incarnation += 1
        self.member_id = f"m{self.number}-{self.incarnation}"
        self.fall_back()

    def fall_back(self) -> None:
        """Abandon all partitions, to join again."""
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.assigned: set[Partition] = set()

    @property
    def reported(self) -> dict[UUID, frozenset[int]]:
        topics = {topic for topic, _ in self.owned}
        return {
            topic: frozenset(index for known, index in self.owned if known == topic)
            for topic in topics
        }


class ConsumerMachine(RuleBasedStateMachine):
    def __init__(self, make_world: Callable) -> None:
        super().__init__()
        self.world = make_world(consumer_assignment_interval_ms=0)
        self.world.topics.create("t", 3)
        self.clients = [Client(number) for number in range(4)]

    def beat(self, client: Client) -> None:
        """Send a heartbeat with all fields, and act on the answer."""
        try:
            answer = self.world.beat(
                client.member_id,
                client.epoch,
                instance_id=client.instance_id,
                rebalance_timeout_ms=60_000,
                topics=client.topics,
                regex=client.regex,
                assignor=client.assignor,
                owned=client.reported,
            ).answer()
        except KafkaError as refused:
            if refused.code is ErrorCode.fenced_instance_id:
                client.start()
            elif refused.code is not ErrorCode.unreleased_instance_id:
                client.fall_back()
            return
        if answer.error is not ErrorCode.none:
            return
        assert answer.member_id == client.member_id
        assert answer.epoch >= client.epoch, (answer, client.epoch)
        client.epoch = answer.epoch
        if answer.assigned is not None:
            client.assigned = {
                (topic, index)
                for topic, epochs in answer.assigned.items()
                for index in epochs
            }

    # ---- actions of clients -----------------------------------------------------

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        self.beat(self.clients[number])

    @rule(number=CLIENTS)
    def give_up(self, number: int) -> None:
        """Revoke partitions that are no longer assigned."""
        client = self.clients[number]
        client.owned &= client.assigned

    @rule(number=CLIENTS)
    def take(self, number: int) -> None:
        """Own the assigned partitions and no others."""
        client = self.clients[number]
        client.owned = set(client.assigned)

    @rule(number=CLIENTS, topics=SUBSCRIPTIONS, regex=st.sampled_from(["", "[uv]"]))
    def subscribe(self, number: int, topics: frozenset[str], regex: str) -> None:
        self.clients[number].topics = topics
        self.clients[number].regex = regex

    @rule(number=CLIENTS, name=st.sampled_from([None, "uniform", "range"]))
    def prefer(self, number: int, name: str | None) -> None:
        self.clients[number].assignor = name

    @rule(number=CLIENTS, for_a_while=st.booleans())
    def leave(self, number: int, for_a_while: bool) -> None:
        client = self.clients[number]
        epoch = -2 if for_a_while and client.instance_id else -1
        client.fall_back()
        with suppress(KafkaError):
            self.world.beat(client.member_id, epoch, instance_id=client.instance_id)
        client.start()

    @rule(number=CLIENTS)
    def crash(self, number: int) -> None:
        self.clients[number].start()

    # ---- topics, faults and time ------------------------------------------------

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def grow(self, name: str, more: int) -> None:
        count = self.world.topics.counts.get(name, 0)
        self.world.topics.create(name, count + more)

    @rule(fault=st.sampled_from([ErrorCode.none, ErrorCode.not_enough_replicas]))
    def fail(self, fault: ErrorCode) -> None:
        self.world.log.fail_with = fault

    @rule()
    def restart(self) -> None:
        self.world.start()

    @rule()
    def long_silence(self) -> None:
        """End all sessions, after the consumers have abandoned their partitions."""
        for client in self.clients:
            client.fall_back()
        self.world.advance(60_000)

    @rule(ms=st.sampled_from([100, 5_000]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)

    # ---- invariants -------------------------------------------------------------

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        owned = [each for client in self.clients for each in client.owned]
        assert len(owned) == len(set(owned)), [it.owned for it in self.clients]

    @invariant()
    def the_core_is_sound(self) -> None:
        self.world.coordinator.check()

    def teardown(self) -> None:
        """Continue with all clients; check the assignment, also after a restart."""
        self.world.log.fail_with = ErrorCode.none
        # Long enough for the sessions of crashed clients to expire.
        for _ in range(6):
            self.world.advance(11_000)
            for _ in range(4):
                for client in self.clients:
                    self.beat(client)
                    client.owned &= client.assigned
                    self.beat(client)
                    client.owned = set(client.assigned)
                    self.nobody_shares_a_partition()
        group = self.world.consumers
        assert group.state_name == "Stable", group.members
        owned = {each for client in self.clients for each in client.owned}
        topics = group.topic_names()
        known = {name: self.world.topics.find(name) for name in topics}
        assert owned == {
            (topic.topic_id, index)
            for topic in known.values()
            if topic is not None
            for index in range(topic.partitions)
        }
        before = {it.member_id: it for it in group.members.values()}
        self.world.start()
        assert self.world.consumers.members == before
        assert self.world.consumers.targets == group.targets
        assert self.world.consumers.epoch == group.epoch


def test_no_partition_has_two_owners(make_world: Callable) -> None:
    run_state_machine_as_test(
        lambda: ConsumerMachine(make_world),
        settings=settings(max_examples=40, stateful_step_count=30, deadline=None),
    )
