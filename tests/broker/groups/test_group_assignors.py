"""The assignors of consumer groups: naive models and invariants."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer.assignors import (
    Assignment,
    Assignments,
    Subscriber,
    ranges,
    uniform,
)

R = TypeVar("R")
TOPICS = [UUID(int=number, version=4) for number in range(1, 4)]
Partition = tuple[UUID, int]


def run(steps: Generator[None, None, R]) -> R:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: R = done.value
            return result


def partitions_of(assignment: Assignment) -> set[Partition]:
    return {
        (topic, index) for topic, indexes in assignment.items() for index in indexes
    }


@dataclass
class Case:
    members: list[Subscriber]
    counts: dict[UUID, int]

    def possible_owners(self, partition: Partition) -> list[str]:
        topic, _ = partition
        return [it.member_id for it in self.members if topic in it.topics]

    def partitions(self) -> set[Partition]:
        subscribed = {topic for member in self.members for topic in member.topics}
        return {
            (topic, index)
            for topic in subscribed
            for index in range(self.counts[topic])
        }


@st.composite
def cases(draw: st.DrawFn, *, homogeneous: bool = False) -> Case:
    counts = {topic: draw(st.integers(1, 5)) for topic in TOPICS}
    names = draw(
        st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True)
    )
    some = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    common = draw(some)
    # Held partitions may belong to topics that shrank or have no subscribers.
    owners = {
        (topic, index): draw(st.sampled_from([None, *names]))
        for topic in TOPICS
        for index in range(counts[topic] + 1)
    }
    members = []
    for name in names:
        held: dict[UUID, frozenset[int]] = {}
        for (topic, index), owner in owners.items():
            if owner == name:
                held[topic] = held.get(topic, frozenset()) | {index}
        topics = common if homogeneous else draw(some)
        instance_id = draw(st.sampled_from([None, f"i-{name}"]))
        members.append(Subscriber(name, instance_id, topics, held))
    return Case(members, counts)


def check_each_once(case: Case, found: Assignments) -> None:
    owned = [each for share in found.values() for each in partitions_of(share)]
    assert len(owned) == len(set(owned))
    assert set(owned) == case.partitions()
    assert found.keys() == {member.member_id for member in case.members}
    for member in case.members:
        assert found[member.member_id].keys() <= member.topics


def kept(members: Sequence[Subscriber], found: Assignments) -> int:
    return sum(
        len(partitions_of(it.held) & partitions_of(found[it.member_id]))
        for it in members
    )


# ---- uniform ------------------------------------------------------------------------


@given(cases())
def test_each_partition_goes_to_one_subscriber(case: Case) -> None:
    check_each_once(case, run(uniform(case.members, case.counts)))


@given(cases(homogeneous=True))
def test_shares_of_a_homogeneous_group_differ_by_one(case: Case) -> None:
    found = run(uniform(case.members, case.counts))
    sizes = [len(partitions_of(share)) for share in found.values()]
    assert max(sizes) - min(sizes) <= 1


@given(cases(homogeneous=True))
def test_a_homogeneous_group_keeps_the_most_that_balance_allows(case: Case) -> None:
    """The maximum is over all distributions of the larger shares."""
    found = run(uniform(case.members, case.counts))
    valid = case.partitions()
    held = [len(partitions_of(it.held) & valid) for it in case.members]
    least, larger = divmod(len(valid), len(held))
    most = max(
        sum(
            min(number, least + extra)
            for number, extra in zip(held, extras, strict=True)
        )
        for extras in product((0, 1), repeat=len(held))
        if sum(extras) == larger
    )
    assert kept(case.members, found) == most


@given(cases())
def test_no_single_move_improves_the_balance(case: Case) -> None:
    found = run(uniform(case.members, case.counts))
    loads = {name: len(partitions_of(share)) for name, share in found.items()}
    for name, share in found.items():
        for partition in partitions_of(share):
            for other in case.possible_owners(partition):
                assert loads[name] - loads[other] <= 1, (partition, name, other)


@given(cases())
def test_a_second_assignment_moves_nothing(case: Case) -> None:
    first = run(uniform(case.members, case.counts))
    again = [it._replace(held=first[it.member_id]) for it in case.members]
    assert run(uniform(again, case.counts)) == first


def test_a_new_member_takes_its_part_only() -> None:
    (topic, *_) = TOPICS
    counts = {topic: 6}
    pair = [Subscriber(name, None, frozenset({topic})) for name in "ab"]
    first = run(uniform(pair, counts))
    three = [it._replace(held=first[it.member_id]) for it in pair]
    three.append(Subscriber("c", None, frozenset({topic})))
    second = run(uniform(three, counts))
    assert [len(partitions_of(second[name])) for name in "abc"] == [2, 2, 2]
    assert kept(three, second) == 4


# ---- range --------------------------------------------------------------------------


def naive_ranges(case: Case) -> Assignments:
    """Divide each topic by KIP-848's definition, member by member."""
    found: dict[str, dict[UUID, frozenset[int]]] = {
        it.member_id: {} for it in case.members
    }
    static = sorted(
        (it for it in case.members if it.instance_id is not None),
        key=lambda it: str(it.instance_id),
    )
    dynamic = sorted(
        (it for it in case.members if it.instance_id is None),
        key=lambda it: it.member_id,
    )
    for topic, count in case.counts.items():
        those = [it for it in (*static, *dynamic) if topic in it.topics]
        rest = list(range(count))
        for number, member in enumerate(those):
            # The ceiling of an equal share of the remaining partitions.
            size = -(-len(rest) // (len(those) - number))
            if size:
                found[member.member_id][topic] = frozenset(rest[:size])
            rest = rest[size:]
    return {**found}


@given(cases())
def test_ranges_are_those_of_the_definition(case: Case) -> None:
    found = run(ranges(case.members, case.counts))
    check_each_once(case, found)
    assert found == naive_ranges(case)


@given(cases(homogeneous=True), st.integers(1, 9))
def test_topics_with_equally_many_partitions_are_assigned_alike(
    case: Case, count: int
) -> None:
    counts = dict.fromkeys(TOPICS, count)
    for share in run(ranges(case.members, counts)).values():
        assert len(set(share.values())) <= 1


def test_java_orders_names_by_utf_16() -> None:
    """U+1F600 is a pair of surrogates, which come before U+FF5E."""
    (topic, *_) = TOPICS
    members = [
        Subscriber(name, None, frozenset({topic})) for name in "\uff5e\U0001f600"
    ]
    found = run(ranges(members, {topic: 2}))
    assert found["\U0001f600"][topic] == {0}


@pytest.mark.parametrize("assignor", [uniform, ranges])
def test_nobody_is_assigned_nothing(assignor: object) -> None:
    assert run(assignor([], {})) == {}  # type: ignore[operator]  # both are assignors


@pytest.mark.parametrize("assignor", [uniform, ranges])
def test_a_large_group_takes_many_steps(assignor: object) -> None:
    (topic, *_) = TOPICS
    members = [
        Subscriber(f"m{number}", None, frozenset({topic})) for number in range(500)
    ]
    steps = list(assignor(members, {topic: 5_000}))  # type: ignore[operator]
    assert len(steps) >= 15
