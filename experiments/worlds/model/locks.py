"""Tasks of the model that share a lock: the runner of each turn, and its end.

A locking task takes the lock when it starts and holds it for the first part of its
demand, its *section*. If the lock is held, the task behaves like the dispatcher's tasks
(``planes.lock``): with inheritance the holder runs in its turn, otherwise it sleeps
until it receives the lock. If seats are separate servers, the holder may be running on
another one; there is then nothing to lend, and the waiter sleeps until that run ends.

The work in a turn is billed to its owner. The owner's demand therefore grows by the
lent time and the runner's shrinks: demand minus attained service is the remaining work.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.worlds.model.task import ModelTask
from planes.lock import TaskLock, lend


class Locks:
    """The locks of a run; ``wake`` receives tasks that wait for a server again."""

    def __init__(self, wake: Callable[[ModelTask, int], None]) -> None:
        self._wake = wake
        self._running: dict[ModelTask, list[ModelTask]] = {}

    def begin(self, task: ModelTask, now_ns: int) -> int | None:
        """Return the largest length of a task's turn; None if the task sleeps now."""
        lock = task.lock
        assert lock is not None
        runner = self._runner(task, lock)
        if runner is None:
            lock.sleepers.append(task)
        elif runner in self._running:
            self._running[runner].append(task)
        else:
            self._running[runner] = []
            task.runner, task.turn_began_ns = runner, task.attained_ns
            return runner.section_ns
        task.plane.sleep(task, now_ns)
        return None

    def _runner(self, task: ModelTask, lock: TaskLock) -> ModelTask | None:
        """Return the runner in a task's turn; None if it waits for a handover."""
        if lock.holder is task:
            return task
        waits = task.locking is not None and task.locking.waits_for is lock
        if not waits and lock.take_or_wait(task):
            return task
        runner = lock.runner(task) if lock.inherits else None
        assert runner is None or isinstance(runner, ModelTask)
        return runner

    def cut(self, task: ModelTask, now_ns: int) -> None:
        """Settle a turn at its end, by preemption or at the end of the section."""
        runner = task.runner
        assert runner is not None
        used_ns = task.attained_ns - task.turn_began_ns
        runner.section_ns -= used_ns
        if runner is not task:
            lend(task, runner, used_ns)
            task.demand_ns += used_ns
            runner.demand_ns -= used_ns
        task.runner = None
        for follower in self._running.pop(runner):
            self._resume(follower, now_ns)
        if not runner.section_ns:
            assert runner.lock is not None
            heir = runner.lock.give_back(runner)
            runner.lock = None
            if heir is not None:
                assert isinstance(heir, ModelTask)
                self._resume(heir, now_ns)

    def _resume(self, task: ModelTask, now_ns: int) -> None:
        task.plane.resume(task, now_ns)
        self._wake(task, now_ns)
