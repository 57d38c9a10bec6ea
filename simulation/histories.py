"""Events of a cluster's history, as its clients and observers recorded them.

Plain values in order of recording: the outcome of each record for its producer, the
records and commits of consumers, and observed replicas. Checkers treat histories of
live clusters and of virtual time alike. Times are nanoseconds of the run's one clock.

Values of records are unique in a history, so a value identifies its `Send`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from broker.protocol.topic_partition import TopicPartition

# Outcome of an operation for its client: done, never done, or unknown.
Outcome: TypeAlias = Literal["ok", "fail", "unknown"]
# A transaction without a commit call always ends as aborted.
TransactionOutcome: TypeAlias = Literal["committed", "aborted", "unknown"]
# A partition and an offset.
Place: TypeAlias = tuple[TopicPartition, int]
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A record: ``number`` is its position among all that ``producer`` has sent.

    ``acks`` is the protocol's, -1 for all. ``answered_ns`` is the time of the outcome,
    or of giving up. ``transaction`` is the name of its `Transaction`, if there is one;
    ``source`` is the place of the record from which it was copied.
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
    """InitProducerId of a transactional id; its answer fences earlier producers."""

    transactional_id: str
    producer: str
    invoked_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction of ``producer``; ``name`` is unique.

    ``ends_ns`` is the time of its first commit call, or of its abort without one.
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
    """A record that a consumer read; ``poll`` counts the polls of ``consumer``.

    ``session`` counts the starts of reading the partition. After a rebalance, a seek
    or a restart, positions need not continue from the last one. ``committed_only`` is
    ``isolation.level=read_committed``.
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

    ``repeated``: an attempt was given up without an answer and repeated. The first
    attempt may take effect too, at any later time.
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

    Queried while the cluster was whole. A replaced coordinator that does not know it
    answers with its old state, in Kafka too.
    """

    group: str
    partition: TopicPartition
    offset: int
    invoked_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One observation of a replica; ``incarnation`` counts the starts of its broker.

    ``partition_epoch`` counts the changes of its ISR. ``min_isr`` is the ISR size that
    acks=all requires, limited by the number of replicas. ``last_stable_offset`` is a
    leader's.
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
    """All records of a partition, read after load and faults.

    ``records`` are (offset, value) in the order of offsets, from the start of the log.
    """

    partition: TopicPartition
    log_start_offset: int
    records: tuple[tuple[int, bytes], ...]


@dataclass(slots=True)
class History:
    """All recorded events of one run."""

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
        """Return a hash of every field of every value, equal for equal runs."""
        found = hashlib.sha256()
        for line in self.lines():
            found.update(line.encode())
        return found.hexdigest()

    def lines(self) -> Iterator[str]:
        """Yield the values as text, one per line."""
        for each in fields(self):
            for value in getattr(self, each.name):
                yield f"{value!r}\n"
