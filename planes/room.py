"""Waiting requests in front of a full queue, and listeners for free room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from planes.clock import NowNs
from planes.plane import PlaneCore
from planes.slices import rescheduled
from planes.task import Task


class Room:
    """The room in the queues of ``planes``, and the tasks that wait for it.

    Waiting tasks are admitted in order of arrival, by the pick that makes room; no
    later task can enter before them.
    """

    def __init__(self, planes: Sequence[PlaneCore], now_ns: NowNs) -> None:
        self._now_ns = now_ns
        self._waiting: dict[PlaneCore, dict[Task, trio.lowlevel.Task]] = {
            plane: {} for plane in planes
        }
        self._listeners: dict[PlaneCore, list[Callable[[], None]]] = {
            plane: [] for plane in planes
        }
        # Planes that have refused a task: their listeners wait for room.
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
        """Admit waiting tasks, and call the listeners if room is left."""
        waiting = self._waiting[plane]
        for task in list(waiting):
            if plane.offer(task, self._now_ns()):
                trio.lowlevel.reschedule(waiting.pop(task))
        if not waiting:
            self.wanted.discard(plane)
        for listener in self._listeners[plane]:
            listener()
