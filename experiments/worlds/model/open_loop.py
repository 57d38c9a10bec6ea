"""Tasks that arrive at their instants, independent of earlier tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments.worlds.model.engine import Engine
from experiments.worlds.model.task import ModelTask
from planes.task import TaskPlane


class OpenLoop:
    """Offers each task to its ``plane`` when it is due.

    ``done`` is called with every completed task. A full queue is an error, because
    ``readers``, which would handle it, are missing here.
    """

    waits_for_room: bool = False

    def __init__(
        self,
        engine: Engine,
        tasks: Iterable[ModelTask],
        done: Callable[[ModelTask], None],
    ) -> None:
        self.tasks = tasks
        self.done = done
        self.arrive = engine.offer

    def room(self, plane: TaskPlane, now_ns: int) -> None:
        """Do nothing: no task waits outside."""
