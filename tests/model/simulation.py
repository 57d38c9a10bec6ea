"""Small runs of the model's engine, shared by the tests of this folder."""

import random
from dataclasses import dataclass, field

from experiments.worlds.model.engine import Engine
from experiments.worlds.model.open_loop import OpenLoop
from experiments.worlds.model.site import Overheads, Site
from experiments.worlds.model.task import ModelTask
from planes import Block, Cpu, PlaneCore
from schedulers import SchedulerConfig, make

MS = 1_000_000
QUANTUM_NS = MS // 10


@dataclass
class Run:
    """Result of a run: each task served, in the order of departure."""

    tasks: list = field(default_factory=list)
    work: list = field(default_factory=list)

    def of_level(self, level):
        return [task for task in self.tasks if task.level == level]

    def sojourns_ms(self, level):
        return [
            (task.remote_done_ns - task.received_ns) / MS
            for task in self.of_level(level)
        ]

    def waits_ms(self, level):
        return [
            (task.remote_done_ns - task.received_ns - task.demand_ns) / MS
            for task in self.of_level(level)
        ]


def plane(policy, *, seats=1, name="data", **settings):
    settings.setdefault("quantum_ns", QUANTUM_NS)
    config = SchedulerConfig(seats=seats, **settings)
    scheduler = make(policy, config) if isinstance(policy, str) else policy(config)
    return PlaneCore(name, scheduler, Block(capacity=10**9), seats=seats)


def serve(planes, jobs, *, cpu=False, route=lambda job: 0, **overheads):
    """Serve ``(arrival_ns, level, demand_ns)`` or ready-made tasks."""
    costs = Overheads(**overheads)
    if cpu:
        sites = [Site(planes, costs, shared=Cpu(planes, quantum_ns=QUANTUM_NS))]
    else:
        sites = [Site([each], costs) for each in planes]
    engine = Engine(sites, quantum_ns=QUANTUM_NS)
    run = Run()

    def tasks():
        for number, job in enumerate(jobs):
            task = job if isinstance(job, ModelTask) else make_task(number, *job)
            task.plane = planes[route(task)]
            yield task

    engine.run(OpenLoop(engine, tasks(), run.tasks.append))
    for each in planes:
        each.check()
        assert each.seated == each.away == len(each.scheduler) == 0
    run.lost_ns = sum(site.lost_ns for site in sites)
    run.end_ns = engine.now_ns
    return run


def make_task(number, arrival_ns, level, demand_ns, cost_ns=None):
    task = ModelTask(
        number,
        arrival_ns,
        demand_ns,
        level=level,
        request_class=f"class-{level}",
        flow=f"flow-{level}",
        cost_ns=demand_ns if cost_ns is None else cost_ns,
    )
    task.size_ns = demand_ns
    return task


def poisson(seed, count, rates, draws):
    """Draw Poisson arrivals of classes; ``draws[k](rng)`` is a size in ms."""
    rng = random.Random(seed)
    now_ms, total = 0.0, sum(rates)
    levels = range(len(rates))
    for _ in range(count):
        now_ms += rng.expovariate(total)
        level = rng.choices(levels, rates)[0]
        yield round(now_ms * MS), level, max(1, round(draws[level](rng) * MS))


def exponential(mean):
    return lambda rng: rng.expovariate(1 / mean)
