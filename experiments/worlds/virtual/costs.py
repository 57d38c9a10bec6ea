"""CPU time in the virtual world: a fixed cost of reading, then slices of handlers.

A request has the cost that was drawn in the trace. The calibrated read cost
(`experiments.design.calibration.Calibration.read`) is spent when the broker reads the
request from its socket, before any policy knows it; without a calibration it is zero.
The handler spends the rest, in slices that a policy orders. Writing the answer and the
event loop are parts of the handler's time. Costs are equal for all arms: the CPU time
of a policy is a result of measurement, never an input.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from broker.requests.request import Request
from experiments.design.config import Experiment
from experiments.load.closed_loop import demand_ns
from experiments.load.trace import Trace
from planes import Task
from planes.clock import NowNs
from simulation.virtual_time.memory_network import MemoryConnection, MemoryNetwork


class SentDemands:
    """Demands of the requests under load, each of which carries rows of a trace.

    ``rows_of`` returns the rows of a request by its number.
    """

    def __init__(
        self,
        experiment: Experiment,
        trace: Trace,
        rows_of: Callable[[int], Sequence[int]],
    ) -> None:
        self._rows_of = rows_of
        self._demand_ns: list[int] = trace.column("demand_ns")
        self._traffic: list[str] = trace.column("traffic")
        self._further = {
            entry.name: 1.0 if entry.client is None else entry.client.further
            for entry in experiment.workload.traffic
        }

    def of(self, number: int) -> int:
        """Return the demand of a request in nanoseconds."""
        rows = self._rows_of(number)
        further = self._further[self._traffic[rows[0]]]
        return demand_ns([self._demand_ns[row] for row in rows], further)

    def traffic_of(self, number: int) -> str:
        """Return the name of a request's entry."""
        return self._traffic[self._rows_of(number)[0]]


class TraceCosts:
    """The CPU time of a slice: a share of its request's demand, or its class's slice.

    A request with a drawn demand spends its remainder after reading in equal parts over
    its units of work (partitions), one per slice; other work of the handler costs
    nothing. The slice after a preemption costs ``preemption_us`` more, for whichever
    request runs then. Upkeep (retention, checkpoints) costs nothing.
    """

    def __init__(self, experiment: Experiment, demands: SentDemands) -> None:
        virtual = experiment.virtual
        self._by_class = {
            name: round(slice_us * 1000) for name, slice_us in virtual.slice_us.items()
        }
        self._default_ns = round(virtual.other_slice_us * 1000)
        self._refusal_ns = round(virtual.refusal_us * 1000)
        self._preemption_ns = round(virtual.preemption_us * 1000)
        # The request of the last slice, and its number of preemptions then.
        self._last: Task | None = None
        self._preempted = 0
        self._demands = demands
        self._units = {
            entry.name: entry.request.shape().units
            for entry in experiment.workload.traffic
        }
        # The remaining demand of a started request, and the cost of one of its slices.
        self._left_ns: dict[int, int] = {}
        self._part_ns: dict[int, int] = {}

    def slice_ns(self, task: Task) -> int:
        """Return the cost of the slice that ``task`` has just run."""
        request = task.subject
        if not isinstance(request, Request):
            return 0
        cost_ns = self._overhead_ns() + self._own_ns(request.correlation_id, task)
        self._last, self._preempted = task, task.preemptions
        return cost_ns

    def _overhead_ns(self) -> int:
        """Return the time lost since the last slice, if its task was preempted."""
        last = self._last
        if last is None or last.preemptions == self._preempted:
            return 0
        return self._preemption_ns

    def _own_ns(self, number: int, task: Task) -> int:
        if number < 0:
            return 0
        if task.refusal is not None:
            return self._refusal_ns
        left_ns = self._left_ns.get(number)
        if left_ns is None:
            whole_ns = self._demands.of(number)
            if not whole_ns:
                return self._by_class.get(task.request_class, self._default_ns)
            left_ns = max(0, whole_ns - task.prior_ns)
            units = self._units[self._demands.traffic_of(number)]
            self._part_ns[number] = -(-left_ns // units)
        cost_ns = min(self._part_ns[number], left_ns)
        self._left_ns[number] = left_ns - cost_ns
        return cost_ns


class ClientsTime:
    """The time of clients and the network, which run in parallel to the broker.

    The broker's computing moves the clock at once. Client events of that time are
    handled afterwards, one after the other, with ``at_ns`` as their time.
    """

    def __init__(self, now_ns: NowNs) -> None:
        self._now_ns = now_ns
        self.at_ns: int | None = None

    def now_ns(self) -> int:
        """Return the time of a client."""
        return self._now_ns() if self.at_ns is None else self.at_ns


class CostlyNetwork(MemoryNetwork):
    """A network whose server end calls ``read`` after reading from a socket.

    Each request of up to 64 KiB causes one read, except requests that a client has sent
    without waiting for answers, which are read together. Code that moves the clock, as
    ``read`` does, must then call `catch_up`.
    """

    def __init__(
        self,
        *,
        time: ClientsTime,
        rng: random.Random,
        latency_ns: tuple[int, int],
        read: Callable[[], None],
    ) -> None:
        super().__init__(now_ns=time.now_ns, rng=rng, latency_ns=latency_ns)
        self._time = time
        self.read = read

    def catch_up(self) -> None:
        """Deliver chunks that are due, each at its own time."""
        self._arrive(self._now_ns())

    def accepted(self, fileno: int, address: str) -> MemoryConnection:
        """Return the server's end of a connection."""
        return _Costly(self, fileno, address)

    def _arrive(self, now_ns: int) -> None:
        while (due_ns := self._next_arrival_ns()) is not None and due_ns <= now_ns:
            self._time.at_ns = due_ns
            super()._arrive(due_ns)
        self._time.at_ns = None


class _Costly(MemoryConnection):
    """A server's end of a connection, on which reading takes time."""

    def __init__(self, network: CostlyNetwork, fileno: int, address: str) -> None:
        super().__init__(network, fileno, address)
        self._costs = network

    def recv(self, size: int, /) -> bytes:
        """Return some of the arrived bytes, and spend the time of reading."""
        chunk = super().recv(size)
        if chunk:
            self._costs.read()
        return chunk
