"""Placement of the replicas of new partitions: Kafka's ``AdminUtils``.

First replicas are assigned to all brokers in turn, from a random start. The others of a
partition follow at a distance that increases by one with each round. The followers of a
broker's partitions are thus spread evenly over the other brokers. If all racks are
known, a partition's replicas are in as many racks as possible. One unknown rack
disables this (Kafka refuses then, except for its tools).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final

from broker.coordination.coordinator_roles import BrokerRack
from broker.protocol.errors import ErrorCode, KafkaError

Assignment = tuple[tuple[int, ...], ...]
_ONE_RACK: Final = ""


def place(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replicas: int,
    rng: random.Random,
    *,
    first: int = 0,
    leader: int | None = None,
) -> Assignment:
    """Return the replicas of ``partitions`` partitions, from number ``first`` on.

    ``leader`` is the preferred leader of an existing partition 0: added partitions
    continue its pattern. Raises INVALID_REPLICATION_FACTOR if there are fewer brokers
    than replicas.

    >>> three = [BrokerRack(7), BrokerRack(8), BrokerRack(9)]
    >>> place(three, 2, 2, random.Random(), first=1, leader=7)
    ((8, 9), (9, 7))
    """
    check_replication_factor(replicas)
    count = len(brokers)
    if replicas > count:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {replicas} with {count} live brokers",
        )
    racks = _racks(brokers)
    ring = _alternating(racks)
    if leader is None:
        start, shift = rng.randrange(count), rng.randrange(count)
    else:
        not_before = (at for at, each in enumerate(sorted(racks)) if each >= leader)
        start = shift = next(not_before, 0)
    placed = []
    for index in range(first, first + partitions):
        if index and not index % count:
            shift += 1
        placed.append(_replicas(ring, racks, (index + start) % count, shift, replicas))
    return tuple(placed)


def check_replication_factor(replicas: int) -> None:
    """Raise INVALID_REPLICATION_FACTOR for a number below 1."""
    if replicas < 1:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {replicas}, expected at least 1",
        )


def check_replicas(assignment: Assignment, brokers: Sequence[BrokerRack]) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the assignment is possible."""
    live = {each.id for each in brokers}
    for replicas in assignment:
        if len(replicas) > len(live):
            # Checked first, since the number of replicas in a request is unbounded.
            raise bad_assignment(f"{len(replicas)} replicas on {len(live)} brokers")
        if not replicas or len(set(replicas)) < len(replicas):
            raise bad_assignment(f"replicas {replicas} are none, or one is named twice")
        unknown = set(replicas) - live
        if unknown:
            raise bad_assignment(f"brokers {sorted(unknown)} are not alive")
        if len(replicas) != len(assignment[0]):
            raise bad_assignment("partitions have different replication factors")


def bad_assignment(message: str) -> KafkaError:
    """Return the error for an impossible assignment."""
    return KafkaError(ErrorCode.invalid_replica_assignment, message)


def _racks(brokers: Sequence[BrokerRack]) -> dict[int, str]:
    """Return each broker's rack; the same rack for all if one is unknown."""
    known = {each.id: each.rack for each in brokers if each.rack is not None}
    if len(known) == len(brokers):
        return known
    return {each.id: _ONE_RACK for each in brokers}


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers in an order that alternates between racks.

    >>> _alternating({0: "a", 1: "a", 2: "b", 3: "b", 4: "a"})
    [0, 2, 1, 3, 4]
    """
    in_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        in_rack.setdefault(racks[broker], []).append(broker)
    rows = zip_longest(*(in_rack[rack] for rack in sorted(in_rack)))
    return [broker for row in rows for broker in row if broker is not None]


def _replicas(
    ring: Sequence[int], racks: Mapping[int, str], at: int, shift: int, count: int
) -> tuple[int, ...]:
    """Return one partition's replicas, beginning with the broker ``at`` in the ring.

    The others follow in the ring, ``shift`` times the number of racks away. A rack is
    used again only after all racks, and no broker is used twice.
    """
    chosen = [ring[at]]
    rack_count = len(set(racks.values()))
    step = 0
    while len(chosen) < count:
        behind = 1 + (shift * rack_count + step) % (len(ring) - 1)
        broker = ring[(at + behind) % len(ring)]
        had = {racks[each] for each in chosen}
        if broker not in chosen and (
            racks[broker] not in had or len(had) == rack_count
        ):
            chosen.append(broker)
        step += 1
    return tuple(chosen)
