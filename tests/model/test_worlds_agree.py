"""Three witnesses, one table: theory, the model, and the dispatcher under Trio.

On the same trace the model's engine and the dispatcher serve every request at the same
moment, to within the resolution of Trio's clock; so what theory says of the one's
means holds of the other's. Sockets are polled at every preemption point here: how much
later a real broker notices an arrival is another question, and not the policy's.
"""

import math
import statistics

import pytest
import trio

from experiments.theory import MG1, MMc, exponential_segments
from planes import Block, PlaneCore, Task
from planes.plane import Dispatcher
from planes.slices import preempt
from schedulers import SchedulerConfig, make
from tests.model.simulation import MS, exponential, plane, poisson, serve
from tests.planes.simulation import in_virtual_time

A = MG1.exponential((0.05, 0.1875), (1, 4))
C = MMc(servers=8, rates=(0.085, 1.615), mean=4)
SEGMENT_MS = 0.5
# Student's t for 11 degrees of freedom, 99.9 % two-sided.
REPLICATIONS, T_999, COUNT = 12, 4.437, 1_500


def route_to_own(task):
    return task.level


def route_to_shared(task):
    return 0


class CpuBroker:
    """One CPU: a handler is so much work, cut at its preemption points."""

    def __init__(self, clock):
        self.clock = clock
        self.cost_ns = 0

    def spend(self, task):
        cost_ns, self.cost_ns = self.cost_ns, 0
        self.clock.jump(cost_ns / 1e9)

    async def handle(self, demand_ns):
        whole, last = divmod(demand_ns, round(SEGMENT_MS * MS))
        for _ in range(whole):
            self.cost_ns = round(SEGMENT_MS * MS)
            await preempt()
        self.cost_ns = last


class SeatBroker(CpuBroker):
    """Seats that serve by themselves: a handler waits for a device so long."""

    async def handle(self, demand_ns):
        await trio.sleep(demand_ns / 1e9)


def dispatch(broker_type, seats, policy, route, jobs):
    """Serve the jobs by the broker's dispatcher; return each one's end."""
    ends = {}

    async def main(clock):
        broker = broker_type(clock)

        def now_ns():
            return round(clock.current_time() * 1e9)

        config = SchedulerConfig()
        bound = Block(capacity=10**6)
        cores = [
            PlaneCore(str(n), make(policy, config), bound, seats=count)
            for n, count in enumerate(seats)
        ]
        dispatcher = Dispatcher(cores, now_ns=now_ns, quantum_ns=1, spend=broker.spend)

        def done(task, result):
            ends[task.number] = now_ns()

        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            for number, (arrival_ns, level, demand_ns) in enumerate(jobs):
                # Whoever is due by now comes now, as a poll of sockets finds them all.
                if arrival_ns > now_ns():
                    await trio.sleep_until(arrival_ns / 1e9)
                task = Task(number=number, level=level, flow=str(level), done=done)
                task.serve = lambda demand_ns=demand_ns: broker.handle(demand_ns)
                assert dispatcher.offer(cores[route(task)], task)
            while len(ends) < len(jobs):  # noqa: ASYNC110 - time is virtual
                await trio.sleep(1)
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    return ends


def model(seats, policy, route, jobs, **overheads):
    """Serve the jobs by the model; return each one's end."""
    planes = [plane(policy, seats=count, name=str(n)) for n, count in enumerate(seats)]
    run = serve(planes, jobs, route=route, **overheads)
    return {task.number: task.remote_done_ns for task in run.tasks}


SEGMENTS = {"granularity_ns": round(SEGMENT_MS * MS)}
AT_CHECKPOINTS = A.checkpointed([exponential_segments(4, SEGMENT_MS)])
# Set, policy, broker, seats of each plane, route, overheads, theory of W by class.
TABLE = [
    ("A", "fifo", CpuBroker, (1,), route_to_shared, {}, (A.fifo(),) * 2),
    ("A", "np-priority", CpuBroker, (1,), route_to_shared, {}, A.nonpreemptive()),
    (
        "A",
        "priority",
        CpuBroker,
        (1,),
        route_to_shared,
        SEGMENTS,
        (AT_CHECKPOINTS, None),
    ),
    ("C", "fifo", SeatBroker, (8,), route_to_shared, {}, (C.fifo(),) * 2),
    ("C", "fifo", SeatBroker, (1, 7), route_to_own, {}, C.split((1, 7))),
]


@pytest.mark.parametrize(
    ("golden", "policy", "broker", "seats", "route", "overheads", "theory"),
    TABLE,
    ids=[f"{row[0]} {row[1]} {row[3]}" for row in TABLE],
)
def test_theory_model_and_dispatcher_agree(
    golden, policy, broker, seats, route, overheads, theory
):
    rates, means = ((0.05, 0.1875), (1, 4)) if golden == "A" else (C.rates, (4, 4))
    draws = [exponential(mean) for mean in means]
    waits = {level: [] for level in range(len(rates))}
    for seed in range(REPLICATIONS):
        jobs = list(poisson(seed, COUNT, rates, draws))
        ends = model(seats, policy, route, jobs, **overheads)
        if seed == 0:
            dispatched = dispatch(broker, seats, policy, route, jobs)
            late_ns = [abs(ends[number] - dispatched[number]) for number in ends]
            # Trio's clock is a float of seconds, and each slice rounds it.
            assert max(late_ns) <= 20_000
        for level, means_of_level in waits.items():
            these = [
                (ends[n] - arrival_ns - demand_ns) / MS
                for n, (arrival_ns, k, demand_ns) in enumerate(jobs)
                if k == level
            ]
            means_of_level.append(statistics.fmean(these))
    for level, expected in enumerate(theory):
        if expected is not None:
            mean = statistics.fmean(waits[level])
            half = T_999 * statistics.stdev(waits[level]) / math.sqrt(REPLICATIONS)
            assert abs(mean - expected) <= half, (level, mean, half, expected)
