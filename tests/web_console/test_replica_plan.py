"""Plans of replicas against direct counts, and against every single move."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.replica_plan import Placed, TooFewBrokers, spread


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Placed], dict[int, str | None]]:
    """Draw partitions on brokers 0 to n, and the brokers that may hold them."""
    count = draw(st.integers(1, 7))
    replicas = draw(st.integers(1, count))
    partitions = draw(st.integers(0, 25))
    placed = [
        Placed(
            TopicPartition("t", number),
            tuple(draw(st.permutations(range(count)))[:replicas]),
            draw(st.integers(0, 9)),
        )
        for number in range(partitions)
    ]
    added = draw(st.integers(0, 3))
    return placed, dict.fromkeys(range(count + added))


def after(
    placed: list[Placed], moves: dict[TopicPartition, tuple[int, ...]]
) -> list[Placed]:
    return [it._replace(replicas=moves.get(it.partition, it.replicas)) for it in placed]


def loads(placed: list[Placed], brokers: list[int], *, by_bytes: bool) -> list[int]:
    found = Counter(dict.fromkeys(brokers, 0))
    for it in placed:
        for broker in it.replicas:
            found[broker] += it.size_bytes if by_bytes else 1
    return [found[it] for it in brokers]


@given(clusters(), st.booleans())
def test_each_partition_keeps_its_number_of_replicas(
    cluster: tuple[list[Placed], dict[int, str | None]], by_bytes: bool
) -> None:
    placed, racks = cluster
    moves = trio.run(lambda: spread(placed, racks, by_bytes=by_bytes))
    for was, is_now in zip(placed, after(placed, moves), strict=True):
        assert len({*is_now.replicas}) == len(was.replicas)
        assert {*is_now.replicas} <= racks.keys()
    assert all(moves[it.partition] != it.replicas for it in placed if it[0] in moves)


@given(clusters())
def test_by_number_no_plan_is_more_even_or_moves_fewer(
    cluster: tuple[list[Placed], dict[int, str | None]],
) -> None:
    placed, racks = cluster
    brokers = [*racks]
    moves = trio.run(spread, placed, racks)
    before = loads(placed, brokers, by_bytes=False)
    found = loads(after(placed, moves), brokers, by_bytes=False)
    assert max(found) - min(found) <= 1
    moved = sum(
        len({*new} - {*old.replicas})
        for old in placed
        for new in [moves.get(old.partition, old.replicas)]
    )
    low, rest = divmod(sum(before), len(brokers))
    above = sum(max(0, it - low - bool(rest)) for it in before)
    below = sum(max(0, low - it) for it in before)
    assert moved == max(above, below)


@given(clusters())
def test_by_bytes_no_single_move_is_left_that_helps(
    cluster: tuple[list[Placed], dict[int, str | None]],
) -> None:
    placed, racks = cluster
    brokers = [*racks]
    moves = trio.run(lambda: spread(placed, racks, by_bytes=True))
    final = after(placed, moves)
    found = loads(final, brokers, by_bytes=True)

    def squares(of: list[int]) -> int:
        return sum(it * it for it in of)

    assert squares(found) <= squares(loads(placed, brokers, by_bytes=True))
    for number, it in enumerate(final):
        for source in it.replicas:
            for target in {*brokers} - {*it.replicas}:
                other = [*final]
                replaced = tuple(target if x == source else x for x in it.replicas)
                other[number] = it._replace(replicas=replaced)
                assert squares(loads(other, brokers, by_bytes=True)) >= squares(found)


@given(clusters())
def test_no_broker_leads_two_more_than_another_replica_of_its_partition(
    cluster: tuple[list[Placed], dict[int, str | None]],
) -> None:
    placed, racks = cluster
    final = after(placed, trio.run(spread, placed, racks))
    leaders = Counter(it.replicas[0] for it in final)
    for it in final:
        assert all(leaders[it.replicas[0]] - leaders[node] < 2 for node in it.replicas)


@given(clusters(), st.lists(st.sampled_from("ab"), min_size=10, max_size=10))
def test_no_partition_comes_to_fewer_racks(
    cluster: tuple[list[Placed], dict[int, str | None]], names: list[str]
) -> None:
    placed, brokers = cluster
    racks: dict[int, str | None] = {it: names[it] for it in brokers}
    final = after(placed, trio.run(spread, placed, racks))
    for was, is_now in zip(placed, final, strict=True):
        of_was, of_now = ({racks[it] for it in x.replicas} for x in (was, is_now))
        assert len(of_now) >= len(of_was)


def test_brokers_that_may_hold_nothing_are_left() -> None:
    placed = [Placed(TopicPartition("t", it), (0, 1)) for it in range(4)]
    moves = trio.run(spread, placed, {1: None, 2: None})
    assert {*moves} == {it.partition for it in placed}
    assert all({*it} == {1, 2} for it in moves.values())
    assert Counter(it[0] for it in moves.values()) == {1: 2, 2: 2}
    with pytest.raises(TooFewBrokers):
        trio.run(spread, placed, {1: None})


def test_a_large_cluster_is_planned_within_the_limit_of_a_page() -> None:
    placed = [
        Placed(TopicPartition("t", it), (it % 5, (it + 1) % 5, (it + 2) % 5), it)
        for it in range(10_000)
    ]
    racks: dict[int, str | None] = dict.fromkeys(range(10))
    moves = trio.run(spread, placed, racks)
    found = loads(after(placed, moves), [*racks], by_bytes=False)
    assert found == [3_000] * 10
