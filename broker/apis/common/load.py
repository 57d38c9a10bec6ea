"""What a load generator sends of an API: a request with a few parameters.

An API that declares such a shape beside its handler can stand in an experiment's
workload. The laboratory makes the rest of it: the keys of the experiment's file, their
checks, the bytes of a request and the error code of its answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Who sends a request, to which broker, and when.

    ``topic`` is that of the workload's entry, and ``position`` the connection's number
    within the entry, from 0. ``host`` and ``port`` are those of the broker under load.
    ``leader_epoch`` rises with every request of a connection. ``batch`` makes a batch
    of so many records of so many bytes each, which nothing compresses.
    """

    topic: str
    position: int
    broker_id: int
    host: str
    port: int
    controller_epoch: int
    leader_epoch: int
    batch: Callable[[int, int], bytes]


def at_least(least: int, default: int) -> Any:
    """Declare a parameter with its lower bound."""
    return field(default=default, metadata={"ge": least})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(ABC):
    """One request of a workload: its fields are the keys of the experiment's file.

    ``every_request_differs`` says that a connection cannot send the same bytes again.
    A derived class that refuses a combination of parameters raises ``ValueError``.
    """

    every_request_differs: ClassVar[bool] = False

    def partitions_needed(self, connections: int) -> int:
        """Return how many partitions the entry's topic needs; 0 if it needs none."""
        return 0

    @property
    def filled_bytes(self) -> int:
        """How many bytes each of these partitions has to hold before the run."""
        return 0

    @property
    def is_answered(self) -> bool:
        """Whether the broker answers."""
        return True

    @abstractmethod
    def body(self, on: Occasion) -> object:
        """Return the request, with the fields of the version that it is sent in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPartitions(Shape):
    """What a controller says of partitions that one connection alone speaks of.

    Each request raises the leader epoch by one, so that every one of them changes
    state: every scheduler keeps the order of a connection. The broker stays the leader
    and the sole replica, which keeps the rest of the load valid.
    """

    every_request_differs: ClassVar[bool] = True

    partitions: int = at_least(1, 1)

    def partitions_needed(self, connections: int) -> int:
        """Return the partitions of all connections."""
        return self.partitions * connections

    def indexes(self, on: Occasion) -> range:
        """Return the partitions that the connection owns."""
        first = on.position * self.partitions
        return range(first, first + self.partitions)
