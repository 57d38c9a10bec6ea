"""What the controller decides, as values; and how its decisions are carried out.

A handler of the controller is a generator of decisions (`Decisions`). Whoever drives it
carries out one after the other and sends in what it found:

    found = NOTHING_FOUND
    try:
        decision = next(steps)
        while True:
            found = await carry_out(decision)
            decision = steps.send(found)
    except StopIteration as done:
        return done.value

For `WriteLeaderships` that is what the znodes hold afterwards, whoever wrote it; for
all others `NOTHING_FOUND`. One handler at a time, each to its end: a handler may be
given up half way only together with its controller.

Writes are made in one ``multi`` with a check of the version of ``/controller_epoch``.
Where that check fails another controller has been elected: the driver gives up the
handler and the whole core, which must not decide anything any more. A lost connection
is tried again until the session has ended, which is the end of the core, too. So there
is no failure that a handler would have to know of.

A loop over partitions pauses after every `PAUSE_ITEMS` of them. Nobody else changes
the controller's state during a pause; it may be read.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from broker.controller.assignment import TopicAssignment
from broker.controller.leadership import Leadership
from broker.protocol.schemas.leader_and_isr import LeaderAndIsrRequest
from broker.protocol.schemas.stop_replica import StopReplicaRequest
from broker.protocol.schemas.update_metadata import UpdateMetadataRequest
from broker.protocol.topic_partition import TopicPartition

_R = TypeVar("_R")

ControllerRequest: TypeAlias = (
    LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
)


@dataclass(frozen=True, slots=True)
class WriteLeaderships:
    """Write partition states, each if its znode has the version before.

    Version 0 creates the znode, and those above it. What is sent in is what each
    partition's znode holds afterwards, None where there is none (the topic has been
    removed by hand). A state is written if that is what is there: so a write that was
    made although its answer was lost is simply found.
    """

    wanted: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Write a topic's partitions into ``/brokers/topics/T``.

    Partitions that are there and not in ``assignment`` stay: somebody has added them,
    and the controller has not looked yet.
    """

    topic: str
    assignment: TopicAssignment


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Remove a topic's znodes: the topic's, its config's, the deletion's, so ordered.

    What is gone already is no failure.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class ForgetDeletions:
    """Remove children of ``/admin/delete_topics`` that nothing comes of."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteReassignments:
    """Write ``/admin/reassign_partitions``, or remove it if nothing remains.

    Whoever removes it looks whether it is there again, with a watch.
    """

    remaining: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ForgetPreferredElection:
    """Remove ``/admin/preferred_replica_election``, and look whether it comes again."""


@dataclass(frozen=True, slots=True)
class Send:
    """Queue requests for brokers, in this order; nobody waits for their answers.

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


def pausing(count: int) -> Decisions[None]:
    """Pause if a loop has just dealt with another `PAUSE_ITEMS` items."""
    if not count % PAUSE_ITEMS:
        yield Pause()
