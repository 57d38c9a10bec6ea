"""CPU used for a job outside of its turns is charged to its flow."""

import random

import pytest

from schedulers import POLICIES, Job, SchedulerConfig, make
from schedulers.contract.conformance import UNIT_NS, make_job, settings

FLOWS = ("late", "all in turn")


def served_of_each(name, *, in_turn_ns, afterwards_ns):
    """Keep two flows backlogged at one server; count the turns of each.

    Flow i uses ``in_turn_ns[i]`` in each turn and ``afterwards_ns[i]`` after it.
    """
    policy = make(name, SchedulerConfig(quantum_ns=1_000))
    served, now_ns, number = [0, 0], 0, 0
    for number in range(10):
        which = number % 2
        policy.arrive(job_of(number, which, in_turn_ns[which]), now_ns)
    for _ in range(600):
        job = policy.pick(now_ns)
        which = FLOWS.index(job.flow)
        now_ns += in_turn_ns[which]
        job.attained_ns += in_turn_ns[which]
        policy.ran(job, in_turn_ns[which], now_ns)
        policy.leave(job, now_ns, done=True)
        now_ns += afterwards_ns[which]
        policy.debit(job, afterwards_ns[which], now_ns)
        policy.check()
        served[which] += 1
        number += 1
        policy.arrive(job_of(number, which, in_turn_ns[which]), now_ns)
    return served


def job_of(number, which, cost_ns):
    return Job(
        number=number,
        request_class=FLOWS[which],
        flow=FLOWS[which],
        cost_ns=cost_ns,
    )


@pytest.mark.parametrize(
    "name", ["wfq", "wf2q+", "scfq", "drr", "eevdf", "2dfq", "mclock"]
)
def test_a_fair_policy_counts_a_debit_as_it_counts_a_turn(name):
    late, in_turn = served_of_each(
        name, in_turn_ns=(100_000, 400_000), afterwards_ns=(300_000, 0)
    )
    assert late == pytest.approx(in_turn, rel=0.05)


@pytest.mark.parametrize("name", ["wfq", "wf2q+", "scfq", "drr", "eevdf", "2dfq"])
def test_a_flow_that_is_idle_comes_back_with_its_debt(name):
    policy = make(name, SchedulerConfig(quantum_ns=1_000))
    first = job_of(0, 0, 100)
    policy.arrive(first, 0)
    assert policy.pick(0) is first
    # Without the debit, the lowest number would go first.
    for number in (11, 12, 13):
        policy.arrive(job_of(number, 1, 100), 0)
    first.attained_ns = 100
    policy.ran(first, 100, 100)
    policy.leave(first, 100, done=True)
    policy.debit(first, 5_000_000, 100)
    policy.arrive(job_of(4, 0, 100), 100)
    assert [policy.pick(100).number for _ in range(4)] == [11, 12, 13, 4]


@pytest.mark.parametrize("name", ["wfq", "wf2q+", "scfq", "drr", "eevdf", "2dfq"])
def test_service_without_competitors_is_not_charged_later(name):
    options = {"quantum_ns": 100} if name == "drr" else {}
    policy = make(name, SchedulerConfig(quantum_ns=1_000, options=options))
    alone = job_of(0, 0, 0)
    policy.arrive(alone, 0)
    assert policy.pick(0) is alone
    alone.attained_ns = 50_000
    policy.ran(alone, 50_000, 50_000)
    policy.leave(alone, 50_000, done=True)
    for number in range(1, 7):
        policy.arrive(job_of(number, (number + 1) % 2, 100), 50_000)
    order = []
    for _ in range(6):
        job = policy.pick(50_000)
        job.attained_ns = 100
        policy.ran(job, 100, 50_000)
        policy.leave(job, 50_000, done=True)
        order.append(job.number)
    assert order == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("by_count", "order"), [(0, [12, 13, 14, 11]), (1, [11, 12, 13, 14])]
)
def test_a_debit_sends_a_flow_to_a_later_queue_where_cost_counts(by_count, order):
    policy = make("fair-call-queue", SchedulerConfig(options={"by_count": by_count}))
    for number in range(10):
        job = Job(number=number, flow="late" if number == 9 else "b", cost_ns=1_000)
        policy.arrive(job, 0)
    jobs = [policy.pick(0) for _ in range(10)]
    for job in jobs:
        job.attained_ns = 1_000
        policy.leave(job, 0, done=True)
    # The late flow has a tenth of all costs before the debit, and most of them after.
    late = next(job for job in jobs if job.flow == "late")
    policy.debit(late, 1_000_000, 0)
    policy.check()
    for number, flow in zip((11, 12, 13, 14), ("late", "c", "d", "e"), strict=True):
        policy.arrive(Job(number=number, flow=flow, cost_ns=1_000), 0)
    assert [policy.pick(0).number for _ in range(4)] == order


def order_of_a_life(name, seed, *, told):
    """Add, run, park and resume random jobs; return the numbers picked.

    ``told`` sends the policy a debit of 0 ns before each event.
    """
    rng = random.Random(seed)
    policy = make(name, settings(seats=2))
    now_ns, serving, away, picked = 0, [], [], []
    jobs = []
    for _ in range(120):
        now_ns += rng.choice((0, UNIT_NS // 2, 3 * UNIT_NS))
        act = rng.random()
        if told and jobs:
            policy.debit(jobs[-1], 0, now_ns)
        if act < 0.3:
            jobs.append(make_job(len(jobs), rng, now_ns)[0])
            policy.arrive(jobs[-1], now_ns)
        elif act < 0.6 and len(serving) < 2:
            if (job := policy.pick(now_ns)) is not None:
                serving.append(job)
                picked.append(job.number)
        elif act < 0.8 and serving:
            job = serving.pop(rng.randrange(len(serving)))
            used_ns = rng.randrange(job.size_ns - job.attained_ns + 1)
            job.attained_ns += used_ns
            policy.ran(job, used_ns, now_ns)
            policy.leave(job, now_ns, done=False)
            away.append(job)
        elif away:
            policy.resume(away.pop(rng.randrange(len(away))), now_ns)
        policy.check()
    return picked


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(5))
def test_a_debit_of_nothing_changes_nothing(name, seed):
    """A debit advances the clock of a policy, which must not change its order."""
    plain = order_of_a_life(name, seed, told=False)
    assert order_of_a_life(name, seed, told=True) == plain
