"""Who waits in front of a full queue, and who is told when there is room again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from planes.clock import NowNs
from planes.plane import PlaneCore
from planes.slices import rescheduled
from planes.task import Task


class Room:
    """The room in the queues of ``planes``, and those who want it.

    Those who wait are let in, in the order they came, by the pick that makes room;
    nobody who comes later can slip in before them.
    """

    def __init__(self, planes: Sequence[PlaneCore], now_ns: NowNs) -> None:
        self._now_ns = now_ns
        self._waiting: dict[PlaneCore, dict[Task, trio.lowlevel.Task]] = {
            plane: {} for plane in planes
        }
        self._listeners: dict[PlaneCore, list[Callable[[], None]]] = {
            plane: [] for plane in planes
        }
        # Planes that have refused a task: somebody wants to hear of their room.
        self.wanted: set[PlaneCore] = set()

    def listen(self, plane: PlaneCore, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever there is room again after a refusal."""
        self._listeners[plane].append(listener)

    async def wait(self, plane: PlaneCore, task: Task) -> None:
        """Wait until a task that was refused has been let in."""
        waiting = self._waiting[plane]
        waiting[task] = trio.lowlevel.current_task()
        await rescheduled(lambda: waiting.pop(task))

    def made(self, plane: PlaneCore) -> None:
        """Let in those who wait for room, and tell the listeners if some is left."""
        waiting = self._waiting[plane]
        for task in list(waiting):
            if plane.offer(task, self._now_ns()):
                trio.lowlevel.reschedule(waiting.pop(task))
        if not waiting:
            self.wanted.discard(plane)
        for listener in self._listeners[plane]:
            listener()
