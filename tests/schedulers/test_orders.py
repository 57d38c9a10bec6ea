"""The exact order of the policies that rank each job independently."""

import random

import pytest

from schedulers import Job, SchedulerConfig, find, make
from schedulers.contract.conformance import UNIT_NS
from schedulers.contract.harness import PolicyHarness

CONFIG = SchedulerConfig(quantum_ns=UNIT_NS, options={})


def rest_ns(job):
    return job.size_ns - job.attained_ns


RANKS = {
    "edf": lambda job: job.deadline_ns or job.arrived_ns + 100_000_000,
    "spt": lambda job: job.cost_ns,
    "psjf": lambda job: job.size_ns,
    "srpt": rest_ns,
    "las": lambda job: job.attained_ns,
}


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("seed", range(5))
def test_the_least_rank_is_served_and_preempts_as_declared(name, seed):
    rng = random.Random(f"{name}/{seed}")
    rank = RANKS[name]
    harness = PolicyHarness(find(name), lambda: CONFIG)
    for step in range(400):
        if rng.random() < 0.4:
            need_ns = rng.randrange(1, 20) * UNIT_NS
            job = Job(number=step, size_ns=need_ns, cost_ns=rng.randrange(9))
            job.deadline_ns = harness.now_ns + rng.randrange(1, 99) * UNIT_NS
            harness.arrive(job, need_ns)
        running = next(iter(harness.serving.values()), None)
        if running is None:
            ready = list(harness.waiting.values())
            expected = min(ready, key=lambda it: (rank(it), it.number), default=None)
            assert harness.pick() is expected
            continue
        harness.run(running, rng.randrange(3 * UNIT_NS))
        best = min(map(rank, harness.waiting.values()), default=None)
        slack = UNIT_NS if name == "las" else 1
        outranked = best is not None and best + slack <= rank(running)
        assert harness.outranked(running) == (outranked and name != "spt")
        if harness.outranked(running):
            harness.preempt(running, in_favour=True)
        elif not harness.rest_ns(running):
            harness.finish(running)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 10.0])
def test_ageing_serves_the_greatest_wait_times_slope(ratio):
    rng = random.Random(ratio)
    config = SchedulerConfig(options={"ratio": ratio})
    harness = PolicyHarness(find("ageing"), lambda: config)
    for step in range(400):
        harness.now_ns += rng.randrange(5)
        if rng.random() < 0.5:
            level = rng.randrange(4)
            harness.arrive(Job(number=step, level=level, flow=str(level)), 1)
        elif harness.waiting:

            def worth(job):
                return (harness.now_ns - job.arrived_ns) * ratio**-job.level

            best = max(harness.waiting.values(), key=lambda it: (worth(it), -it.number))
            job = harness.pick()
            assert (worth(job), job.number) == (worth(best), best.number)
            harness.finish(job)


def test_turns_of_a_quantum_each_under_processor_sharing():
    policy = make("ps", SchedulerConfig(quantum_ns=10))
    for number in range(3):
        policy.arrive(Job(number=number), 0)
    order = []
    job = policy.pick(0)
    for now_ns in range(10, 100, 10):
        job.attained_ns += 10
        order.append(job.number)
        assert policy.outranks(job, now_ns)
        policy.leave(job, now_ns, done=False)
        policy.resume(job, now_ns)
        job = policy.pick(now_ns)
    assert order == [0, 1, 2] * 3


@pytest.mark.parametrize(("deadline_ns", "first"), [(99_999_999, 1), (100_000_000, 0)])
def test_a_job_without_a_deadline_is_due_a_tenth_of_a_second_on(deadline_ns, first):
    policy = make("edf", SchedulerConfig())
    policy.arrive(Job(number=0), 0)
    policy.arrive(Job(number=1, deadline_ns=deadline_ns), 0)
    assert policy.pick(0).number == first
