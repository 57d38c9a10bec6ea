"""The controller's decisions as values, and the way they are carried out.

A handler of the controller is a generator of decisions (`Decisions`). The driver
carries out one after the other and sends in the result:

    found = NOTHING_FOUND
    try:
        decision = next(steps)
        while True:
            found = await carry_out(decision)
            decision = steps.send(found)
    except StopIteration as done:
        return done.value

For `WriteLeaderships` the result is the content of the znodes afterwards, whatever its
writer; for all others `NOTHING_FOUND`. One handler at a time, each to its end: a
handler may be given up half way only together with its controller.

Writes are made in one ``multi`` with a check of the version of ``/controller_epoch``.
Where that check fails another controller has been elected: the driver gives up the
handler and the whole core, which must not decide anything any more. A lost connection
is tried again until the session has ended, which is the end of the core, too. A handler
therefore need not know any failure.

A loop over partitions pauses after every `PAUSE_ITEMS` of them, a scan of all after
every `SCAN_ITEMS`. During a pause the controller's state may be read, but not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from broker.controller.assignment import TopicAssignment
from broker.controller.leadership import Leadership
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrRequest
from broker.protocol.schemas.stop_replica_schema import StopReplicaRequest
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.topic_partition import TopicPartition

_R = TypeVar("_R")
_T = TypeVar("_T")

ControllerRequest: TypeAlias = (
    LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
)


@dataclass(frozen=True, slots=True)
class WriteLeaderships:
    """Write partition states, each if its znode has the version before.

    Version 0 creates the znode, and those above it. The result is the content of each
    partition's znode afterwards, None where there is none (the topic has been removed
    by hand). A state counts as written if its content is there, so a write with a lost
    answer is found.
    """

    wanted: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Write a topic's partitions into ``/brokers/topics/T``.

    Partitions that are there and not in ``assignment`` stay: they were added from
    outside, and the controller has not read them yet.
    """

    topic: str
    assignment: TopicAssignment


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Remove a topic's znodes: the topic's, its config's, the deletion's, so ordered.

    Missing znodes are no failure.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class ForgetDeletions:
    """Remove children of ``/admin/delete_topics`` that nothing comes of."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteReassignments:
    """Write ``/admin/reassign_partitions``, or remove it if nothing remains.

    After the removal the driver checks whether it is there again, with a watch.
    """

    remaining: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ForgetPreferredElection:
    """Remove ``/admin/preferred_replica_election``, and look whether it comes again."""


@dataclass(frozen=True, slots=True)
class Send:
    """Queue requests for brokers, in this order, without waiting for answers.

    Each carries the epoch of the broker's registration that it is meant for, and goes
    with that broker's channel if that ends.
    """

    requests: tuple[tuple[int, ControllerRequest], ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Point at which the CPU may be yielded. Nothing is written or sent."""


Decision: TypeAlias = (
    WriteLeaderships
    | WriteAssignment
    | DeleteTopic
    | ForgetDeletions
    | WriteReassignments
    | ForgetPreferredElection
    | Send
    | Pause
)
Found: TypeAlias = Mapping[TopicPartition, Leadership | None]
Decisions: TypeAlias = Generator[Decision, Found, _R]

NOTHING_FOUND: Final[Found] = MappingProxyType({})
# Items of a loop between two pauses: some two milliseconds.
PAUSE_ITEMS = 128
# Items of a scan, which only looks at each: half a millisecond.
SCAN_ITEMS = 1024


def pausing(count: int) -> Decisions[None]:
    """Pause if a loop has just dealt with another `PAUSE_ITEMS` items."""
    if not count % PAUSE_ITEMS:
        yield Pause()


def scan(items: Iterable[_T], wanted: Callable[[_T], bool]) -> Decisions[list[_T]]:
    """Return the wanted items, in order, with pauses in between."""
    found: list[_T] = []
    rest = iter(items)
    while piece := list(islice(rest, SCAN_ITEMS)):
        found += filter(wanted, piece)
        if len(piece) == SCAN_ITEMS:
            yield Pause()
    return found


def every(items: Iterable[_T]) -> Decisions[list[_T]]:
    """Return all items, in order, with pauses in between."""
    return scan(items, lambda it: True)
