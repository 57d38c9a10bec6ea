"""The effects of a coordinator's core: answers to give, records to write.

A core is pure. It returns `Effects`, and `broker.shards.shards` carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from broker.protocol.errors import ErrorCode
from broker.shards.parked_answer import Waiting

T = TypeVar("T")

NS_PER_MS: Final = 1_000_000


class Instant(NamedTuple):
    """Now, on both clocks: deadlines count in ``ns``, records say ``wall_ms``."""

    ns: int
    wall_ms: int


class Record(NamedTuple):
    """A record of an internal topic; no value: a tombstone."""

    key: bytes
    value: bytes | None


class InTransaction(NamedTuple):
    """The producer whose transaction records belong to: they count if it commits.

    ``guard`` is the log's permission to begin the transaction, None if none is needed;
    nothing between a handler and the log looks into it.
    """

    producer_id: int
    producer_epoch: int
    guard: object


class Write(NamedTuple):
    """Records to append together; ``done`` takes the outcome and goes on from there."""

    records: tuple[Record, ...]
    done: Callable[[ErrorCode, Instant], Effects]
    transaction: InTransaction | None = None


# The waiting request, and its answer.
Answered: TypeAlias = tuple[Waiting[Any], Any]


@dataclass(slots=True)
class Effects:
    """The effects of a core verb for its caller: answers to give, records to write."""

    answers: list[Answered] = field(default_factory=list)
    # Answers to very many, made as they are given, some at a time.
    in_turn: list[Iterator[Answered]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def answer(self, waiting: Waiting[T] | None, answer: T) -> None:
        """Note an answer, if someone waits for it."""
        if waiting is not None:
            self.answers.append((waiting, answer))
