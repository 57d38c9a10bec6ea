"""A request in the model world: a task that consists of a demand for service."""

from __future__ import annotations

from dataclasses import dataclass

from planes import Task
from planes.lock import TaskLock
from schedulers import Job


@dataclass(slots=True, eq=False, init=False, kw_only=True, repr=False)
class ModelTask(Task):
    """A task that needs ``demand_ns`` of service; its number is its row of the trace.

    No handler serves it: ``serve``, ``done``, ``subject``, ``coroutine``, ``go_on``
    and ``service_ns`` are never set (its service is ``own_cpu_ns``). The other fields
    belong to the engine, which sets them when a turn begins. ``charged_ns`` is the
    instant up to which the current slice has been billed, ``ends_ns`` its end if
    nothing interrupts it. ``end_serial`` is the number of that end's event.
    ``check_serial`` is the number of the event that checks for preemption, which is
    possible from ``check_from_ns`` of service on (0: no such event). Other events are
    void. With a ``lock``, ``section_ns`` is the remaining time to hold it; ``runner``
    runs in the current turn, which began at ``turn_began_ns`` of service (`locks`).

    The initialiser is explicit because a run creates millions of tasks, and a
    dataclass would pass all defaults as arguments.
    """

    demand_ns: int
    connection: int
    api_key: int
    charged_ns: int
    ends_ns: int
    end_serial: int
    check_serial: int
    check_from_ns: int
    lock: TaskLock | None
    section_ns: int
    runner: ModelTask | None
    turn_began_ns: int

    __repr__ = Job.__repr__

    def __init__(
        self,
        number: int,
        received_ns: int,
        demand_ns: int,
        level: int = 0,
        request_class: str = "data",
        flow: str = "",
        cost_ns: int = 0,
        size_bytes: int = 0,
        connection: int = -1,
        api_key: int = -1,
    ) -> None:
        self.number = number
        self.request_class = request_class
        self.level = level
        self.flow = flow
        self.size_bytes = size_bytes
        self.cost_ns = cost_ns
        self.arrived_ns = self.received_ns = received_ns
        self.demand_ns = demand_ns
        self.connection = connection
        self.api_key = api_key
        self.deadline_ns = self.size_ns = self.tag = None
        self.can_be_refused = False
        self.refusal = self.locking = self.lock = self.runner = None
        self.section_ns = 0
        self.enqueued_ns = self.dequeued_ns = self.suspended_since_ns = -1
        self.local_done_ns = self.remote_done_ns = -1
        self.response_dequeued_ns = self.response_sent_ns = -1
        self.attained_ns = self.suspended_ns = self.preemptions = 0
        self.throttled_until_ns = self.prior_ns = self.slice_began_ns = 0

    def carrying(self, rows: int, demand_ns: int, now_ns: int) -> ModelTask:
        """Return a request sent at ``now_ns`` that carries this row and others."""
        request = ModelTask(
            self.number,
            now_ns,
            demand_ns,
            self.level,
            self.request_class,
            self.flow,
            round(self.cost_ns * demand_ns / self.demand_ns),
            self.size_bytes * rows,
            self.connection,
            self.api_key,
        )
        if self.size_ns is not None:
            request.size_ns = demand_ns
        request.lock, request.section_ns = self.lock, self.section_ns
        return request
