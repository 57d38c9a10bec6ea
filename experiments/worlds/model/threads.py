"""Planes of handler threads as in Kafka, and a kernel that shares CPUs among them.

A seat is a thread. A thread takes a request from its plane's queue and serves it to the
end. No policy can take the request from the thread, but the kernel can take the CPU:
anywhere, at the end of a *slice*, or because another thread wakes. A request of the
control plane therefore need not wait for one of the data plane, although threads never
yield.

The rule is that of Linux' CFS for threads of equal weight, over one queue for all CPUs.
The thread that has received least runs next. A waking thread is placed one slice behind
the least of the others. It therefore precedes them, but cannot save up more than that
while it sleeps. Without ``wakes`` (as in Linux' EEVDF, which completes a slice) it is
placed level with them, and waits for the end of a slice.

A request between its first turn and its end is suspended while its thread has no CPU.
Waking costs only the context switch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from experiments.worlds.model.site import NEVER_NS, Overheads
from experiments.worlds.model.task import ModelTask
from planes import PlaneCore
from planes.task import TaskPlane


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Sharing of CPUs: their number, the length of a turn, preemption at wake-up."""

    cpus: int
    slice_ns: int
    wakes: bool = True


class Events(Protocol):
    """A site's interface to its run, the engine."""

    now_ns: int
    refusal_ns: int

    def at(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Call a function at an instant of the run."""

    def took(self, task: ModelTask, now_ns: int) -> None:
        """Handle a task that may have left its queue."""

    def served(self, task: ModelTask) -> None:
        """Handle a completed task."""


class Thread:
    """A handler thread; without a ``task`` it sleeps, or picks one.

    ``received_ns`` is the kernel's count of its service, up to ``charged_ns``. Its turn
    ends at ``turn_ends_ns`` if another thread has received less. ``serial`` is the
    number of its only valid event, due at ``due_ns``.
    """

    __slots__ = (
        *("charged_ns", "cpu", "due_ns", "plane", "received_ns", "serial"),
        *("task", "turn_ends_ns"),
    )

    def __init__(self, plane: PlaneCore) -> None:
        self.plane = plane
        self.task: ModelTask | None = None
        self.cpu = -1
        self.received_ns = self.charged_ns = self.turn_ends_ns = self.serial = 0
        self.due_ns = NEVER_NS

    def count_ns(self, now_ns: int) -> int:
        """Return a running thread's service by now."""
        return self.received_ns + max(0, now_ns - self.charged_ns)


class Threads:
    """The threads of all planes, on the CPUs that they share: a site of the engine.

    Cost: O(threads) an event.
    """

    # For the engine, a site without free servers whose tasks are never preempted.
    free: Final = 0
    checks_preemption: Final = False
    outranked_at_ns: Final = None

    def __init__(
        self,
        planes: Iterable[PlaneCore],
        kernel: Kernel,
        overheads: Overheads,
    ) -> None:
        self.planes = tuple(planes)
        self.lost_ns = 0
        self._kernel = kernel
        self._overheads = overheads
        self._events: Events
        self._idle: dict[TaskPlane, deque[Thread]] = {
            plane: deque(Thread(plane) for _ in range(plane.seats))
            for plane in self.planes
        }
        self._ready: list[Thread] = []
        self._running: list[Thread] = []
        # The CPUs without a thread, and the last thread of each CPU.
        self._free = list(range(kernel.cpus))
        self._last: list[Thread | None] = [None] * kernel.cpus
        # The least service of threads with a request; never decreases.
        self._base_ns = 0
        self._alarm_ns = dict.fromkeys(self.planes, NEVER_NS)

    def begin(self, events: Events) -> None:
        """Join a run."""
        self._events = events

    def wake(self, plane: TaskPlane) -> None:
        """Wake idle threads of a plane for its waiting requests."""
        now_ns, idle = self._events.now_ns, self._idle[plane]
        while idle:
            thread = idle.popleft()
            if not self._take(thread, now_ns):
                idle.appendleft(thread)
                return
            self._wake_up(thread, now_ns)

    # ---- threads and requests ---------------------------------------------------

    def _take(self, thread: Thread, now_ns: int) -> bool:
        """Give a thread the next request of its queue; return whether there was one."""
        plane = thread.plane
        task = plane.pick(now_ns)
        if task is None:
            self._set_alarm(plane, now_ns)
            return False
        assert isinstance(task, ModelTask)
        if task.refusal is not None:
            task.demand_ns = self._events.refusal_ns
        thread.task = task
        self._events.took(task, now_ns)
        return True

    def _end(self, thread: Thread, now_ns: int) -> None:
        """Complete a request whose demand is served; take the next one, or sleep."""
        task = thread.task
        assert task is not None
        used_ns = now_ns - thread.charged_ns
        thread.received_ns += used_ns
        thread.charged_ns = now_ns
        thread.task = None
        task.local_done_ns = task.remote_done_ns = now_ns
        thread.plane.finish(task, used_ns, now_ns)
        self._events.served(task)
        if self._take(thread, now_ns):
            if thread.turn_ends_ns <= now_ns:
                self._turn_over(thread, now_ns)
            else:
                self._plan(thread)
            return
        self._leave_cpu(thread)
        self._idle[thread.plane].append(thread)
        self._go_on(thread.cpu, now_ns)

    def _set_alarm(self, plane: PlaneCore, now_ns: int) -> None:
        """Schedule an event for the time at which a waiting request becomes ready."""
        event_ns = plane.next_event_ns(now_ns)
        if event_ns is not None and event_ns < self._alarm_ns[plane]:
            self._alarm_ns[plane] = event_ns
            self._events.at(event_ns, partial(self._alarmed, plane))

    def _alarmed(self, plane: PlaneCore, now_ns: int) -> None:
        self._alarm_ns[plane] = NEVER_NS
        self.wake(plane)

    # ---- the kernel -------------------------------------------------------------

    def _wake_up(self, thread: Thread, now_ns: int) -> None:
        """Place a waking thread among the others, and run it if it is entitled."""
        counts_ns = [it.count_ns(now_ns) for it in self._running]
        counts_ns += [it.received_ns for it in self._ready]
        self._base_ns = max(self._base_ns, min(counts_ns, default=0))
        credit_ns = self._kernel.slice_ns if self._kernel.wakes else 0
        thread.received_ns = max(thread.received_ns, self._base_ns - credit_ns)
        assert thread.task is not None
        thread.task.suspended_since_ns = now_ns
        if self._free:
            self._run(thread, self._cpu_for(thread), now_ns)
            return
        self._ready.append(thread)
        if self._kernel.wakes:
            most = max(self._running, key=lambda it: it.count_ns(now_ns))
            if most.count_ns(now_ns) > thread.received_ns:
                # Immediately, or at the end of its switch or of its search.
                most.turn_ends_ns = max(now_ns, most.charged_ns)
                if most.turn_ends_ns == now_ns and most.task is not None:
                    self._turn_over(most, now_ns)
                    return
        for each in self._running:
            if each.due_ns > each.turn_ends_ns and each.task is not None:
                self._plan(each)

    def _turn_over(self, thread: Thread, now_ns: int) -> None:
        """Give the CPU to the thread that has received least."""
        self._bill(thread, now_ns)
        least = min(self._ready, key=_received, default=None)
        if least is None or least.received_ns > thread.received_ns:
            thread.turn_ends_ns = now_ns + self._kernel.slice_ns
            self._plan(thread)
            return
        task = thread.task
        assert task is not None
        task.preemptions += 1
        task.suspended_since_ns = now_ns
        self._leave_cpu(thread)
        self._ready.append(thread)
        self._go_on(thread.cpu, now_ns, self._overheads.preemption_ns)

    def _go_on(self, cpu: int, now_ns: int, cost_ns: int = 0) -> None:
        """Give a free CPU to the thread that has received least."""
        least = min(self._ready, key=_received, default=None)
        if least is None:
            return
        self._ready.remove(least)
        self._run(least, cpu, now_ns, cost_ns)

    def _run(self, thread: Thread, cpu: int, now_ns: int, cost_ns: int = 0) -> None:
        """Put a thread on a CPU."""
        task = thread.task
        assert task is not None
        task.suspended_ns += now_ns - task.suspended_since_ns
        task.suspended_since_ns = -1
        if self._last[cpu] is not thread:
            cost_ns += self._overheads.switch_ns
            self._last[cpu] = thread
        self.lost_ns += cost_ns
        self._free.remove(cpu)
        self._running.append(thread)
        thread.cpu = cpu
        thread.charged_ns = now_ns + cost_ns
        thread.turn_ends_ns = thread.charged_ns + self._kernel.slice_ns
        self._plan(thread)

    def _leave_cpu(self, thread: Thread) -> None:
        self._running.remove(thread)
        self._free.append(thread.cpu)
        thread.serial += 1

    def _cpu_for(self, thread: Thread) -> int:
        """Return a free CPU, if possible the thread's last one."""
        return next(
            (it for it in self._free if self._last[it] is thread), self._free[0]
        )

    def _bill(self, thread: Thread, now_ns: int) -> None:
        task = thread.task
        assert task is not None
        used_ns = now_ns - thread.charged_ns
        thread.received_ns += used_ns
        thread.charged_ns = now_ns
        thread.plane.charge(task, used_ns, now_ns)

    def _plan(self, thread: Thread) -> None:
        """Schedule the end of the request, or of the turn if others wait."""
        task = thread.task
        assert task is not None
        due_ns = thread.charged_ns + task.demand_ns - task.attained_ns
        if self._ready:
            due_ns = min(due_ns, max(thread.charged_ns, thread.turn_ends_ns))
        thread.due_ns = due_ns
        thread.serial += 1
        self._events.at(due_ns, partial(self._due, thread, thread.serial))

    def _due(self, thread: Thread, serial: int, now_ns: int) -> None:
        if thread.serial != serial:
            return
        task = thread.task
        assert task is not None
        if now_ns - thread.charged_ns == task.demand_ns - task.attained_ns:
            self._end(thread, now_ns)
        else:
            self._turn_over(thread, now_ns)


def _received(thread: Thread) -> int:
    return thread.received_ns
