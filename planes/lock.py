"""A lock with a known holder, which handlers may hold across preemption points.

Kafka's handlers share locks (``replicaStateChangeLock``, ``leaderIsrUpdateLock``, the
lock of a group). If a low-class request is preempted while it holds a lock, the most
urgent request waits for all requests of the classes in between: unbounded priority
inversion. The remedy is priority inheritance (Sha, Rajkumar, Lehoczky 1990): while a
task waits, the holder runs with the rank of the waiter, also through chains of locks.

A policy here may rank by level, tag, deadline, size or service, so no single number can
be inherited. Instead the waiter stays among its scheduler's waiting jobs. When it is
picked, its *turn* is given to the holder: time-slice donation (Haertig, Hohmuth et al.,
"helping"; proxy execution in Linux). Under any policy and across planes, the holder
therefore runs exactly when the waiter would have run. Its CPU is billed to the waiter's
turn. The holder returns to its own rank when it releases the lock. Policies need no
method for this. Without ``inherits`` a waiter sleeps until the lock is passed to it, in
FIFO order.

A holder may be preempted, but waits neither in purgatory nor for a device. A lent turn
can therefore always be used, and a critical section is bounded by its own CPU. A cycle
of waiters is a programming error; the request that would close it raises `LockError`.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Generator
from typing import Final, TypeAlias

from planes.task import AwaitedLock, BrokenRule, Locking, Task


class LockError(BrokenRule):
    """Cycle of waiters, release by another task, or wait in purgatory with a lock."""


class Acquire:
    """The trap of a handler that requests a lock."""

    __slots__ = ("lock",)

    def __init__(self, lock: TaskLock) -> None:
        self.lock = lock


class Release:
    """The trap of a handler that releases a lock; a preemption point as well."""

    __slots__ = ("lock",)

    def __init__(self, lock: TaskLock) -> None:
        self.lock = lock


LockTrap: TypeAlias = Acquire | Release
LOCK_TRAPS: Final = frozenset({Acquire, Release})


class TaskLock:
    """Lock held by one task at a time: ``async with lock:`` in a handler.

    A test that drives a handler directly may ignore the traps; then no task holds a
    lock.
    """

    __slots__ = ("_acquire", "_release", "holder", "inherits", "name", "sleepers")

    def __init__(self, name: str, *, inherits: bool = True) -> None:
        self.name = name
        self.inherits = inherits
        self.holder: Task | None = None
        # Waiters if ``inherits`` is false, in FIFO order.
        self.sleepers: deque[Task] = deque()
        self._acquire: Final = Acquire(self)
        self._release: Final = Release(self)

    def __repr__(self) -> str:
        return f"<lock {self.name}: {self.holder or 'free'}>"

    async def __aenter__(self) -> None:
        await _trap(self._acquire)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not GeneratorExit:
            await _trap(self._release)
        # Otherwise the dispatcher has ended, and no task will run any more.

    def take_or_wait(self, task: Task) -> bool:
        """Take the lock for ``task`` and return True, or record it as a waiter.

        :raises LockError: if waiting would close a cycle.
        """
        locking = task.locking
        if locking is None:
            locking = task.locking = Locking()
        if self.holder is None:
            self.grant(task)
            return True
        other: Task = self.holder
        while other is not task:
            awaited = locking_of(other).waits_for
            if awaited is None:
                locking.waits_for = self
                return False
            assert awaited.holder is not None, awaited
            other = awaited.holder
        raise LockError(f"{task} asks for {self}, whose holder waits for it")

    def give_back(self, task: Task) -> Task | None:
        """Free the lock; return the sleeper that now holds it and can run again.

        :raises LockError: if ``task`` does not hold the lock.
        """
        if self.holder is not task:
            raise LockError(f"{task} gives back {self}")
        locking_of(task).held -= 1
        self.holder = None
        if not self.sleepers:
            return None
        heir = self.sleepers.popleft()
        self.grant(heir)
        return heir

    def grant(self, task: Task) -> None:
        """Give the free lock to ``task``, which no longer waits for it."""
        self.holder = task
        locking = locking_of(task)
        locking.held += 1
        locking.waits_for = None

    def runner(self, task: Task) -> Task:
        """Return the task that runs in the turn of ``task``, which waits for this lock.

        That task is the end of the chain of holders. A lock of the chain that has
        become free is granted to its waiter. Cost: O(length of the chain).
        """
        lock: AwaitedLock | None = self
        while lock is not None:
            if lock.holder is None:
                lock.grant(task)
                return task
            task = lock.holder
            lock = locking_of(task).waits_for
        return task


def locking_of(task: Task) -> Locking:
    """Return the lock state of a task that has requested a lock."""
    assert task.locking is not None, task
    return task.locking


def expect_none_held(task: Task) -> None:
    """Check that a task which is about to wait holds no lock.

    :raises LockError: if it holds one.
    """
    if task.locking is not None and task.locking.held:
        raise LockError(f"{task} waits elsewhere while it holds a lock")


def lend(owner: Task, runner: Task, used_ns: int) -> None:
    """Record CPU that ``runner`` has used in a turn of ``owner``."""
    locking_of(owner).lent_ns += used_ns
    locking_of(runner).lent_ns -= used_ns


@types.coroutine
def _trap(trap: Acquire | Release) -> Generator[Acquire | Release, None, None]:
    yield trap
