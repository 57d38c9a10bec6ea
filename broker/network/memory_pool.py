"""The bound on memory for requests: ``queued.max.request.bytes``.

Follows Kafka's ``SimpleMemoryPool`` in its lenient form: a request may begin to be read
while any memory is left, so the bound is exceeded by at most one request (in Kafka by
one per processor, which are threads there). Once nothing is left, processors begin to
read no request until one has been answered, or decoded. Only a Produce keeps its frame
until it is answered, so a request that waits minutes for records or members does not
block reading (Kafka: ``ApiKeys.requiresDelayedAllocation``).
"""

from __future__ import annotations

from collections.abc import Callable


class MemoryPool:
    """A count of bytes that requests hold from their reading on."""

    def __init__(self, size_bytes: int) -> None:
        assert size_bytes > 0, size_bytes
        self.size_bytes = size_bytes
        self.available_bytes = size_bytes
        self._listeners: list[Callable[[], None]] = []

    @property
    def used_bytes(self) -> int:
        """Return how much requests hold; more than the size for the last one read."""
        return self.size_bytes - self.available_bytes

    @property
    def exhausted(self) -> bool:
        """Return whether no further request may begin to be read."""
        return self.available_bytes <= 0

    def on_available(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever an exhausted pool has memory again."""
        self._listeners.append(listener)

    def take(self, size_bytes: int) -> None:
        """Count a request in."""
        self.available_bytes -= size_bytes

    def release(self, size_bytes: int) -> None:
        """Count a request out."""
        was_exhausted = self.exhausted
        self.available_bytes += size_bytes
        assert self.available_bytes <= self.size_bytes, self.available_bytes
        if was_exhausted and not self.exhausted:
            for listener in self._listeners:
                listener()
