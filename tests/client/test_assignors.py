"""Assignors compared with aiokafka's, and the guarantees of cooperative-sticky."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import given
from hypothesis import strategies as st

from broker.client.consumer.client_assignors import assign
from broker.client.consumer.consumer_protocol import Subscription
from broker.protocol.topic_partition import TopicPartition

TOPICS = ("a", "b", "c")
counts = st.fixed_dictionaries({}, optional={t: st.integers(1, 6) for t in TOPICS})
wanted = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda s: tuple(sorted(s)))
groups = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(6)]), wanted, min_size=1
)


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


# Examples in the Javadoc of Kafka's RangeAssignor and RoundRobinAssignor.
@pytest.mark.parametrize(
    ("strategy", "counts", "topics", "expected"),
    [
        (
            "range",
            {"t0": 3, "t1": 3},
            {"C0": ("t0", "t1"), "C1": ("t0", "t1")},
            {
                "C0": partitions("t0", 0, 1) + partitions("t1", 0, 1),
                "C1": partitions("t0", 2) + partitions("t1", 2),
            },
        ),
        (
            "roundrobin",
            {"t0": 3, "t1": 3},
            {"C0": ("t0", "t1"), "C1": ("t0", "t1")},
            {
                "C0": partitions("t0", 0, 2) + partitions("t1", 1),
                "C1": partitions("t0", 1) + partitions("t1", 0, 2),
            },
        ),
        (
            "roundrobin",
            {"t0": 1, "t1": 2, "t2": 3},
            {"C0": ("t0",), "C1": ("t0", "t1"), "C2": ("t0", "t1", "t2")},
            {
                "C0": partitions("t0", 0),
                "C1": partitions("t1", 0),
                "C2": partitions("t1", 1) + partitions("t2", 0, 1, 2),
            },
        ),
    ],
)
def test_kafkas_own_examples(
    strategy: str,
    counts: dict[str, int],
    topics: dict[str, tuple[str, ...]],
    expected: dict[str, list[TopicPartition]],
) -> None:
    members = {member: Subscription(wanted) for member, wanted in topics.items()}
    assert assign(strategy, counts, members) == expected


class FakeCluster:
    """The part of a cluster that aiokafka's assignors use."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
@given(counts=counts, topics=groups)
def test_range_and_roundrobin_are_aiokafkas(
    strategy: str, counts: dict[str, int], topics: dict[str, tuple[str, ...]]
) -> None:
    theirs: Any = RoundRobinPartitionAssignor
    if strategy == "range":
        theirs = RangePartitionAssignor
    answers = theirs.assign(
        FakeCluster(counts),
        {member: theirs.metadata(wanted) for member, wanted in topics.items()},
    )
    expected = {
        member: sorted(
            TopicPartition(topic, number)
            for topic, numbers in answer.assignment
            for number in numbers
        )
        for member, answer in answers.items()
    }
    members = {member: Subscription(wanted) for member, wanted in topics.items()}
    ours = assign(strategy, counts, members)
    assert {member: sorted(each) for member, each in ours.items()} == expected


def test_static_members_come_first_by_their_names() -> None:
    members = {
        "x": Subscription(("t",), instance_id="b"),
        "y": Subscription(("t",), instance_id="a"),
        "a": Subscription(("t",)),
    }
    shares = assign("range", {"t": 4}, members)
    assert shares == {
        "y": partitions("t", 0, 1),
        "x": partitions("t", 2),
        "a": partitions("t", 3),
    }


# ---- cooperative-sticky -------------------------------------------------------------

claims = st.sets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)), max_size=6)
members_with_past = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(5)]),
    st.builds(
        lambda topics, owned, generation: Subscription(
            topics, tuple(TopicPartition(*each) for each in owned), generation
        ),
        wanted,
        claims,
        st.integers(-1, 3),
    ),
    min_size=1,
)


def settled(
    counts: dict[str, int], members: dict[str, Subscription]
) -> list[dict[str, list[TopicPartition]]]:
    """Assign partitions until the assignment no longer changes; return all rounds."""
    rounds = [assign("cooperative-sticky", counts, members)]
    while len(rounds) < 2 or rounds[-1] != rounds[-2]:
        assert len(rounds) < 4, "it does not settle"
        members = {
            member: Subscription(each.topics, tuple(rounds[-1][member]), 9)
            for member, each in members.items()
        }
        rounds.append(assign("cooperative-sticky", counts, members))
    return rounds


@given(counts=counts, members=members_with_past)
def test_sticky_settles_within_two_rounds_in_balance_with_everything_assigned(
    counts: dict[str, int], members: dict[str, Subscription]
) -> None:
    final = settled(counts, members)[-1]
    given_out = [each for mine in final.values() for each in mine]
    interesting = {topic for each in members.values() for topic in each.topics}
    assert sorted(given_out) == [
        TopicPartition(topic, number)
        for topic in sorted(interesting & counts.keys())
        for number in range(counts[topic])
    ]
    for member, mine in final.items():
        assert {each.topic for each in mine} <= set(members[member].topics)
        # No member could take a partition from one that has two more.
        for other, theirs in final.items():
            for each in theirs:
                if each.topic in members[member].topics:
                    assert len(theirs) - len(mine) < 2, (member, other)


@given(counts=counts, members=members_with_past)
def test_sticky_gives_nothing_away_while_its_owner_has_it(
    counts: dict[str, int], members: dict[str, Subscription]
) -> None:
    first = assign("cooperative-sticky", counts, members)
    newest: dict[TopicPartition, int] = {}
    for each in members.values():
        for partition in each.owned:
            if partition.topic in each.topics:
                newest[partition] = max(newest.get(partition, -9), each.generation)
    for member, each in members.items():
        for partition in each.owned:
            holders = [
                m
                for m, other in members.items()
                if partition in other.owned
                and partition.topic in other.topics
                and other.generation == newest.get(partition)
            ]
            if holders == [member]:
                takers = [m for m, mine in first.items() if partition in mine]
                assert takers in ([], [member])


@given(counts=counts, members=groups)
def test_sticky_moves_no_more_than_balance_needs_when_a_member_joins(
    counts: dict[str, int], members: dict[str, tuple[str, ...]]
) -> None:
    everybody = {name: Subscription(TOPICS) for name in members}
    before = settled(counts, everybody)[-1]
    joined = {
        name: Subscription(TOPICS, tuple(mine), 5) for name, mine in before.items()
    }
    joined["new"] = Subscription(TOPICS)
    after = settled(counts, joined)[-1]
    moved = sum(
        partition not in before.get(name, [])
        for name, mine in after.items()
        for partition in mine
    )
    assert moved == len(after["new"]) == sum(counts.values()) // len(joined)
