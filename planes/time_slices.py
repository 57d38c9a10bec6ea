"""Seats that share one CPU by time slices, as a kernel shares it among threads.

A policy that never preempts decides the order in which requests get seats. In Apache
Kafka a seat is a thread (``num.io.threads``), and the kernel divides the CPU among the
threads that have a request. A small request therefore proceeds while a large request is
served. Here a task that has used a time slice T is *set aside* at a preemption point.
It keeps its seat, stays in service for its policy, and continues at its next turn.

Model: processor sharing among c busy seats in quanta of T. With k tasks aside, the
first of them continues when the other c - k seats have used T (c - k) / k, or are idle.
Under a backlog each seat therefore receives a share 1/c of the CPU.

Bounds, for slices of at most s between two preemption points:

- A task that finds a free seat and is first in its queue waits T + s at most.
- A task aside waits for c (T + s) of the plane's CPU at most.
- A task that needs at most T is never set aside. If all tasks need at most T, or if
  there is one seat, requests are served to completion, as without slices.

A policy that preempts divides the CPU itself, and has no slices.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from planes.task import Task

_NEVER_NS: Final = 1 << 62


class TimeSlices:
    """Queue of a plane's tasks aside, in the order of their turns. Cost: O(1) per call.

    ``slice_ns`` is T; if None, no task is ever set aside.
    """

    __slots__ = ("_due_ns", "_slice_ns", "aside")

    def __init__(self, slice_ns: int | None = None) -> None:
        assert slice_ns is None or slice_ns >= 1, slice_ns
        self._slice_ns = _NEVER_NS if slice_ns is None else slice_ns
        self.aside: deque[Task] = deque()
        # The CPU attained by the plane at which the first task aside continues.
        self._due_ns = 0

    def is_over(self, task: Task) -> bool:
        """Return whether a task has used its slice."""
        return task.attained_ns - task.slice_began_ns >= self._slice_ns

    def set_aside(self, task: Task, seats: int, attained_ns: int) -> None:
        """Queue a seated task for its next slice, in a plane of ``seats`` seats."""
        task.slice_began_ns = task.attained_ns
        self.aside.append(task)
        count = len(self.aside)
        others = max(0, seats - count)
        self._due_ns = attained_ns + self._slice_ns * others // count

    def is_due(self, attained_ns: int) -> bool:
        """Return whether the other seats have had their share of CPU."""
        return attained_ns >= self._due_ns
