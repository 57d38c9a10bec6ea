"""Arrivals without connections: tasks enter their planes when they are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from experiments.worlds.model_engine import NEVER_NS, Engine
from experiments.worlds.model_task import ModelTask
from planes import PlaneCore


class OpenLoop:
    """Arrivals that wait for nothing: each task enters its plane when it is due.

    ``done`` is called with every task served. A full queue is an error: what happens
    then is decided by readers (``model_readers``), and there are none here.
    """

    hears_room: bool = False

    def __init__(
        self,
        engine: Engine,
        tasks: Iterator[tuple[PlaneCore, ModelTask]],
        done: Callable[[ModelTask], None],
    ) -> None:
        self._engine = engine
        self._tasks = tasks
        self._done = done
        self._next = next(tasks, None)
        self.due_ns = self._next[1].received_ns if self._next else NEVER_NS

    def arrive(self, now_ns: int) -> None:
        """Let the next task in."""
        assert self._next is not None
        plane, task = self._next
        self._next = following = next(self._tasks, None)
        self.due_ns = following[1].received_ns if following else NEVER_NS
        admitted = self._engine.offer(plane, task, now_ns)
        assert admitted, plane

    def done(self, task: ModelTask, now_ns: int) -> None:
        """Hand on a task that has been served."""
        self._done(task)

    def room(self, plane: PlaneCore, now_ns: int) -> None:
        """Ignore it: nobody waits outside."""
