"""Assignment of partitions to the members by a group's leader: pure functions.

Kafka's ``RangeAssignor``, ``RoundRobinAssignor`` and ``CooperativeStickyAssignor``
(without racks). Given the same members and counts, the results of range and round robin
equal Kafka's. Cooperative-sticky has the same guarantees as Kafka's: balance, then the
fewest moves. Ties may be resolved differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Final, TypeAlias

from broker.client.consumer.consumer_protocol import Subscription
from broker.protocol.topic_partition import TopicPartition

Members: TypeAlias = Mapping[str, Subscription]
Counts: TypeAlias = Mapping[str, int]
Assignment: TypeAlias = dict[str, list[TopicPartition]]

COOPERATIVE: Final = frozenset({"cooperative-sticky"})


def assign(strategy: str, counts: Counts, members: Members) -> Assignment:
    """Return the partitions of each member; ``counts`` has all known topics."""
    return _ASSIGNORS[strategy](counts, members)


def _range(counts: Counts, members: Members) -> Assignment:
    """Assign contiguous partitions of each topic; the first members get one more."""
    assignment: Assignment = {member: [] for member in members}
    for topic in sorted(counts):
        interested = [m for m in _in_order(members) if topic in members[m].topics]
        if not interested:
            continue
        share, rest = divmod(counts[topic], len(interested))
        start = 0
        for place, member in enumerate(interested):
            end = start + share + (place < rest)
            assignment[member] += _run(topic, start, end)
            start = end
    return assignment


def _round_robin(counts: Counts, members: Members) -> Assignment:
    """Assign all partitions of all topics in turn."""
    assignment: Assignment = {member: [] for member in members}
    turns = cycle(_in_order(members))
    for partition in _all_partitions(counts, members):
        member = next(turns)
        while partition.topic not in members[member].topics:
            member = next(turns)
        assignment[member].append(partition)
    return assignment


def _cooperative_sticky(counts: Counts, members: Members) -> Assignment:
    """Balance with the fewest moves; a moving partition stays unassigned until revoked.

    The owner revokes a partition that this assignment lacks, and joins again; the next
    assignment gives the partition to another member (KIP-429).
    """
    owners = _owners(counts, members)
    wanted = _balanced(counts, members, owners)
    return {
        member: [each for each in mine if owners.get(each, member) == member]
        for member, mine in wanted.items()
    }


def _balanced(
    counts: Counts, members: Members, owners: Mapping[TopicPartition, str]
) -> Assignment:
    assignment: Assignment = {member: [] for member in _in_order(members)}
    for partition in _all_partitions(counts, members):
        if partition in owners:
            assignment[owners[partition]].append(partition)
    for partition in _all_partitions(counts, members):
        if partition not in owners:
            _least(assignment, members, partition.topic).append(partition)
    while _move_one(assignment, members):
        pass
    return assignment


def _move_one(assignment: Assignment, members: Members) -> bool:
    """Move a partition to a member with at least two fewer; False if balanced."""
    for mine in sorted(assignment.values(), key=len, reverse=True):
        # From the end, so that a member keeps its oldest partitions.
        for partition in reversed(mine):
            other = _least(assignment, members, partition.topic)
            if len(mine) - len(other) >= 2:
                mine.remove(partition)
                other.append(partition)
                return True
    return False


def _least(
    assignment: Assignment, members: Members, topic: str
) -> list[TopicPartition]:
    """Return the shortest list among the subscribers of a topic."""
    interested = (m for m in assignment if topic in members[m].topics)
    return min((assignment[m] for m in interested), key=len)


def _owners(counts: Counts, members: Members) -> dict[TopicPartition, str]:
    """Return each partition's owner; ties and claims of old generations are ignored."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in _in_order(members):
        subscription = members[member]
        for partition in subscription.owned:
            exists = 0 <= partition.partition < counts.get(partition.topic, 0)
            if exists and partition.topic in subscription.topics:
                claim = (subscription.generation, member)
                claims.setdefault(partition, []).append(claim)
    owners = {}
    for partition, claimants in claims.items():
        newest = max(generation for generation, _ in claimants)
        valid = [member for generation, member in claimants if generation == newest]
        if len(valid) == 1:
            (owners[partition],) = valid
    return owners


def _all_partitions(counts: Counts, members: Members) -> Iterator[TopicPartition]:
    """Yield the partitions of all topics with a subscriber."""
    wanted = {topic for each in members.values() for topic in each.topics}
    for topic in sorted(wanted & counts.keys()):
        yield from _run(topic, 0, counts[topic])


def _run(topic: str, start: int, end: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(start, end)]


def _in_order(members: Members) -> list[str]:
    """Sort as Kafka's ``MemberInfo``: static members by name, then the others by id."""

    def key(member: str) -> tuple[bool, str, str]:
        name = members[member].instance_id
        return (name is None, name or "", member)

    return sorted(members, key=key)


_ASSIGNORS: Final[Mapping[str, Callable[[Counts, Members], Assignment]]] = {
    "range": _range,
    "roundrobin": _round_robin,
    "cooperative-sticky": _cooperative_sticky,
}
