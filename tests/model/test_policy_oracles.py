"""Policies in the model world against closed forms and sample-path identities.

`test_worlds_agree` covers FIFO, non-preemptive priority, and priority with preemption
points.
"""

import math
import random
import statistics

import pytest

from experiments.theory.mg1 import MG1
from experiments.theory.sizes import Sizes
from schedulers import POLICIES, find
from schedulers.contract.scheduler import NEVER
from tests.model.simulation import MS, exponential, plane, poisson, serve

RATES_A, MEANS_A = (0.05, 0.1875), (1, 4)
A = MG1.exponential(RATES_A, MEANS_A)
M_M_1 = Sizes.exponential(0.8, 1)
# Student's t for 11 degrees of freedom, 99.9 % two-sided.
REPLICATIONS, T_999 = 12, 4.437


def agree(measure, expected, *, widest):
    """Assert that the interval over seeds is narrow and contains the closed form."""
    columns = zip(*(measure(seed) for seed in range(REPLICATIONS)), strict=True)
    for values, theory in zip(columns, expected, strict=True):
        mean = statistics.fmean(values)
        half = T_999 * statistics.stdev(values) / math.sqrt(len(values))
        assert abs(mean - theory) <= half, (mean, half, theory)
        assert half <= widest * theory, (mean, half, theory)


def waits(policy, **settings):
    def measure(seed):
        draws = [exponential(mean) for mean in MEANS_A]
        jobs = poisson(seed, 6_000, RATES_A, draws)
        run = serve([plane(policy, **settings)], jobs)
        return [statistics.fmean(run.waits_ms(k)) for k in range(len(RATES_A))]

    return measure


def test_preemptive_priority_on_set_a():
    expected = [t - b for t, b in zip(A.preemptive(), MEANS_A, strict=True)]
    agree(waits("priority"), expected, widest=0.4)


def test_ageing_on_set_a():
    agree(waits("ageing", options={"ratio": 10}), A.ageing((10, 1)), widest=0.35)


@pytest.mark.parametrize(
    ("policy", "of_size"),
    [
        ("spt", M_M_1.sjf),
        ("psjf", M_M_1.psjf),
        ("srpt", M_M_1.srpt),
        ("ps", M_M_1.processor_sharing),
        ("las", M_M_1.las),
    ],
)
def test_orders_by_size_on_m_m_1(policy, of_size):
    """Quanta of 1/25 of the mean size: theory of ``ps`` and ``las`` has quantum 0."""

    def measure(seed):
        jobs = poisson(seed, 2_500, (0.8,), [exponential(1)])
        run = serve([plane(policy, quantum_ns=MS // 25)], jobs)
        return [statistics.fmean(run.sojourns_ms(0))]

    agree(measure, [M_M_1.mean_over_sizes(of_size)], widest=0.35)


def test_slowdown_under_processor_sharing_does_not_depend_on_size():
    slowdowns = {True: [], False: []}
    for seed in range(8):
        jobs = poisson(seed, 2_500, (0.7,), [exponential(1)])
        for task in serve([plane("ps", quantum_ns=MS // 20)], jobs).tasks:
            if task.demand_ns > MS // 2:
                sojourn_ns = task.remote_done_ns - task.received_ns
                slowdowns[task.demand_ns > 2 * MS].append(sojourn_ns / task.demand_ns)
    for values in slowdowns.values():
        assert statistics.fmean(values) == pytest.approx(1 / (1 - 0.7), rel=0.1)


# ---- sample-path identities -------------------------------------------------------


def busy_trace(seed, count=300):
    rng = random.Random(seed)
    now_ns, jobs = 0, []
    for _ in range(count):
        now_ns += rng.choice((0, rng.randrange(4 * MS), rng.randrange(8 * MS)))
        jobs.append((now_ns, rng.randrange(3), rng.randrange(1, 6 * MS)))
    return jobs


WORK_CONSERVING = [name for name in POLICIES if find(name).work_conserving]
NON_PREEMPTIVE = [name for name in WORK_CONSERVING if find(name).preempts == NEVER]


@pytest.mark.parametrize("seed", range(2))
def test_nonpreemptive_orders_conserve_waiting_weighted_by_size(seed):
    """Kleinrock's conservation law on one path: the sum of W S is equal, exactly."""
    jobs = busy_trace(seed)
    sums = {}
    for policy in NON_PREEMPTIVE:
        run = serve([plane(policy)], jobs)
        sums[policy] = sum(
            (task.dequeued_ns - task.received_ns) * task.demand_ns for task in run.tasks
        )
    assert len(sums) >= 10
    assert set(sums.values()) == {sums["fifo"]}


@pytest.mark.parametrize("policy", WORK_CONSERVING)
def test_every_work_conserving_policy_ends_each_busy_period_at_the_same_time(policy):
    jobs = busy_trace(3)

    def ends(name):
        run = serve([plane(name)], jobs)
        changes = sorted(
            [(task.received_ns, 1) for task in run.tasks]
            + [(task.remote_done_ns, -1) for task in run.tasks]
        )
        present, found = 0, []
        for at_ns, change in changes:
            present += change
            if not present:
                found.append(at_ns)
        return found

    assert ends(policy) == ends("fifo")


def number_in_system(run, instants):
    return [
        sum(task.received_ns <= at < task.remote_done_ns for task in run.tasks)
        for at in instants
    ]


@pytest.mark.parametrize("rival", [n for n in WORK_CONSERVING if n != "srpt"])
def test_srpt_keeps_the_fewest_jobs_in_the_system_at_all_times(rival):
    jobs = busy_trace(4)
    instants = range(0, jobs[-1][0], 7 * MS // 3)
    least = number_in_system(serve([plane("srpt")], jobs), instants)
    others = number_in_system(serve([plane(rival)], jobs), instants)
    assert all(a <= b for a, b in zip(least, others, strict=True))
    assert least != others


# ---- overload ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", ["wfq", "scfq", "wf2q+", "wfq-exact", "drr", "eevdf"]
)
def test_an_overloaded_server_is_shared_by_weight(policy):
    """Water-filling: class 0 gets its small demand, the others share the rest 3:1."""
    rng = random.Random(1)
    jobs = sorted(
        (round(rng.uniform(0, 1000) * MS), level, round(rng.uniform(0.5, 1.5) * MS))
        for level, count in ((0, 100), (1, 1500), (2, 1500))
        for _ in range(count)
    )
    weights = {"class-0": 1.0, "class-1": 3.0, "class-2": 1.0}
    options = {"quantum_ns": 2.0 * MS} if policy == "drr" else {}
    run = serve([plane(policy, weights=weights, options=options)], jobs)
    served = [0, 0, 0]
    for task in run.tasks:
        if task.remote_done_ns <= 1000 * MS:
            served[task.level] += task.demand_ns
    offered_ns = sum(demand for _, level, demand in jobs if level == 0)
    assert served[0] == pytest.approx(offered_ns, rel=0.05)
    rest_ns = 1000 * MS - offered_ns
    assert served[1] == pytest.approx(0.75 * rest_ns, rel=0.03)
    assert served[2] == pytest.approx(0.25 * rest_ns, rel=0.05)
