"""Theory, the model, the dispatcher and the whole broker agree on the same traces.

The model's engine, the dispatcher under Trio and the broker in virtual time serve every
request of a trace at the same instant. Agreement is within the resolution of Trio's
clock. The broker in virtual time includes sockets, frames, handlers and log. Theory
that holds for the means of the model therefore holds for the means of the others. Sets
A (one server, load 0.80) and C (eight servers, load 0.85) are the golden sets of
``test_theory_of_experiments``.

In the dispatcher, a handler that resumes from a device is scheduled again before it can
answer. Under priority, it can lose its seat to a more urgent request after all of its
service. Then its response is late, and no other response is. Such rows compare the end
of service of the first class, and the start of service of the other classes. Between
pieces, a handler can also lose its seat to an older request of its own level. With
several seats this changes the order of the ends, but each class's mean by less than
1 %.
"""

from collections import defaultdict, deque

import numpy as np
import pyarrow.parquet as pq
import pytest
import trio

from experiments.design.config import parse
from experiments.load.trace import generate
from experiments.theory.compare import interval
from experiments.theory.measure import measures_of
from experiments.theory.predict import MEAN_WAIT, theory
from experiments.worlds.model.model_world import Model
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial, RunFiles
from planes import Block, PlaneCore, Task
from planes.dispatcher import Dispatcher
from planes.slices import preempt
from schedulers import SchedulerConfig, make
from tests.planes.simulation import in_virtual_time

BLOCKS, LEVEL = 12, 0.999
# With this seed, in the short run, no request of set A arrives on a busy connection.
# The broker would read such a request after that response, in order with all requests
# of the same slice; the model would have admitted the others by then.
SEED = 4
# Trio's clock is a float in seconds, and each slice adds a rounding error.
RESOLUTION_NS = 20_000
PIECE_US, FINE_PIECE_US = 500.0, 200.0
# Requests per second and mean service in microseconds, of control and of data.
SETS = {"A": ((50.0, 187.5), (1000.0, 4000.0)), "C": ((85.0, 1615.0), (4000.0, 4000.0))}
# Set, scheduler, seats of each plane, whether each seat has a CPU, piece size.
TABLE = [
    ("A", "fifo", (1,), False, 0.0),
    ("A", "np-priority", (1,), False, 0.0),
    ("A", "priority", (1,), True, PIECE_US),
    ("A", "planes", (1, 1), True, 0.0),
    ("C", "fifo", (8,), True, 0.0),
    ("C", "np-priority", (8,), True, 0.0),
    ("C", "priority", (8,), True, FINE_PIECE_US),
    ("C", "planes", (7, 1), True, 0.0),
]
LATE_ANSWERS = {("A", "priority"), ("C", "np-priority")}
SAME_MEANS = {("C", "priority")}


def experiment(golden, scheduler, seats, at_once, piece_us, duration_s):
    rates, means = SETS[golden]
    server = {"server": "seats" if at_once else "cpu", "granularity_us": piece_us}
    names = ("control", "leader-and-isr"), ("produce", "produce")
    traffic = [
        {
            "name": name,
            "connections": 1_000,
            "arrivals": {"kind": "poisson", "rate_per_s": rate},
            "request": {"api": api},
            "service": {"kind": "exponential", "mean_us": mean_us},
        }
        for (name, api), rate, mean_us in zip(names, rates, means, strict=True)
    ]
    keys = {
        "queued.max.requests": 2_000,
        "num.io.threads": seats[0],
        # One reader: requests are read in order of arrival.
        "num.network.threads": 1,
        "doorkeeper.priority.ageing.ms": 0,
        # The sockets are polled after every slice.
        "doorkeeper.quantum.us": 1,
    }
    return parse(
        {
            "experiment": {
                "name": "agree",
                "seed": SEED,
                "blocks": BLOCKS,
                "baseline": "arm",
                "again": False,
            },
            "workload": {"duration_s": duration_s, "traffic": traffic},
            "arms": [{"name": "arm", "scheduler": scheduler}],
            "broker": {"set": keys},
            "model": server,
            "virtual": server,
        }
    )


def rows_of(world, subject, block, directory):
    """Run one block; return its trace and the recorded rows."""
    trace = generate(subject, block)
    files = RunFiles(requests=directory / "requests", samples=directory / "samples")
    trial = MachineTrial(experiment=subject, block=block, arm=subject.arms[0])
    result = world.run(trial, trace, files)
    assert result.valid, result.reason
    return trace, pq.read_table(files.requests)


def column(rows, name):
    return rows[name].to_numpy()


def test_a_preemption_costs_the_same_in_the_model_and_in_the_whole_broker(tmp_path):
    """Slices of a millisecond: ends agree with the model within 20 us."""

    def served(preemption_us):
        subject = experiment("A", "priority", (1,), False, 0.0, 1.0).content()
        control, produce = subject["workload"]["traffic"]
        control["service"] = {"kind": "constant", "mean_us": 900.0}
        produce["service"] = {"kind": "constant", "mean_us": 4000.0}
        produce["request"] |= {"partitions": 4, "topic_partitions": 4}
        subject["model"] |= {"granularity_us": 1000.0, "preemption_us": preemption_us}
        subject["virtual"]["preemption_us"] = preemption_us
        found = parse(subject)
        _, model = rows_of(Model(lambda: None), found, 0, tmp_path)
        _, virtual = rows_of(Virtual(), found, 0, tmp_path)
        assert (
            column(model, "preemptions").sum() == column(virtual, "preemptions").sum()
        )
        ours, theirs = (column(it, "local_done_ns") for it in (virtual, model))
        assert np.abs(ours - theirs).max() < RESOLUTION_NS
        return column(model, "preemptions").sum(), ours

    preemptions, free = served(0.0)
    assert preemptions > 10
    _, costly = served(300.0)
    assert (costly - free).max() > 300_000 - RESOLUTION_NS


class OneCpu:
    """A handler spends its whole demand in one slice of CPU time."""

    def __init__(self, clock):
        self.clock = clock
        self.cost_ns = 0

    def spend(self, task):
        cost_ns, self.cost_ns = self.cost_ns, 0
        self.clock.jump(cost_ns)

    async def handle(self, demand_ns, piece_ns):
        self.cost_ns = demand_ns
        await preempt()


class Devices(OneCpu):
    """A handler waits for a device of its own, piece by piece."""

    async def handle(self, demand_ns, piece_ns):
        while demand_ns > 0:
            waits_ns = min(demand_ns, piece_ns or demand_ns)
            await trio.sleep(waits_ns / 1e9)
            demand_ns -= waits_ns


def dispatch(policy, seats, at_once, piece_ns, jobs):
    """Serve the jobs by the broker's dispatcher; return when each began and ended.

    A connection has one request in the dispatcher at a time; its later ones wait
    outside.
    """
    began, ended = {}, {}
    busy, outside = set(), defaultdict(deque)

    async def main(clock):
        broker, now_ns = (Devices if at_once else OneCpu)(clock), clock.now_ns
        config = SchedulerConfig()
        cores = [
            PlaneCore(str(n), make(policy, config), Block(capacity=10**6), seats=count)
            for n, count in enumerate(seats)
        ]
        dispatcher = Dispatcher(cores, now_ns=now_ns, quantum_ns=1, spend=broker.spend)

        def done(task, result):
            began[task.number], ended[task.number] = task.dequeued_ns, now_ns()
            connection = jobs[task.number][3]
            busy.discard(connection)
            if outside[connection]:
                offer(outside[connection].popleft())

        def offer(number):
            _, level, demand_ns, connection = jobs[number]
            if connection in busy:
                outside[connection].append(number)
                return
            busy.add(connection)
            task = Task(number=number, level=level, flow=str(level), done=done)
            task.serve = lambda: broker.handle(demand_ns, piece_ns)
            # The second plane, if any, is control's.
            core = cores[-1] if level == 0 else cores[0]
            assert dispatcher.offer(core, task)

        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            for number, (arrival_ns, *_) in enumerate(jobs):
                # All requests due by now arrive at once, as in a poll of the sockets.
                if arrival_ns > now_ns():
                    await trio.sleep_until(arrival_ns / 1e9)
                offer(number)
            while len(ended) < len(jobs):  # noqa: ASYNC110 - time is virtual
                await trio.sleep(1)
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    numbers = range(len(jobs))
    return np.array([began[n] for n in numbers]), np.array([ended[n] for n in numbers])


def latest(ours_ns, theirs_ns, which):
    return max(
        abs(a - b) for a, b, here in zip(ours_ns, theirs_ns, which, strict=True) if here
    )


def assert_means(arrived_ns, ours_ns, theirs_ns, control):
    """Assert that the mean time in system of each class agrees within 1 %."""
    for urgent in (True, False):
        here = np.array(control) == urgent
        ours, theirs = ((ns - arrived_ns)[here].mean() for ns in (ours_ns, theirs_ns))
        assert theirs == pytest.approx(ours, rel=0.01)


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[0]} {row[1]}" for row in TABLE])
def test_theory_and_model_agree_on_means(row, tmp_path):
    subject = experiment(*row, duration_s=25.0 if row[0] == "A" else 3.0)
    found = theory(subject, subject.arms[0], "model")
    expected = [it for it in found.predictions if it.quantity == MEAN_WAIT]
    assert expected
    window_ns = [0, round(subject.workload.duration_s * 1e9)]
    blocks = [
        measures_of(rows_of(Model(lambda: None), subject, n, tmp_path)[1], window_ns)
        for n in range(BLOCKS)
    ]
    for it in expected:
        values = [block.values[MEAN_WAIT, it.reported] for block in blocks]
        mean, half = interval(values, LEVEL)
        assert abs(mean - it.value) <= half + 0.01 * it.scale, (it, mean, half)
        assert half <= 0.35 * it.scale, (it, mean, half)


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[0]} {row[1]}" for row in TABLE])
def test_model_dispatcher_and_whole_broker_agree(row, tmp_path):
    golden, scheduler, seats, at_once, piece_us = row
    subject = experiment(*row, duration_s=2.0 if golden == "A" else 0.8)
    trace, model = rows_of(Model(lambda: None), subject, 0, tmp_path)
    _, virtual = rows_of(Virtual(), subject, 0, tmp_path)
    control = [name == "control" for name in trace.column("class")]
    everyone = [True] * len(control)
    jobs = list(
        zip(
            trace.column("intended_ns"),
            [int(not urgent) for urgent in control],
            trace.column("demand_ns"),
            trace.column("connection"),
            strict=True,
        )
    )
    policy = "fifo" if scheduler == "planes" else scheduler
    began_ns, ended_ns = dispatch(policy, seats, at_once, round(piece_us * 1000), jobs)
    done = column(model, "response_sent_ns")
    if (golden, scheduler) in SAME_MEANS:
        for other_ns in (ended_ns, column(virtual, "client_done_ns")):
            assert_means(column(model, "intended_ns"), done, other_ns, control)
        return
    answered = control if (golden, scheduler) in LATE_ANSWERS else everyone
    assert sum(answered) > 50
    assert latest(done, ended_ns, answered) <= RESOLUTION_NS
    assert latest(done, column(virtual, "client_done_ns"), answered) <= RESOLUTION_NS
    if not piece_us:
        start = column(model, "dequeued_ns")
        assert latest(start, began_ns, everyone) <= RESOLUTION_NS
        assert latest(start, column(virtual, "dequeued_ns"), everyone) <= RESOLUTION_NS


def test_the_whole_broker_preempts_between_the_parts_of_a_request(tmp_path):
    """Set A on one CPU, sixteen partitions per request: the checkpoint form."""
    subject = experiment("A", "priority", (1,), False, 0.0, duration_s=1.0)
    content = subject.content()
    content["workload"]["traffic"][1]["request"].update(
        partitions=16, topic_partitions=16
    )
    subject = parse(content)
    (expected,) = (
        it
        for it in theory(subject, subject.arms[0], "virtual").predictions
        if it.quantity == MEAN_WAIT
    )
    assert expected.value == pytest.approx((0.05 + 0.1875) / 0.95 * 1e-3)
    window_ns = [0, 1_000_000_000]
    values = [
        measures_of(rows_of(Virtual(), subject, n, tmp_path)[1], window_ns).values[
            MEAN_WAIT, "control"
        ]
        for n in range(5)
    ]
    mean, half = interval(values, LEVEL)
    assert abs(mean - expected.value) <= half + 0.01 * expected.scale, (mean, half)
    assert half <= 0.35 * expected.scale
