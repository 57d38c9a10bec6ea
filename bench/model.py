"""Requests per second of the model world, against SimPy and Ciw on the same workload.

The workload is an M/M/1 queue with two classes (golden set A of the theory tests): rare
short control, frequent long data, 80 % busy. Every simulator gets the same arrival
instants and service times. Generating these is not timed; each simulator's own loading
of them is.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from bench.row import BenchRow
from experiments.worlds.model.engine import Engine
from experiments.worlds.model.open_loop import OpenLoop
from experiments.worlds.model.site import Overheads, Site
from experiments.worlds.model.task import ModelTask
from planes import Block, PlaneCore
from schedulers import SchedulerConfig, make

_JOBS = 40_000
_ROUNDS = 5
_MS = 1_000_000
# The longer mean service time: time-sharing policies preempt long requests only.
_QUANTUM_NS = 4 * _MS
# Level, arrivals per millisecond, mean service in milliseconds.
_CLASSES = ((0, 0.05, 1.0), (1, 0.1875, 4.0))


class _Job(NamedTuple):
    """One request of the workload; times in nanoseconds."""

    arrival_ns: int
    level: int
    demand_ns: int
    name: str


def rows() -> Iterator[BenchRow]:
    """Compare three policies of this project with each peer."""
    jobs = _workload()
    ours = {name: _serve_with(name) for name in ("fifo", "priority", "wfq")}
    peers: dict[str, Callable[[list[_Job]], None]] = {
        "SimPy PriorityResource": _simpy_priority,
        "SimPy PreemptiveResource": _simpy_preemptive,
        "Ciw, preemptive priorities": _ciw,
    }
    rates: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        for name, simulate in {**ours, **peers}.items():
            began_s = time.perf_counter()
            simulate(jobs)
            rate = len(jobs) / (time.perf_counter() - began_s)
            rates.setdefault(name, []).append(rate)
    for name in ours:
        for peer in peers:
            pairs = zip(rates[name], rates[peer], strict=True)
            yield BenchRow(
                name=f"model world, {name}",
                unit="requests/s",
                ours=statistics.median(rates[name]),
                peer=peer,
                theirs=statistics.median(rates[peer]),
                ratio=statistics.median(a / b for a, b in pairs),
            )


def _workload() -> list[_Job]:
    """Draw the jobs of all classes, in order of arrival."""
    rng = random.Random(20)
    total = sum(rate for _, rate, _ in _CLASSES)
    jobs = []
    for level, rate, mean_ms in _CLASSES:
        at_ms = 0.0
        for _ in range(round(_JOBS * rate / total)):
            at_ms += rng.expovariate(rate)
            demand_ns = max(1, round(rng.expovariate(1 / mean_ms) * _MS))
            jobs.append(_Job(round(at_ms * _MS), level, demand_ns, f"class-{level}"))
    return sorted(jobs)


def _serve_with(policy: str) -> Callable[[list[_Job]], None]:
    def serve(jobs: list[_Job]) -> None:
        config = SchedulerConfig(quantum_ns=_QUANTUM_NS)
        plane = PlaneCore(
            "data", make(policy, config), Block(capacity=len(jobs)), seats=1
        )
        engine = Engine([Site([plane], Overheads())], quantum_ns=_QUANTUM_NS)
        served: list[int] = []

        def done(task: ModelTask) -> None:
            served.append(task.remote_done_ns - task.received_ns)

        # Positional arguments are faster, and a million calls are timed.
        def tasks() -> Iterator[ModelTask]:
            for number, (at_ns, level, demand_ns, name) in enumerate(jobs):
                task = ModelTask(number, at_ns, demand_ns, level, name, name, demand_ns)
                task.plane = plane
                yield task

        engine.run(OpenLoop(engine, tasks(), done))
        assert len(served) == len(jobs)

    return serve


def _simpy_priority(jobs: list[_Job]) -> None:
    """Serve the jobs by priority, without preemption."""
    import simpy

    environment = simpy.Environment()
    server = simpy.PriorityResource(environment, capacity=1)
    served = []

    def request(job: _Job) -> Generator[Any, Any, None]:
        with server.request(priority=job.level) as turn:
            yield turn
            yield environment.timeout(job.demand_ns)
        served.append(environment.now - job.arrival_ns)

    environment.process(_simpy_source(environment, jobs, request))
    environment.run()
    assert len(served) == len(jobs)


def _simpy_preemptive(jobs: list[_Job]) -> None:
    """Serve the jobs by preemptive-resume priority."""
    import simpy

    environment = simpy.Environment()
    server = simpy.PreemptiveResource(environment, capacity=1)
    served = []

    def request(job: _Job) -> Generator[Any, Any, None]:
        left_ns: float = job.demand_ns
        while left_ns:
            with server.request(priority=job.level) as turn:
                yield turn
                began_ns = environment.now
                try:
                    yield environment.timeout(left_ns)
                    left_ns = 0
                except simpy.Interrupt:
                    left_ns -= environment.now - began_ns
        served.append(environment.now - job.arrival_ns)

    environment.process(_simpy_source(environment, jobs, request))
    environment.run()
    assert len(served) == len(jobs)


def _simpy_source(
    environment: Any,
    jobs: list[_Job],
    request: Callable[[_Job], Generator[Any, Any, None]],
) -> Generator[Any, Any, None]:
    for job in jobs:
        yield environment.timeout(job.arrival_ns - environment.now)
        environment.process(request(job))


def _ciw(jobs: list[_Job]) -> None:
    """Serve the jobs by preemptive-resume priority, one customer class per level."""
    import ciw

    arrivals, services = {}, {}
    for level, _, _ in _CLASSES:
        mine = [job for job in jobs if job.level == level]
        gaps = [b.arrival_ns - a.arrival_ns for a, b in pairwise(mine)]
        # The infinite gap ends the arrivals.
        instants: list[float] = [mine[0].arrival_ns, *gaps, float("inf")]
        arrivals[f"Class {level}"] = [ciw.dists.Sequential(instants)]
        demands = [job.demand_ns for job in mine]
        services[f"Class {level}"] = [ciw.dists.Sequential(demands)]
    network = ciw.create_network(
        arrival_distributions=arrivals,
        service_distributions=services,
        number_of_servers=[1],
        priority_classes=(
            {f"Class {level}": level for level, _, _ in _CLASSES},
            ["resume"],
        ),
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(len(jobs), method="Finish")
