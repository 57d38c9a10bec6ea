"""Assignors: the target assignment of partitions to the members of a group.

Kafka: ``UniformAssignor`` and ``RangeAssignor``. Both are functions of the members,
their subscribed topics, and the previous target. They run in steps, since a group may
have thousands of members and partitions.

``range`` gives each topic's subscribers contiguous ranges in a fixed order: static
members first, by instance, then the others by id. Topics with the same number of
partitions are thus co-partitioned. Previous assignments have no influence.

``uniform`` balances the number of partitions with few moves:

- All subscribe to the same topics: with ``P`` partitions and ``n`` members, ``P mod n``
  of them get ``P div n + 1`` partitions, and the others get one less. The larger shares
  go to members with the most partitions, so no partition moves unnecessarily.
- Otherwise a free partition goes to the subscriber with the fewest partitions, topics
  with the fewest subscribers first. Then single partitions move between members whose
  numbers differ by more than one. The result is a local optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

# Partitions of topics.
Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
Assignments: TypeAlias = dict[str, Assignment]
# Number of partitions of each existing topic.
Counts: TypeAlias = Mapping[UUID, int]

NOTHING: Final[Assignment] = MappingProxyType({})

# Partitions or members per step.
_PER_STEP: Final = 256
# Rounds of moves, as in Kafka.
_ROUNDS_MAX: Final = 16


class Subscriber(NamedTuple):
    """A member with its subscribed topics and its share of the previous target.

    ``topics`` contains existing topics only.
    """

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    held: Assignment = NOTHING


Computing: TypeAlias = Generator[None, None, Assignments]
Assignor: TypeAlias = Callable[[Sequence[Subscriber], Counts], Computing]
_Shares: TypeAlias = dict[str, dict[UUID, set[int]]]


class _Pace:
    """Counter of work that reports the end of a step."""

    def __init__(self) -> None:
        self._done = 0

    def did(self, number: int = 1) -> bool:
        self._done += number
        if self._done < _PER_STEP:
            return False
        self._done = 0
        return True


def _frozen(shares: _Shares, pace: _Pace) -> Computing:
    found: Assignments = {}
    for member_id, share in shares.items():
        found[member_id] = {
            topic: frozenset(partitions)
            for topic, partitions in share.items()
            if partitions
        }
        if pace.did(1 + sum(map(len, share.values()))):
            yield
    return found


# ---- range --------------------------------------------------------------------------


def ranges(members: Sequence[Subscriber], counts: Counts) -> Computing:
    """Assign contiguous ranges of each topic.

    >>> topic = UUID(int=1)
    >>> both = [Subscriber(name, None, frozenset([topic])) for name in "ab"]
    >>> steps = ranges(both, {topic: 3})
    >>> try: next(steps)
    ... except StopIteration as done: print([*done.value["a"][topic]])
    [0, 1]
    """
    pace = _Pace()
    subscribers: dict[UUID, int] = {}
    for member in members:
        for topic in member.topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
        if pace.did(1 + len(member.topics)):
            yield
    found: Assignments = {}
    next_number = dict.fromkeys(subscribers, 0)
    for member in sorted(members, key=_order):
        share: dict[UUID, frozenset[int]] = {}
        for topic in member.topics:
            number = next_number[topic]
            next_number[topic] += 1
            least, larger = divmod(counts[topic], subscribers[topic])
            start = number * least + min(number, larger)
            stop = start + least + (number < larger)
            if start < stop:
                share[topic] = frozenset(range(start, stop))
                if pace.did(stop - start):
                    yield
        found[member.member_id] = share
        if pace.did():
            yield
    return found


def _order(member: Subscriber) -> tuple[bool, bytes]:
    """Return the sort key of a member; strings compare by UTF-16 units, as in Java."""
    instance_id = member.instance_id
    name = member.member_id if instance_id is None else instance_id
    return instance_id is None, name.encode("utf-16-be", "surrogatepass")


# ---- uniform ------------------------------------------------------------------------


def uniform(members: Sequence[Subscriber], counts: Counts) -> Computing:
    """Assign numbers of partitions that are as equal as possible."""
    pace = _Pace()
    shares: _Shares = {}
    taken: dict[UUID, set[int]] = {topic: set() for topic in counts}
    for member in members:
        share = shares[member.member_id] = {}
        for topic in member.topics & member.held.keys():
            kept = {
                partition
                for partition in member.held[topic]
                if partition < counts[topic] and partition not in taken[topic]
            }
            share[topic] = kept
            taken[topic] |= kept
            if pace.did(1 + len(kept)):
                yield
    if all(member.topics == members[0].topics for member in members):
        yield from _fill_quotas(members, counts, shares, taken, pace)
    else:
        yield from _balance(members, counts, shares, taken, pace)
    return (yield from _frozen(shares, pace))


def _loads(shares: _Shares) -> dict[str, int]:
    return {
        member_id: sum(map(len, share.values())) for member_id, share in shares.items()
    }


def _balance(
    members: Sequence[Subscriber],
    counts: Counts,
    shares: _Shares,
    taken: Mapping[UUID, set[int]],
    pace: _Pace,
) -> Generator[None, None, None]:
    """Assign free partitions of a heterogeneous group, then balance the numbers."""
    loads = _loads(shares)
    subscribers: dict[UUID, list[str]] = {}
    for member in members:
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member.member_id)
        if pace.did(1 + len(member.topics)):
            yield
    # Topics with the most partitions per subscriber come first.
    topics = sorted(
        subscribers,
        key=lambda it: (-counts[it] / len(subscribers[it]), len(subscribers[it])),
    )
    for topic in topics:
        free = _free(counts[topic], taken[topic])
        yield from _assign_free(topic, free, subscribers[topic], shares, loads, pace)
    for _ in range(_ROUNDS_MAX):
        moved = 0
        for topic in topics:
            moved += yield from _level(topic, subscribers[topic], shares, loads, pace)
        if not moved:
            return


def _free(count: int, taken: set[int]) -> Iterator[int]:
    return (partition for partition in range(count) if partition not in taken)


def _fill_quotas(
    members: Sequence[Subscriber],
    counts: Counts,
    shares: _Shares,
    taken: Mapping[UUID, set[int]],
    pace: _Pace,
) -> Generator[None, None, None]:
    """Bring every member of a homogeneous group to its quota."""
    if not members:
        return
    topics = sorted(members[0].topics)
    least, larger = divmod(sum(counts[topic] for topic in topics), len(members))
    loads = _loads(shares)
    # The larger shares go to members with the most partitions, which then stay.
    by_load = sorted(loads, key=lambda member_id: -loads[member_id])
    quotas = {
        member_id: least + (number < larger) for number, member_id in enumerate(by_load)
    }
    free: list[tuple[UUID, int]] = []
    for topic in topics:
        for partition in _free(counts[topic], taken[topic]):
            free.append((topic, partition))
            if pace.did():
                yield
    for member_id in by_load:
        excess = max(loads[member_id] - quotas[member_id], 0)
        free += _take_out(shares[member_id], excess)
        if pace.did(1 + excess):
            yield
    for member in members:
        missing = max(quotas[member.member_id] - loads[member.member_id], 0)
        for topic, partition in free[:missing]:
            shares[member.member_id].setdefault(topic, set()).add(partition)
        del free[:missing]
        if pace.did(1 + missing):
            yield
    assert not free, "the quotas add up to the partitions"


def _take_out(share: dict[UUID, set[int]], number: int) -> list[tuple[UUID, int]]:
    """Remove a number of partitions from a share, and return them."""
    taken: list[tuple[UUID, int]] = []
    for topic, kept in share.items():
        for partition in sorted(kept, reverse=True)[: number - len(taken)]:
            kept.remove(partition)
            taken.append((topic, partition))
    return taken


def _assign_free(
    topic: UUID,
    free: Iterator[int],
    subscribers: Sequence[str],
    shares: _Shares,
    loads: dict[str, int],
    pace: _Pace,
) -> Generator[None, None, None]:
    """Assign each free partition of a topic to the least loaded subscriber."""
    heap = [
        (loads[member_id], number, member_id)
        for number, member_id in enumerate(subscribers)
    ]
    heapify(heap)
    if pace.did(len(heap)):
        yield
    for partition in free:
        load, number, member_id = heap[0]
        shares[member_id].setdefault(topic, set()).add(partition)
        loads[member_id] += 1
        heapreplace(heap, (load + 1, number, member_id))
        if pace.did():
            yield


def _level(
    topic: UUID,
    subscribers: Sequence[str],
    shares: _Shares,
    loads: dict[str, int],
    pace: _Pace,
) -> Generator[None, None, int]:
    """Move partitions of a topic while that balances; return the number of moves."""
    moved = 0
    while True:
        if pace.did(len(subscribers)):
            yield
        owners = [it for it in subscribers if shares[it].get(topic)]
        if not owners:
            return moved
        most = max(owners, key=loads.__getitem__)
        fewest = min(subscribers, key=loads.__getitem__)
        if loads[most] - loads[fewest] <= 1:
            return moved
        partition = max(shares[most][topic])
        shares[most][topic].remove(partition)
        shares[fewest].setdefault(topic, set()).add(partition)
        loads[most] -= 1
        loads[fewest] += 1
        moved += 1


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {"uniform": uniform, "range": ranges}
)
