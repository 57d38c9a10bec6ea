"""A parked JoinGroup or SyncGroup: an answer that comes later, at most once.

The core holds these while a request waits and says in its `Effects` which to answer;
the handler parks on ``register`` (``planes.slices.parked``). Kafka's counterparts are
the ``CompletableFuture``s of ``ClassicGroupMember``. A waiter is never dropped: the
core answers even requests whose sender has gone or has been replaced, so that no
request stays in the broker for good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiting(Generic[T]):
    """The answer to one request: given exactly once, maybe later."""

    __slots__ = ("_answer", "_wake")

    def __init__(self) -> None:
        self._answer: T | None = None
        self._wake: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return "<waiting>" if self._answer is None else f"<answered {self._answer!r}>"

    @property
    def answered(self) -> bool:
        """Return whether the answer has been given."""
        return self._answer is not None

    def settle(self, answer: T) -> None:
        """Give the answer and wake the handler, if it is parked already."""
        assert self._answer is None, (self._answer, answer)
        self._answer = answer
        if self._wake is not None:
            self._wake()

    def register(self, wake: Callable[[], None]) -> bool:
        """Ask to be woken; return False if there is nothing left to wait for."""
        if self._answer is not None:
            return False
        assert self._wake is None, "one handler waits for one answer"
        self._wake = wake
        return True

    def answer(self) -> T:
        """Return the answer, which must have been given."""
        assert self._answer is not None, "not answered yet"
        return self._answer
