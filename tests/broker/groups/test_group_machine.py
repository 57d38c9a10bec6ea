"""A group under arbitrary clients, faults and restarts.

The model has only the answers that clients received. After every step:

- Each request is answered at most once (`Waiting.settle` asserts it), and by the end of
  every timeout if its member lives.
- Assignments of the newest generation are those that its leader gave.
- A member is removed only if it leaves, is silent, does not join or sync in time, or is
  refused or replaced.
- An acknowledged offset never decreases, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker.groups.state.group_messages import MemberIdentity
from broker.protocol.errors import ErrorCode, KafkaError

CLIENTS = st.integers(0, 3)
FAULTS = st.sampled_from(
    [ErrorCode.none, ErrorCode.none, ErrorCode.not_enough_replicas]
)


class Client:
    """A consumer's view of itself: its pending requests and its last answers."""

    def __init__(self, number: int) -> None:
        self.instance_id = f"static-{number}" if number == 3 else None
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.members: list[str] = []
        self.joining = self.syncing = None


class GroupMachine(RuleBasedStateMachine):
    def __init__(self, make_world: Callable, make_protocols: Callable) -> None:
        super().__init__()
        self.world = make_world(group_max_size=3, new_member_join_timeout_ms=50_000)
        self.protocols = make_protocols
        self.clients = [Client(number) for number in range(4)]
        self.waiting: list = []
        self.given: dict[int, dict[str, bytes]] = {}
        self.told: dict[int, dict[str, bytes]] = {}
        self.offset = 0
        self.acknowledged = -1
        self.in_flight: list = []

    # ---- actions of clients -----------------------------------------------------

    @rule(number=CLIENTS, names=st.sampled_from([("r",), ("r", "s"), ("s", "r")]))
    def join(self, number: int, names: tuple[str, ...]) -> None:
        client = self.clients[number]
        client.joining = self.world.join(
            client.member_id,
            instance_id=client.instance_id,
            requires_known_member_id=True,
            protocols=self.protocols(*names),
        )
        self.waiting.append(client.joining)
        self.hear(client)

    @rule(number=CLIENTS, everyone=st.booleans())
    def sync(self, number: int, everyone: bool) -> None:
        client = self.clients[number]
        assignments = {}
        if client.leads:
            members = client.members if everyone else client.members[:1]
            assignments = {
                member: f"{client.generation} {member}".encode() for member in members
            }
            self.given.setdefault(client.generation, assignments)
        client.syncing = self.world.sync(
            client.member_id,
            client.generation,
            instance_id=client.instance_id,
            assignments=assignments,
        )
        self.waiting.append(client.syncing)
        self.hear(client)

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        error = self.world.heartbeat(
            client.member_id, client.generation, client.instance_id
        )
        if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            client.forget()

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        identity = MemberIdentity(client.member_id, client.instance_id)
        self.world.coordinator.leave("g", [identity])
        client.forget()

    @rule(number=CLIENTS)
    def restart_client(self, number: int) -> None:
        self.clients[number].forget()

    @rule(number=CLIENTS)
    def commit(self, number: int) -> None:
        client = self.clients[number]
        self.offset += 1
        offset = self.offset
        try:
            outcome = self.world.commit(
                {("t", 0): offset},
                client.member_id,
                client.generation,
                instance_id=client.instance_id,
            )
        except KafkaError:
            return
        if outcome[("t", 0)] is ErrorCode.none:
            self.acknowledged = offset

    # ---- time and faults --------------------------------------------------------

    @rule(ms=st.sampled_from([1, 500, 3_000, 9_000, 30_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(fault=FAULTS)
    def appends_fail(self, fault: ErrorCode) -> None:
        self.world.log.fail_with = fault

    @precondition(lambda self: self.waiting)
    @rule()
    def everyone_is_answered_in_the_end(self) -> None:
        self.world.advance(400_000)
        assert all(one.answered for one in self.waiting)
        self.waiting.clear()

    @rule()
    def restart_broker(self) -> None:
        self.world.log.fail_with = ErrorCode.none
        self.world.start()
        # Clients with waiting requests have lost their connections.
        self.waiting.clear()
        for client in self.clients:
            client.joining = client.syncing = None

    # ---- answers and invariants -------------------------------------------------

    def hear(self, client: Client) -> None:
        """Read a client's pending answers."""
        if client.joining is not None and client.joining.answered:
            answer = client.joining.answer()
            client.joining = None
            if answer.error is ErrorCode.none:
                assert answer.generation >= client.generation
                client.member_id = answer.member_id
                client.generation = answer.generation
                client.leads = (
                    answer.leader == answer.member_id and not answer.skip_assignment
                )
                client.members = [one.member_id for one in answer.members]
                assert not client.leads or client.member_id in client.members
            elif answer.error is ErrorCode.member_id_required:
                client.member_id = answer.member_id
            elif answer.error in (
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_instance_id,
            ):
                client.forget()
        if client.syncing is not None and client.syncing.answered:
            answer = client.syncing.answer()
            client.syncing = None
            if answer.error is ErrorCode.none:
                told = self.told.setdefault(client.generation, {})
                told.setdefault(client.member_id, answer.assignment)
                assert told[client.member_id] == answer.assignment

    @invariant()
    def clients_listen(self) -> None:
        for client in self.clients:
            self.hear(client)

    @invariant()
    def the_group_is_sound(self) -> None:
        self.world.coordinator.check()

    @invariant()
    def one_generation_has_one_assignment(self) -> None:
        """Every assignment of a generation came from that generation's leader."""
        for generation, told in self.told.items():
            for member, assignment in told.items():
                if assignment:
                    assert assignment == f"{generation} {member}".encode()

    @invariant()
    def no_member_is_in_a_generation_to_come(self) -> None:
        group = self.world.coordinator.describe("g")
        for client in self.clients:
            if group is not None and client.member_id in group.roster:
                assert client.generation <= group.generation

    @invariant()
    def acknowledged_offsets_never_go_back(self) -> None:
        fetched = self.world.fetched().get(("t", 0), -1)
        assert fetched == self.acknowledged


def test_a_group_stands_whatever_clients_and_disks_do(
    make_world: Callable, make_protocols: Callable
) -> None:
    run_state_machine_as_test(
        partial(GroupMachine, make_world, make_protocols),
        settings=settings(max_examples=80, stateful_step_count=40),
    )
