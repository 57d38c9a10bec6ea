"""The effects of a coordinator's core: responses to send, records to write.

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
    """The present time: ``ns`` for deadlines, ``wall_ms`` for records."""

    ns: int
    wall_ms: int


class Record(NamedTuple):
    """A record of an internal topic; a tombstone if the value is None."""

    key: bytes
    value: bytes | None


class InTransaction(NamedTuple):
    """The producer of a transaction; its records take effect if it commits.

    ``guard`` is the log's permission to begin the transaction, None if none is needed.
    Only handlers and the log know its type.
    """

    producer_id: int
    producer_epoch: int
    guard: object


class Write(NamedTuple):
    """Records to append together; ``done`` receives the outcome and continues."""

    records: tuple[Record, ...]
    done: Callable[[ErrorCode, Instant], Effects]
    transaction: InTransaction | None = None


# The waiting request and its response.
Answered: TypeAlias = tuple[Waiting[Any], Any]


@dataclass(slots=True)
class Effects:
    """The effects of a core verb: responses to send, records to write."""

    answers: list[Answered] = field(default_factory=list)
    # Large sets of responses, computed lazily and sent in bounded steps.
    in_turn: list[Iterator[Answered]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def answer(self, waiting: Waiting[T] | None, answer: T) -> None:
        """Record a response, if a request waits for it."""
        if waiting is not None:
            self.answers.append((waiting, answer))
