"""A parked JoinGroup or SyncGroup: a response that comes later, at most once.

The core holds these while a request waits, and its `Effects` name those to complete.
The handler parks on ``register`` (``planes.slices.parked``). Kafka's counterparts are
the ``CompletableFuture``s of ``ClassicGroupMember``. A waiter is never dropped: the
core completes even requests whose sender has disconnected or was replaced. Otherwise a
request could stay in the broker forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiting(Generic[T]):
    """The response to one request: set exactly once, perhaps later."""

    __slots__ = ("_answer", "_wake")

    def __init__(self) -> None:
        self._answer: T | None = None
        self._wake: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return "<waiting>" if self._answer is None else f"<answered {self._answer!r}>"

    @property
    def answered(self) -> bool:
        """Return whether the response is set."""
        return self._answer is not None

    def settle(self, answer: T) -> None:
        """Set the response and wake the handler, if it is parked already."""
        assert self._answer is None, (self._answer, answer)
        self._answer = answer
        if self._wake is not None:
            self._wake()

    def register(self, wake: Callable[[], None]) -> bool:
        """Register a wake-up call; return False if the response is set already."""
        if self._answer is not None:
            return False
        assert self._wake is None, "one handler waits for one answer"
        self._wake = wake
        return True

    def answer(self) -> T:
        """Return the response, which must be set."""
        assert self._answer is not None, "not answered yet"
        return self._answer
