"""The channel from processors to a plane's request queue, and its behaviour when full.

Follows Kafka's ``RequestChannel``, whose ``sendRequest`` blocks the processor on a full
queue. This is half of the problem of KIP-291: a processor that blocks on one
connection's PRODUCE reads no other connection, so a control request is not even read.
The *reader* is configurable:

`BlindRequestChannel`
    follows Kafka: the processor waits in ``send_request``, with all its connections.

`ClassAwareRequestChannel`
    never blocks a processor. A refused request waits next to the queue, the most urgent
    class first, and its connection stays muted. At most one request per connection
    waits, and other connections are still read. The plane's admission, a separate
    setting, decides whether an urgent request may exceed the queue's bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from planes import PlaneCore, Task
from planes.dispatcher import Dispatcher

Offer: TypeAlias = Callable[[Task], bool]


class RequestChannel(Protocol):
    """The entry of a listener's processors to a request queue."""

    plane: PlaneCore

    @property
    def offer(self) -> Offer:
        """Function that takes a task; False: wait in ``send_request``."""

    async def send_request(self, task: Task) -> None:
        """Wait until the request is taken."""

    @property
    def refused(self) -> int:
        """Return the number of received requests that wait for room."""


class BlindRequestChannel:
    """Channel whose full queue blocks the processor."""

    def __init__(self, plane: PlaneCore, dispatcher: Dispatcher) -> None:
        self.plane = plane
        self._dispatcher = dispatcher
        self._blocked = 0
        # Bound here to save a call per request.
        self.offer: Offer = partial(dispatcher.offer, plane)

    async def send_request(self, task: Task) -> None:
        """Wait until there is room."""
        self._blocked += 1
        try:
            await self._dispatcher.put(self.plane, task)
        finally:
            self._blocked -= 1

    @property
    def refused(self) -> int:
        """Return the number of blocked processors."""
        return self._blocked


class ClassAwareRequestChannel:
    """Channel whose refused requests wait next to the queue, by class."""

    def __init__(self, plane: PlaneCore, dispatcher: Dispatcher) -> None:
        self.plane = plane
        self._dispatcher = dispatcher
        # Heap of (level, number, task), the most urgent first.
        self._refused: list[tuple[int, int, Task]] = []
        dispatcher.on_room(plane, self._offer_again)

    def offer(self, task: Task) -> bool:
        """Take a request, into the queue or next to it. Cost: O(log refused)."""
        if not self._dispatcher.offer(self.plane, task):
            heapq.heappush(self._refused, (task.level, task.number, task))
        return True

    async def send_request(self, task: Task) -> None:
        """Never called, because ``offer`` never refuses."""
        raise AssertionError("a class-aware reader does not block")

    @property
    def refused(self) -> int:
        """Return the number of requests next to the queue."""
        return len(self._refused)

    def _offer_again(self) -> None:
        """Fill the free room, the most urgent class first.

        The first refusal ends the loop. After it, admission could only admit a favoured
        class of a lesser level, which waits for its turn.
        """
        while self._refused:
            _, _, task = self._refused[0]
            if not self._dispatcher.offer(self.plane, task):
                return
            heapq.heappop(self._refused)
