"""The bound on memory for requests: ``queued.max.request.bytes``.

Follows Kafka's ``SimpleMemoryPool`` in its lenient form: reading of a request may begin
while any memory is free. The bound is therefore exceeded by at most one request (in
Kafka by one per processor thread). When no memory is free, processors begin to read no
further request until a request is completed or decoded. Only a Produce keeps its frame
until its response. A request that waits minutes for records or members therefore does
not block reading (Kafka: ``ApiKeys.requiresDelayedAllocation``).
"""

from __future__ import annotations

from collections.abc import Callable


class MemoryPool:
    """Count of the bytes of requests, from the start of their reading."""

    def __init__(self, size_bytes: int) -> None:
        assert size_bytes > 0, size_bytes
        self.size_bytes = size_bytes
        self.available_bytes = size_bytes
        self._listeners: list[Callable[[], None]] = []

    @property
    def used_bytes(self) -> int:
        """Return the bytes in use; the last request read may exceed the pool's size."""
        return self.size_bytes - self.available_bytes

    @property
    def exhausted(self) -> bool:
        """Return whether reading of further requests must not begin."""
        return self.available_bytes <= 0

    def on_available(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever an exhausted pool has memory again."""
        self._listeners.append(listener)

    def take(self, size_bytes: int) -> None:
        """Add the bytes of a request."""
        self.available_bytes -= size_bytes

    def release(self, size_bytes: int) -> None:
        """Subtract the bytes of a request."""
        was_exhausted = self.exhausted
        self.available_bytes += size_bytes
        assert self.available_bytes <= self.size_bytes, self.available_bytes
        if was_exhausted and not self.exhausted:
            for listener in self._listeners:
                listener()
