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

    ``owns`` says whether an object belongs to the partition. ``epoch`` is the leader
    epoch in which this broker came to lead it. ``afterwards`` is work on the objects
    that came up during the load: done when they are read, before they can be asked for.
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
        # The rest of the load, once it has begun.
        self.steps: Steps | None = None
        self.afterwards: deque[Callable[[Iterable[E]], Iterator[object]]] = deque()
