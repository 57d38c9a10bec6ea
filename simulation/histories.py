"""Events of a cluster's history, as its clients and observers saw them.

Plain values, in the order in which they were noted: what a record's producer was told
of it, what consumers were given and what they committed, what brokers were seen to
hold. A history of a live cluster and one of virtual time are the same to a checker.
Times are nanoseconds of the run's one clock.

Values of records are unique in a history: a value says which `Send` it came from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from broker.protocol.topic_partition import TopicPartition

# What a client knows of an operation: done, not done and never to be, or neither.
Outcome: TypeAlias = Literal["ok", "fail", "unknown"]
# A transaction whose commit was never called for is aborted, whatever ends it.
TransactionOutcome: TypeAlias = Literal["committed", "aborted", "unknown"]
# A partition and an offset.
Place: TypeAlias = tuple[TopicPartition, int]
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A record: ``number`` is its place among all that ``producer`` has sent.

    ``acks`` is the protocol's, -1 for all. ``answered_ns`` is when the outcome was
    known, or was given up. ``transaction`` is the name of its `Transaction`, if it has
    one; ``source`` is the place of the record that it was made from.
    """

    producer: str
    number: int
    partition: TopicPartition
    value: bytes
    acks: int
    idempotent: bool
    invoked_ns: int
    answered_ns: int
    outcome: Outcome
    offset: int = UNKNOWN_OFFSET
    transaction: str = ""
    source: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialization:
    """InitProducerId of a transactional id: from its answer on others are fenced."""

    transactional_id: str
    producer: str
    invoked_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction of ``producer``; ``name`` is unique.

    ``ends_ns`` is when its commit was first called for, or its abort if none was.
    With ``group`` it committed offsets of that group.
    """

    name: str
    transactional_id: str
    producer: str
    group: str = ""
    ends_ns: int
    answered_ns: int
    outcome: TransactionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A record that a consumer was given; ``poll`` counts the polls of ``consumer``.

    ``session`` counts how often the consumer began to read the partition anew: after a
    rebalance, a seek, or a restart, positions need not go on from the last one.
    ``committed_only`` is ``isolation.level=read_committed``.
    """

    consumer: str
    session: int
    poll: int
    partition: TopicPartition
    offset: int
    value: bytes
    at_ns: int
    committed_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An offset that was committed for a group.

    ``repeated`` says that an attempt was given up unanswered and another one made: the
    first may be carried out, too, and whenever it arrives.
    """

    group: str
    partition: TopicPartition
    offset: int
    invoked_ns: int
    answered_ns: int
    outcome: Outcome
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Answer about a group's committed offset; -1: there is none.

    Asked while the cluster was whole: a coordinator that has been replaced and has not
    heard of it answers with what it knows, Kafka's as ours.
    """

    group: str
    partition: TopicPartition
    offset: int
    invoked_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One look at a replica; ``incarnation`` counts the starts of its broker.

    ``partition_epoch`` counts the changes of its ISR; ``min_isr`` is how many acks=all
    asks for, and how many there are at most. ``last_stable_offset`` is a leader's.
    """

    broker: int
    incarnation: int
    partition: TopicPartition
    is_leader: bool
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    isr: tuple[int, ...]
    partition_epoch: int
    min_isr: int
    at_ns: int
    last_stable_offset: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """All records of a partition, read when everything had come to rest.

    ``records`` are (offset, value) in the order of offsets, from the start of the log.
    """

    partition: TopicPartition
    log_start_offset: int
    records: tuple[tuple[int, bytes], ...]


@dataclass(slots=True)
class History:
    """Everything that was noted of one run."""

    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    finals: list[FinalLog] = field(default_factory=list)
    # The same logs, read with isolation.level=read_committed.
    committed_finals: list[FinalLog] = field(default_factory=list)
    initializations: list[Initialization] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)

    def digest(self) -> str:
        """Return a hash of every field of every value, the same for the same run."""
        found = hashlib.sha256()
        for line in self.lines():
            found.update(line.encode())
        return found.hexdigest()

    def lines(self) -> Iterator[str]:
        """Iterate over the values as text, one per line."""
        for each in fields(self):
            for value in getattr(self, each.name):
                yield f"{value!r}\n"
