"""The controller's decisions as values, and the way they are carried out.

A handler of the controller is a generator of decisions (`Decisions`). The driver
carries out one after the other and sends back the result:

    found = NOTHING_FOUND
    try:
        decision = next(steps)
        while True:
            found = await carry_out(decision)
            decision = steps.send(found)
    except StopIteration as done:
        return done.value

For `WriteLeaderships` the result is the content of the znodes afterwards, regardless of
the writer; for all others it is `NOTHING_FOUND`. Handlers run one at a time and to
their end. A handler is abandoned only together with its controller.

Writes are made in one ``multi`` with a check of the version of ``/controller_epoch``.
If that check fails, another controller has been elected: the driver discards the
handler and the controller, whose decisions are no longer valid. The driver reconnects
until the session has expired, and then discards the controller, too. A handler
therefore needs no handling of failures.

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
    """Write partition states, each if its znode has the preceding version.

    Version 0 creates the znode and its parents. The result is the content of each
    partition's znode afterwards, None for a missing one (the topic has been removed by
    hand). A state counts as written if the znode has its content, so a write whose
    response was lost counts, too.
    """

    wanted: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Write a topic's partitions into ``/brokers/topics/T``.

    Partitions of the znode that ``assignment`` lacks are kept: another client has added
    them, and the controller has not read them yet.
    """

    topic: str
    assignment: TopicAssignment


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Remove the znodes of a topic, of its config and of its deletion, in this order.

    Missing znodes are ignored.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class RemoveDeletions:
    """Remove children of ``/admin/delete_topics`` that cannot be carried out."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteReassignments:
    """Write ``/admin/reassign_partitions``, or remove it if nothing remains.

    After the removal the driver watches for the next creation.
    """

    remaining: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RemovePreferredElection:
    """Remove ``/admin/preferred_replica_election``, and watch for the next creation."""


@dataclass(frozen=True, slots=True)
class Send:
    """Queue requests for brokers, in this order, without waiting for responses.

    Each carries the epoch of the broker's registration, and is dropped when the channel
    of that registration is closed.
    """

    requests: tuple[tuple[int, ControllerRequest], ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Yield the CPU. Nothing is written or sent."""


Decision: TypeAlias = (
    WriteLeaderships
    | WriteAssignment
    | DeleteTopic
    | RemoveDeletions
    | WriteReassignments
    | RemovePreferredElection
    | Send
    | Pause
)
Found: TypeAlias = Mapping[TopicPartition, Leadership | None]
Decisions: TypeAlias = Generator[Decision, Found, _R]

NOTHING_FOUND: Final[Found] = MappingProxyType({})
# Items of a loop between two pauses: about 2 ms.
PAUSE_ITEMS = 128
# Items of a scan between two pauses: about 0.5 ms.
SCAN_ITEMS = 1024


def pausing(count: int) -> Decisions[None]:
    """Pause if ``count`` is a multiple of `PAUSE_ITEMS`."""
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
