"""Locks in the model: bounded priority inversion, a lock as one server, accounting.

The engine and the dispatcher treat locks alike, so the bounds are those of
``tests/planes/test_lock.py``.
"""

import random

import pytest

from experiments.worlds.model.engine import Engine
from experiments.worlds.model.open_loop import OpenLoop
from experiments.worlds.model.site import Overheads, Site
from experiments.worlds.model.task import ModelTask
from planes import Block, Cpu, PlaneCore
from planes.lock import TaskLock
from schedulers import POLICIES, SchedulerConfig, make

US = 1_000
LOW, MEDIUM, HIGH = 5, 3, 0


def serve(requests, *, policy="priority", seats=1, planes=1, inherits=True):
    """Serve ``(at_us, level, need_us, hold_us)``; return the tasks by number."""
    lock = TaskLock("shared", inherits=inherits)
    config = SchedulerConfig(seats=seats, quantum_ns=500 * US, ageing_ns=None)
    cores = [
        PlaneCore(str(n), make(policy, config), Block(capacity=100_000), seats=seats)
        for n in range(planes)
    ]
    if planes > 1 or seats == 1:
        sites = [Site(cores, Overheads(), shared=Cpu(cores, quantum_ns=500 * US))]
    else:
        sites = [Site(cores, Overheads())]
    engine = Engine(sites, quantum_ns=500 * US)
    served = {}

    def tasks():
        for number, (at_us, level, need_us, hold_us) in enumerate(requests):
            task = ModelTask(number, at_us * US, need_us * US, level=level)
            task.flow = task.request_class = str(level)
            task.cost_ns = need_us * US
            if hold_us:
                task.lock, task.section_ns = lock, min(hold_us, need_us) * US
            task.plane = cores[number % planes]
            yield task

    engine.run(
        OpenLoop(engine, tasks(), lambda task: served.update({task.number: task}))
    )
    for core in cores:
        core.check()
    assert sorted(served) == list(range(len(requests)))
    assert lock.holder is None
    assert not lock.sleepers
    return served


@pytest.mark.parametrize("flood", [1, 10, 100])
def test_inversion_is_bounded_by_the_section_with_inheritance_only(flood):
    """Low holds 2 ms from 0; at 0.1 ms medium tasks of 1 ms and a high one arrive."""
    requests = [
        (0, LOW, 3000, 2000),
        *[(100, MEDIUM, 1000, 0)] * flood,
        (100, HIGH, 500, 500),
    ]
    high = flood + 1
    inherited = serve(requests)
    assert inherited[high].remote_done_ns == 2500 * US
    assert inherited[0].remote_done_ns == (3500 + 1000 * flood) * US
    without = serve(requests, inherits=False)
    assert without[high].remote_done_ns == (2500 + 1000 * flood) * US


@pytest.mark.parametrize("inherits", [True, False])
def test_a_lock_that_all_hold_throughout_makes_one_server_of_many(inherits):
    """Eight seats, FIFO: the waits are those of one server, by Lindley's recursion."""
    rng = random.Random(5)
    at_us, requests = 0, []
    for _ in range(2000):
        at_us += round(rng.expovariate(1 / 1000))
        need_us = 1 + round(rng.expovariate(1 / 800))
        requests.append((at_us, 1, need_us, need_us))
    tasks = serve(requests, policy="fifo", seats=8, inherits=inherits)
    free_us = 0
    for number, (at_us, _, need_us, _) in enumerate(requests):
        free_us = max(free_us, at_us) + need_us
        assert tasks[number].remote_done_ns == free_us * US


@pytest.mark.parametrize("inherits", [True, False])
@pytest.mark.parametrize(("seats", "planes"), [(1, 1), (1, 2), (4, 1)])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_all_tasks_that_share_a_lock(
    policy, seats, planes, inherits
):
    rng = random.Random(7)
    at_us, requests = 0, []
    for _ in range(400):
        at_us += rng.choice((0, 20, 300))
        need_us = rng.randrange(1, 400)
        hold_us = rng.choice((0, 0, 50, 400))
        requests.append((at_us, rng.randrange(6), need_us, hold_us))
    tasks = serve(
        requests, policy=policy, seats=seats, planes=planes, inherits=inherits
    )
    for number, (_, _, need_us, _) in enumerate(requests):
        assert tasks[number].own_cpu_ns() == need_us * US
    billed_ns = sum(task.attained_ns for task in tasks.values())
    assert billed_ns == sum(need_us for _, _, need_us, _ in requests) * US
