"""Internal tasks of a plane: a broker's own work, under the plane's policy.

Internal work (loading groups, ending sessions) competes with requests for the CPU. It
is therefore split into small pieces, and each piece is a task like a request: it has a
class, a level, a flow and an expected cost, waits in the scheduler, and is billed.
There are three differences:

- An internal task enters without admission and regardless of the queue's bound, because
  no client could receive a rejection. The number of tasks is bounded instead: each kind
  of work submits its next piece when the last one is done.
- Sockets are polled between two pieces.
- If other tasks have used the CPU or wait for it, a piece is followed by a pause of its
  own length.

With the last two rules, every policy delays a request by at most one piece, and gives
other tasks at least half of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from planes.dispatcher import Dispatcher
from planes.plane import PlaneCore
from planes.task import Task

Work = Callable[[], object]
# Receives the length of the pause before the next piece.
Done = Callable[[int], None]

_UNKNOWN_COST_NS: Final = 500_000
# The expected cost is a moving average over about eight pieces.
_AVERAGE_SHIFT: Final = 3
# Other tasks count as active if they used more than this part of the piece's CPU.
_LITTLE: Final = 8


class Submit(Protocol):
    """Do a piece of work as a task, then call ``done``.

    ``work`` takes one slice and handles its own faults. ``kind`` is its flow within the
    class.
    """

    def __call__(self, request_class: str, kind: str, work: Work, done: Done) -> None:
        """Submit a piece of work."""


class InternalTasks:
    """Submission of internal tasks to one plane.

    ``numbers`` are shared by all tasks of the plane, in order of arrival. ``levels``
    contains the priority of each class.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        plane: PlaneCore,
        *,
        numbers: Iterator[int],
        levels: Mapping[str, int],
    ) -> None:
        self._dispatcher = dispatcher
        self._plane = plane
        self._numbers = numbers
        self._levels = levels
        self._cost_ns: dict[str, int] = {}
        # Number of submitted tasks that are not done.
        self.pending = 0
        # CPU of all tasks when the last internal task was done.
        self._attained_ns = 0

    def submit(self, request_class: str, kind: str, work: Work, done: Done) -> None:
        """Submit a piece of work; call ``done`` after the poll at its end."""
        flow = f"{request_class}/{kind}"
        self.pending += 1

        def ended(task: Task, _: object) -> None:
            self.pending -= 1
            known_ns = self._cost_ns.get(flow, task.service_ns)
            self._cost_ns[flow] = known_ns + (
                task.service_ns - known_ns >> _AVERAGE_SHIFT
            )
            self._dispatcher.after_poll(lambda: done(self._pause_ns(task)))

        task = Task(
            number=next(self._numbers),
            request_class=request_class,
            level=self._levels[request_class],
            flow=flow,
            cost_ns=self._cost_ns.get(flow, _UNKNOWN_COST_NS),
            received_ns=self._dispatcher.now_ns(),
            serve=work,
            done=ended,
        )
        self._dispatcher.enter(self._plane, task)

    def _pause_ns(self, task: Task) -> int:
        """Return the pause after a piece; 0 if no other task uses the CPU."""
        planes = self._dispatcher.planes
        attained_ns = sum(plane.attained_ns for plane in planes)
        others_ns = attained_ns - self._attained_ns - task.service_ns
        self._attained_ns = attained_ns
        wait = any(len(plane.scheduler) for plane in planes)
        if wait or others_ns > task.service_ns // _LITTLE:
            return task.service_ns
        return 0


def submit_here(request_class: str, kind: str, work: Work, done: Done) -> None:
    """Do a piece of work at once, for a broker without planes."""
    work()
    done(0)
