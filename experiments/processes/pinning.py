"""The CPU of each process of a run, and its priority."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.processes.child import Binding, favour

_NICE = -15
# Nice value of other processes on the generator's CPU: a late request would not be the
# offered one.
_BEHIND = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinning:
    """The CPUs of a run and the priority of its processes.

    ``broker`` and ``generator`` are None if both share one CPU; ``allowed`` are all
    that this process may use.
    """

    broker: int | None
    generator: int | None
    allowed: tuple[int, ...]
    nice: int

    @classmethod
    def here(cls) -> Pinning:
        """Choose from the CPUs that this process may use, on two cores if possible."""
        nice = _raised_priority()
        allowed = tuple(sorted(os.sched_getaffinity(0)))
        broker, *others = allowed
        if not others:
            return cls(broker=None, generator=None, allowed=allowed, nice=nice)
        core = _siblings(broker)
        apart = [cpu for cpu in others if _siblings(cpu) != core]
        generator = (apart or others)[0]
        return cls(broker=broker, generator=generator, allowed=allowed, nice=nice)

    def binding(self, cpu: int | None) -> Binding:
        """Return the binding of a child to a CPU; with None to all allowed ones.

        This does not depend on the CPUs that this process has restricted itself to.
        """
        cpus = self.allowed if cpu is None else (cpu,)
        return Binding(parent=os.getpid(), cpus=cpus, nice=self.nice)

    def behind_generator(self) -> Binding:
        """Return the binding of a child to the generator's CPU, at lower priority."""
        bound = self.binding(self.generator)
        return replace(bound, nice=self.nice + _BEHIND)

    @contextlib.contextmanager
    def as_generator(self) -> Iterator[None]:
        """Run this process on the CPU and at the priority of a generator.

        Garbage collection is off as well: a collection of an experiment's objects took
        0.1 s, in which nothing was sent.
        """
        allowed, nice = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
        gc.collect()
        gc.freeze()
        gc.disable()
        if self.generator is not None:
            os.sched_setaffinity(0, {self.generator})
        favour(self.nice)
        try:
            yield
        finally:
            gc.enable()
            gc.unfreeze()
            favour(nice)
            os.sched_setaffinity(0, allowed)

    @contextlib.contextmanager
    def off_broker_cpu(self) -> Iterator[None]:
        """Keep this process, with all its threads, off the brokers' CPU.

        Its priority is below a generator's, which is scheduled first on that CPU.
        """
        allowed = os.sched_getaffinity(0)
        if self.generator is not None:
            bind_threads(os.getpid(), {self.generator})
        try:
            yield
        finally:
            bind_threads(os.getpid(), allowed)

    def environment(self) -> dict[str, Any]:
        """Return the processes' CPUs, for the manifest."""
        pinned = self.broker is not None
        cpus = {"broker": self.broker, "generator": self.generator} if pinned else None
        return {"pinned": pinned, "cpus": cpus, "nice": self.nice}


def bind_threads(pid: int, cpus: Collection[int]) -> None:
    """Bind every thread of a process to ``cpus``; threads may end meanwhile."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cpus)


def _siblings(cpu: int) -> str:
    """Return the CPUs that share a core with this one, as the kernel lists them."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    siblings = topology / "thread_siblings_list"
    return siblings.read_text(encoding="utf-8") if siblings.exists() else str(cpu)


def _raised_priority() -> int:
    """Return the highest priority that children can have, as a nice value."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    except PermissionError:
        return usual
    os.setpriority(os.PRIO_PROCESS, 0, usual)
    return _NICE
