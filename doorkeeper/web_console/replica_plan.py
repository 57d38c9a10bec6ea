"""Plans that spread replicas over brokers, by their number or by their bytes.

A replica moves from the most loaded broker to the least loaded one for which the gap
between the two becomes smaller. The replica nearest to half of the gap moves first.
Each move lowers the sum of the squared loads, so the algorithm terminates. With a load
of one per replica, brokers differ by at most one replica, and no plan moves fewer
replicas: a broker with two more than another holds a partition that the other does not.

Two replicas of a partition never share a broker, and a move never reduces the number of
racks of a partition. Other tasks run between two moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from broker.protocol.topic_partition import TopicPartition


class Placed(NamedTuple):
    """A partition, its replicas (the first one leads), and the bytes of each."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    size_bytes: int = 0


class TooFewBrokers(Exception):
    """A partition has more replicas than there are brokers."""


async def spread(
    placed: Sequence[Placed], racks: Mapping[int, str | None], *, by_bytes: bool = False
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the new replicas of the partitions that move.

    ``racks`` are the brokers that may hold replicas. By number, leaders are balanced
    next, by the order of replicas only. Raises `TooFewBrokers`.

    >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> trio.run(spread, [Placed(a, (1,)), Placed(b, (1,))], {1: None, 2: None})
    {TopicPartition(topic='t', partition=0): (2,)}
    """
    plan = _Plan(placed, racks, by_bytes=by_bytes)
    plan.leave_other_brokers()
    await plan.even_out()
    if not by_bytes:
        await plan.spread_leaders()
    return {
        it.partition: tuple(after)
        for it, after in zip(placed, plan.replicas, strict=True)
        if tuple(after) != it.replicas
    }


class _Plan:
    def __init__(
        self,
        placed: Sequence[Placed],
        racks: Mapping[int, str | None],
        *,
        by_bytes: bool,
    ) -> None:
        if any(len(it.replicas) > len(racks) for it in placed):
            raise TooFewBrokers
        self._racks = racks
        self._loads = [it.size_bytes if by_bytes else 1 for it in placed]
        self.replicas = [[*it.replicas] for it in placed]
        self._by_bytes = by_bytes
        self._load: Counter[int] = Counter(dict.fromkeys(racks, 0))
        # Numbers of partitions, in a deterministic order.
        self._held: dict[int, dict[int, None]] = {it: {} for it in racks}
        for number, brokers in enumerate(self.replicas):
            for broker in brokers:
                if broker in racks:
                    self._load[broker] += self._loads[number]
                    self._held[broker][number] = None

    def leave_other_brokers(self) -> None:
        """Move replicas away from brokers that may not hold any."""
        for number, brokers in enumerate(self.replicas):
            for source in [it for it in brokers if it not in self._racks]:
                targets = [it for it in self._racks if it not in brokers]
                taken = {self._racks.get(it) for it in brokers if it != source}
                self._move(
                    number,
                    source,
                    min(
                        targets,
                        key=lambda it: (self._racks[it] in taken, self._rank(it)),
                    ),
                )

    async def even_out(self) -> None:
        """Move replicas until no move brings two brokers closer."""
        for _ in range(sum(map(len, self.replicas))):
            found = self._best_move()
            if found is None:
                return
            self._move(*found)
            await trio.lowlevel.checkpoint()

    def _best_move(self) -> tuple[int, int, int] | None:
        order = sorted(self._racks, key=self._rank)
        for source in reversed(order):
            for target in order:
                gap = self._load[source] - self._load[target]
                if gap <= 0:
                    break
                candidates = (
                    it
                    for it in self._held[source]
                    if 0 < self._loads[it] < gap and self._allows(it, source, target)
                )
                best = next(candidates, None)
                if best is not None and self._by_bytes:
                    best = min(
                        (best, *candidates),
                        key=lambda it: (abs(2 * self._loads[it] - gap), it),
                    )
                if best is not None:
                    return best, source, target
        return None

    def _allows(self, number: int, source: int, target: int) -> bool:
        brokers = self.replicas[number]
        if target in brokers:
            return False
        others = {self._racks[it] for it in brokers if it != source}
        return self._racks[target] not in others or self._racks[source] in others

    def _move(self, number: int, source: int, target: int) -> None:
        brokers = self.replicas[number]
        brokers[brokers.index(source)] = target
        self._load[target] += self._loads[number]
        self._held[target][number] = None
        if source in self._racks:
            self._load[source] -= self._loads[number]
            del self._held[source][number]

    def _rank(self, broker: int) -> tuple[int, int]:
        return self._load[broker], broker

    async def spread_leaders(self) -> None:
        """Change the leader if another replica's broker leads at least two fewer."""
        leaders = Counter(it[0] for it in self.replicas if it)
        is_even = False
        while not is_even:
            is_even = True
            await trio.lowlevel.checkpoint()
            for brokers in filter(None, self.replicas):
                least = min(brokers, key=lambda it: (leaders[it], it))
                if leaders[brokers[0]] - leaders[least] >= 2:
                    is_even = False
                    leaders[brokers[0]] -= 1
                    leaders[least] += 1
                    brokers.remove(least)
                    brokers.insert(0, least)
