"""Laws of ``fifo`` and ``priority``: exact order, strict priority, ageing."""

import random
from itertools import pairwise

import pytest

from schedulers import Job, SchedulerConfig, find, make
from schedulers.contract.harness import PolicyHarness

RNG_SEEDS = range(12)


def play(harness, rng, steps, choose, *, levels=4, load=1.2):
    """Serve random sizes on one seat; ``choose`` predicts each pick."""
    for _ in range(steps):
        while rng.random() < load / (1 + load):
            number = len(harness.true_ns)
            level = rng.randrange(levels)
            job = Job(number=number, level=level, flow=str(level))
            harness.arrive(job, rng.randrange(1, 20))
        expected = choose(harness)
        job = harness.pick()
        assert job is expected
        if job is None:
            harness.now_ns += 5
            continue
        act = rng.random()
        harness.run(job, rng.randrange(20))
        if act < 0.3:
            harness.preempt_quietly(job)
        elif act < 0.5:
            harness.park(job)
        else:
            harness.finish(job)
        if harness.away and rng.random() < 0.5:
            harness.resume(rng.choice(list(harness.away.values())))


class Recorder(PolicyHarness):
    """Records the jobs served before, and the jobs that wait again."""

    def __init__(self, name, config):
        super().__init__(find(name), lambda: config)
        self.served = set()
        self.returned = []

    def pick(self):
        job = super().pick()
        if job is not None:
            self.served.add(job.number)
            if job in self.returned:
                self.returned.remove(job)
        return job

    def preempt_quietly(self, job):
        self._leave(job, done=False)
        self._wait_again(job)
        self.returned.append(job)

    def resume(self, job):
        super().resume(job)
        self.returned.append(job)


@pytest.mark.parametrize("seed", RNG_SEEDS)
def test_fifo_serves_what_came_back_first_then_by_arrival(seed):
    def choose(harness):
        if harness.returned:
            return harness.returned[0]
        return min(harness.waiting.values(), key=lambda job: job.number, default=None)

    harness = Recorder("fifo", SchedulerConfig())
    play(harness, random.Random(seed), 300, choose)
    assert len(harness.finished) > 50


def test_fifo_never_preempts():
    fifo = make("fifo", SchedulerConfig())
    fifo.arrive(Job(number=0, level=9), 0)
    running = fifo.pick(0)
    fifo.arrive(Job(number=1, level=0), 1)
    assert not fifo.outranks(running, 10**12)


@pytest.mark.parametrize("seed", RNG_SEEDS)
def test_priority_without_bound_is_strict_and_resumes_the_preempted_first(seed):
    def choose(harness):
        return min(
            harness.waiting.values(),
            key=lambda job: (job.level, job.number not in harness.served, job.number),
            default=None,
        )

    harness = Recorder("priority", SchedulerConfig())
    play(harness, random.Random(seed), 300, choose)
    assert len(harness.finished) > 50


def test_priority_preempts_for_a_more_urgent_level_only():
    policy = make("priority", SchedulerConfig())
    policy.arrive(Job(number=0, level=2), 0)
    running = policy.pick(0)
    policy.arrive(Job(number=1, level=2), 0)
    policy.arrive(Job(number=2, level=3), 0)
    assert not policy.outranks(running, 1)
    policy.arrive(Job(number=3, level=1), 1)
    assert policy.outranks(running, 1)


@pytest.mark.parametrize("seed", RNG_SEEDS)
@pytest.mark.parametrize("load", [1.2, 3.0])
def test_a_level_is_passed_over_for_the_bound_and_one_service_per_level(seed, load):
    ageing_ns, levels, service_ns = 100, 4, 20
    rng = random.Random(seed)
    policy = make("priority", SchedulerConfig(ageing_ns=ageing_ns))
    unserved_since, waiting, reliefs = {}, {}, []
    now_ns = number = 0
    for _ in range(2_000):
        while rng.random() < load / (1 + load):
            level = rng.randrange(levels)
            policy.arrive(Job(number=number, level=level), now_ns)
            if not waiting.get(level):
                unserved_since[level] = now_ns
            waiting[level] = waiting.get(level, 0) + 1
            number += 1
        busy = [level for level, count in waiting.items() if count]
        for level in busy:
            passed_over_ns = now_ns - unserved_since[level]
            assert passed_over_ns < ageing_ns + levels * service_ns
        job = policy.pick(now_ns)
        if job is None:
            now_ns += 3
            continue
        if job.level != min(busy):
            reliefs.append((now_ns, job.level))
        waiting[job.level] -= 1
        now_ns += rng.randrange(1, service_ns + 1)
        unserved_since[job.level] = now_ns
        policy.leave(job, now_ns, done=True)
    assert reliefs
    for level in range(levels):
        times = [at_ns for at_ns, relieved in reliefs if relieved == level]
        for earlier_ns, later_ns in pairwise(times):
            assert later_ns - earlier_ns >= ageing_ns


def test_a_relieved_job_is_not_preempted():
    policy = make("priority", SchedulerConfig(ageing_ns=100))
    policy.arrive(Job(number=0, level=5), 0)
    for number in (1, 2):
        policy.arrive(Job(number=number, level=0), 0)
    first = policy.pick(99)
    assert first.level == 0
    policy.leave(first, 100, done=True)
    relieved = policy.pick(100)
    assert relieved.level == 5
    assert not policy.outranks(relieved, 150)
    policy.leave(relieved, 200, done=False)
    policy.resume(relieved, 200)
    assert policy.pick(200).level == 0


def test_a_long_service_of_its_own_is_not_held_to_be_starvation_of_a_level():
    """A job preempted after ten ageing bounds must not preempt in turn."""
    policy = make("priority", SchedulerConfig(ageing_ns=100))
    policy.arrive(Job(number=0, level=3), 0)
    running = policy.pick(0)
    policy.arrive(Job(number=1, level=0), 1_000)
    assert policy.outranks(running, 1_000)
    policy.leave(running, 1_000, done=False)
    policy.resume(running, 1_000)
    assert policy.pick(1_000).level == 0


def test_another_bound_of_ageing_counts_at_once():
    policy = make("priority", SchedulerConfig())
    policy.arrive(Job(number=0, level=9), 0)
    for number in range(1, 6):
        policy.arrive(Job(number=number, level=0), 10)

    def served(now_ns):
        job = policy.pick(now_ns)
        policy.leave(job, now_ns, done=True)
        return job.number

    assert served(10_000) == 1
    policy.reconfigure(SchedulerConfig(ageing_ns=20_000))
    assert served(10_001) == 2
    policy.reconfigure(SchedulerConfig(ageing_ns=1_000))
    assert served(10_002) == 0
    policy.arrive(Job(number=9, level=9), 10_003)
    policy.reconfigure(SchedulerConfig())
    assert served(10**9) == 3
