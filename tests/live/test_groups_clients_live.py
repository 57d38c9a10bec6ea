"""Groups of three clients: no record is lost when members join, leave or die.

A producer of the same client runs meanwhile. The broker only passes on the members'
metadata, so each client is tested with its own assignors. kafka-python and librdkafka
support cooperative rebalancing, aiokafka does not. Seen numbers and committed offsets
are compared with the produced numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.broker_process import BrokerProcess
from tests.live.group_clients import CLIENTS, PARTITIONS, GroupClient
from tests.live.group_members import (
    Join,
    Member,
    MortalMember,
    Produce,
    committed,
    sizes,
    wait_until,
)

pytestmark = [
    pytest.mark.live,
    # kafka-python uses a function that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]

ALL = set(range(PARTITIONS))
each_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("clients"), group_min_session_timeout_ms="1000"
    )
    yield process
    process.close()


def shared(members: list[Member]) -> bool:
    """Return whether the members have equally many partitions, and all of them."""
    assigned = [member.assigned for member in members]
    return set().union(*assigned) == ALL and {len(each) for each in assigned} == {
        PARTITIONS // len(members)
    }


def nothing_is_lost(
    broker: BrokerProcess, topic: str, count: int, seen: list[list[int]]
) -> bool:
    """Return whether every number was seen by a member and is committed."""
    return set().union(*seen) == set(range(count)) and (
        committed(broker, topic, topic) == sizes(count)
    )


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        pytest.param(client, assignor, id=f"{client.name}-{assignor}")
        for client in CLIENTS.values()
        for assignor in client.assignors
    ],
)
def test_nothing_is_lost_while_members_come_and_go(
    broker: BrokerProcess,
    topic: str,
    join: Join,
    producing: Produce,
    client: GroupClient,
    assignor: str,
) -> None:
    produced = producing(client)
    members = [join(client, group=topic, assignor=assignor)]
    wait_until(lambda: shared(members))
    for _ in range(2):
        members.append(join(client, group=topic, assignor=assignor))
        wait_until(lambda: shared(members))
        produced.wait_for(12)
    members[0].close()
    wait_until(lambda: shared(members[1:]))
    produced.wait_for(12)
    count = produced.end()
    seen = [member.seen for member in members]
    wait_until(lambda: nothing_is_lost(broker, topic, count, seen))


@each_client
def test_a_member_that_dies_is_replaced_after_its_session(
    broker: BrokerProcess,
    topic: str,
    join: Join,
    producing: Produce,
    client: GroupClient,
) -> None:
    produced = producing(client)
    mortal = MortalMember(broker, topic, client, group=topic, session_ms=1_000)
    seen = [mortal.wait_for_a_number()]
    member = join(client, group=topic)
    wait_until(lambda: len(member.assigned) == PARTITIONS // 2)
    seen += mortal.kill()
    wait_until(lambda: member.assigned == ALL)
    produced.wait_for(12)
    count = produced.end()
    wait_until(lambda: nothing_is_lost(broker, topic, count, [seen, member.seen]))


@each_client
def test_a_static_member_comes_back_without_disturbing_the_others(
    broker: BrokerProcess,
    topic: str,
    join: Join,
    producing: Produce,
    client: GroupClient,
) -> None:
    # On a slow machine no member may be removed from the group.
    options = {"group": topic, "session_ms": 60_000}
    other = join(client, instance_id="other", **options)
    first = join(client, instance_id="same", **options)
    wait_until(lambda: shared([first, other]))
    # While they joined there was no offset to commit: aiokafka rejoins if a commit
    # meets a rebalance. A member that has seen a number has completed its assignment.
    produced = producing(client)
    wait_until(lambda: bool(first.seen and other.seen))
    before, assignments = first.assigned, other.assignments
    first.close()
    second = join(client, instance_id="same", **options)
    wait_until(lambda: second.assigned == before)
    produced.wait_for(12)
    count = produced.end()
    seen = [first.seen, second.seen, other.seen]
    wait_until(lambda: nothing_is_lost(broker, topic, count, seen))
    assert other.assignments == assignments


def test_members_of_different_clients_share_one_group(
    broker: BrokerProcess, topic: str, join: Join, producing: Produce
) -> None:
    produced = producing(CLIENTS["aiokafka"])
    members: list[Member] = []
    for client in CLIENTS.values():
        members.append(join(client, group=topic))
        wait_until(lambda: shared(members))
        produced.wait_for(12)
    count = produced.end()
    seen = [member.seen for member in members]
    wait_until(lambda: nothing_is_lost(broker, topic, count, seen))
