"""Anomalies, and the text with which checkers describe them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from broker.protocol.topic_partition import TopicPartition
from simulation.histories import UNKNOWN_OFFSET, History, Read, Replica, Send

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Anomaly(NamedTuple):
    """A violated rule: its kind, and the observation."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


Check = Callable[[History], Iterator[Anomaly]]


def grouped(values: Iterable[T], key: Callable[[T], K]) -> Iterator[tuple[K, list[T]]]:
    """Yield (key, values with that key), in the order of first appearance."""
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    yield from groups.items()


def name_of(partition: TopicPartition) -> str:
    """Return the name of a partition."""
    return f"{partition.topic}-{partition.partition}"


def describe_send(send: Send) -> str:
    """Return a record with its producer's knowledge of it."""
    place = "" if send.offset == UNKNOWN_OFFSET else f" at {send.offset}"
    acks = "all" if send.acks == -1 else send.acks
    return (
        f"{send.value!r} (acks={acks}, {send.outcome}{place} of "
        f"{name_of(send.partition)}, answered {send.answered_ns / 1e9:.3f} s)"
    )


def describe_read(read: Read) -> str:
    """Return a record with the place where a consumer read it."""
    return (
        f"{read.value!r} at {read.offset} of {name_of(read.partition)} to "
        f"{read.consumer} ({read.at_ns / 1e9:.3f} s)"
    )


def describe_replica(look: Replica) -> str:
    """Return the state of a replica in an observation."""
    return (
        f"{name_of(look.partition)} at broker {look.broker}, "
        f"incarnation {look.incarnation}: "
        f"epoch {look.leader_epoch}, offsets {look.log_start_offset} to "
        f"{look.log_end_offset}, high watermark {look.high_watermark}, "
        f"last stable offset {look.last_stable_offset} ({look.at_ns / 1e9:.3f} s)"
    )
