"""Objects of one partition of an internal topic, by their ids.

Kafka: ``GroupCoordinatorShard``, and the entries of ``TransactionStateManager``. The
broker that leads the partition coordinates its objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

E = TypeVar("E")
R = TypeVar("R")

Steps: TypeAlias = Iterator[None]
# Steps with a result.
InSteps: TypeAlias = Generator[None, None, R]


class Shard(Generic[E]):
    """Objects by id, complete once ``loading`` is False.

    ``owns`` returns whether an object belongs to the partition. ``epoch`` is the leader
    epoch of this broker's election. ``afterwards`` is work that arose during the load:
    done when all objects are read, before requests can access them.
    """

    __slots__ = (
        "afterwards",
        "by_id",
        "epoch",
        "loading",
        "owns",
        "partition",
        "steps",
    )

    def __init__(
        self, partition: int, owns: Callable[[str], bool], epoch: int = 0
    ) -> None:
        self.partition = partition
        self.owns = owns
        self.epoch = epoch
        self.by_id: dict[str, E] = {}
        self.loading = True
        # The remaining steps of a load that has begun.
        self.steps: Steps | None = None
        self.afterwards: deque[Callable[[Iterable[E]], Iterator[object]]] = deque()
