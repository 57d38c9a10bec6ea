"""The way from the processors into a plane's request queue, and its full state.

Follows Kafka's ``RequestChannel``, whose ``sendRequest`` blocks the processor on a full
queue. That is half of the problem of KIP-291: a processor that blocks on one
connection's PRODUCE reads no other connection either, so a control request is not even
seen. The *reader* decides:

`BlindRequestChannel`
    is Kafka's: the processor waits in ``send_request``, with all of its connections.

`ClassAwareRequestChannel`
    never blocks a processor. A refused request waits beside the queue, the most urgent
    class first, and its connection stays muted; so one request per connection waits at
    most, and other connections are still read. Whether an urgent request may exceed the
    queue's bound is the plane's admission, a setting of its own.
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
        """Takes a task; False if the processor has to wait in ``send_request``."""

    async def send_request(self, task: Task) -> None:
        """Wait until the request is taken."""

    @property
    def refused(self) -> int:
        """Count the requests that were received but found no room."""


class BlindRequestChannel:
    """A full queue blocks the processor that found it full."""

    def __init__(self, plane: PlaneCore, dispatcher: Dispatcher) -> None:
        self.plane = plane
        self._dispatcher = dispatcher
        self._blocked = 0
        # Takes a request if there is room. Every request comes this way.
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
        """Count the processors that are blocked."""
        return self._blocked


class ClassAwareRequestChannel:
    """A full queue blocks no processor: refused requests wait next to it, by class."""

    def __init__(self, plane: PlaneCore, dispatcher: Dispatcher) -> None:
        self.plane = plane
        self._dispatcher = dispatcher
        # (level, number, task): a heap, the most urgent first.
        self._refused: list[tuple[int, int, Task]] = []
        dispatcher.on_room(plane, self._offer_again)

    def offer(self, task: Task) -> bool:
        """Take a request, into the queue or next to it. Cost: O(log refused)."""
        if not self._dispatcher.offer(self.plane, task):
            heapq.heappush(self._refused, (task.level, task.number, task))
        return True

    async def send_request(self, task: Task) -> None:
        """Never needed, because ``offer`` never refuses."""
        raise AssertionError("a class-aware reader does not block")

    @property
    def refused(self) -> int:
        """Return the number of requests next to the queue."""
        return len(self._refused)

    def _offer_again(self) -> None:
        """Fill the room that there is now, the most urgent class first.

        The first that is refused ends it: behind it admission could only let in a
        favoured class of a lesser level, and that one waits its turn.
        """
        while self._refused:
            _, _, task = self._refused[0]
            if not self._dispatcher.offer(self.plane, task):
                return
            heapq.heappop(self._refused)
