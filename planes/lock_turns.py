"""A task's turn at the traps of locks: kept, given up, or lent.

The dispatcher's part for ``planes.lock``. A task that finds its lock held gives its
turn back to its scheduler (or sleeps, if the lock does not inherit). When it is picked
again, slices of the lock's holder run in its turn. The holder stays among its own
scheduler's jobs meanwhile, so it may go on in either turn.
"""

from __future__ import annotations

from planes.cpu import Cpu
from planes.lock import (
    Acquire,
    LockError,
    LockTrap,
    Release,
    TaskLock,
    expect_none_held,
    lend,
)
from planes.slices import PREEMPT, CancelStatusGuard
from planes.stepping import Step, Stepper
from planes.task import BrokenRule, Task


class LockTurns:
    """Locks of the tasks that share one ``cpu``."""

    def __init__(self, cpu: Cpu, stepper: Stepper) -> None:
        self._cpu = cpu
        self._stepper = stepper

    def obey(self, task: Task, trap: LockTrap, now_ns: int) -> bool:
        """Carry out a task's trap in its own turn; return whether it has to wait.

        :raises LockError: if a rule of locks forbids it.
        """
        lock = trap.lock
        if type(trap) is Release:
            self._release(task, lock, now_ns)
            return False
        if lock.ask(task):
            return False
        if lock.inherits:
            task.plane.step_back(task, now_ns)
            self._cpu.wake(task.plane)
        else:
            lock.sleepers.append(task)
            task.plane.sleep(task, now_ns)
        return True

    def slice(
        self, owner: Task, runner: Task, guard: CancelStatusGuard, now_ns: int
    ) -> int:
        """Run a slice of ``runner`` in the turn of ``owner``; return the time."""
        assert runner.coroutine is not None
        step: Step = runner.coroutine.send
        argument: object = None
        while True:
            before_ns = owner.attained_ns
            trap = self._stepper.step(owner, runner, step, argument, now_ns)
            now_ns = self._stepper.ended_ns
            lend(owner, runner, owner.attained_ns - before_ns)
            breach: BrokenRule | None
            try:
                self._obey_lent(runner, trap, now_ns)
                breach = guard.breach(runner)
            except LockError as error:
                breach = error
            if breach is None:
                return now_ns
            step, argument = runner.coroutine.throw, breach

    def _obey_lent(self, runner: Task, trap: object, now_ns: int) -> None:
        """Carry out a holder's trap in a lent turn; a wait keeps its own turn."""
        if type(trap) is Acquire:
            trap.lock.ask(runner)
        elif type(trap) is Release:
            self._release(runner, trap.lock, now_ns)
        elif trap is not PREEMPT:
            expect_none_held(runner)

    def _release(self, task: Task, lock: TaskLock, now_ns: int) -> None:
        heir = lock.give_back(task)
        if heir is not None:
            heir.plane.resume(heir, now_ns)
            self._cpu.wake(heir.plane)
