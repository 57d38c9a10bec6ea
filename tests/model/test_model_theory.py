"""The model world against theory: means within intervals, identities exactly."""

import math
import random
import statistics

import pytest

from experiments.theory.mg1 import MG1, exponential_segments
from experiments.theory.mmc import MMc
from planes import Cpu
from tests.model.simulation import MS, exponential, plane, poisson, serve

RATES_A, MEANS_A = (0.05, 0.1875), (1, 4)
A = MG1.exponential(RATES_A, MEANS_A)
DRAWS_A = [exponential(mean) for mean in MEANS_A]
C = MMc(servers=8, rates=(0.085, 1.615), mean=4)
# Student's t for 11 degrees of freedom, 99.9 % two-sided.
REPLICATIONS, T_999 = 12, 4.437


def interval(values):
    """Return mean and half-width over replications."""
    mean = statistics.fmean(values)
    return mean, T_999 * statistics.stdev(values) / math.sqrt(len(values))


def agree(measure, expected, *, widest):
    """Assert that theory lies in the interval of replications, and that it is narrow.

    ``measure(seed)`` gives one value per class; ``widest`` is the half-width allowed,
    relative to the expectation.
    """
    columns = zip(*(measure(seed) for seed in range(REPLICATIONS)), strict=True)
    for values, theory in zip(columns, expected, strict=True):
        mean, half = interval(values)
        assert abs(mean - theory) <= half, (mean, half, theory)
        assert half <= widest * theory, (mean, half, theory)


def mean_waits(planes_of, rates, draws, *, count, route=lambda task: 0, **overheads):
    def measure(seed):
        jobs = poisson(seed, count, rates, draws)
        run = serve(planes_of(), jobs, route=route, **overheads)
        return [statistics.fmean(run.waits_ms(k)) for k in range(len(rates))]

    return measure


def set_a(policy, **overheads):
    return mean_waits(
        lambda: [plane(policy)], RATES_A, DRAWS_A, count=6_000, **overheads
    )


def set_c(*policies_and_seats, route=lambda task: 0):
    return mean_waits(
        lambda: [plane(policy, seats=seats) for policy, seats in policies_and_seats],
        C.rates,
        [exponential(C.mean)] * 2,
        count=6_000,
        route=route,
    )


def test_fifo_on_set_a():
    agree(set_a("fifo"), (A.fifo(), A.fifo()), widest=0.5)


def test_preemptive_priority_on_set_a():
    expected = [t - b for t, b in zip(A.preemptive(), MEANS_A, strict=True)]
    agree(set_a("priority"), expected, widest=0.4)


@pytest.mark.parametrize("segment_ms", [0.25, 1, 4])
def test_preemption_points_on_set_a(segment_ms):
    squares = [exponential_segments(4, segment_ms)]
    measure = set_a("priority", granularity_ns=round(segment_ms * MS))
    agree(lambda seed: measure(seed)[:1], [A.checkpointed(squares)], widest=0.25)


def test_fifo_on_set_c():
    agree(set_c(("fifo", 8)), (C.fifo(), C.fifo()), widest=0.5)


def test_preemptive_priority_on_set_c():
    """Control waits for no one but seven other controls: in effect never."""
    measure = set_c(("priority", 8))
    agree(lambda seed: measure(seed)[1:], [C.preemptive()[1] - C.mean], widest=0.5)
    assert measure(0)[0] == pytest.approx(C.preemptive()[0] - C.mean, abs=1e-6)


def test_planes_of_one_and_seven_on_set_c():
    measure = set_c(("fifo", 1), ("fifo", 7), route=lambda task: task.level)
    agree(measure, C.split((1, 7)), widest=0.5)


# ---- identities of every path, exact -------------------------------------------------


def busy_trace(seed, *, levels=3, count=400):
    rng = random.Random(seed)
    now_ns, jobs = 0, []
    for _ in range(count):
        now_ns += rng.choice((0, rng.randrange(3 * MS), rng.randrange(9 * MS)))
        jobs.append((now_ns, rng.randrange(levels), rng.randrange(1, 6 * MS)))
    return jobs


def unfinished_work(jobs):
    """Return the ends of the busy periods of one server that never idles."""
    ends, free_ns = [], None
    for arrival_ns, _, demand_ns in jobs:
        if free_ns is None or arrival_ns > free_ns:
            ends.append(free_ns)
            free_ns = arrival_ns
        free_ns += demand_ns
    return [*ends[1:], free_ns]


CONSERVING = ["fifo", "priority", "wfq"]


@pytest.mark.parametrize("policy", CONSERVING)
@pytest.mark.parametrize("seed", range(3))
def test_busy_periods_are_the_same_under_every_policy(policy, seed):
    jobs = busy_trace(seed)
    run = serve([plane(policy)], jobs)
    ends, pending = [], 0
    events = [(task.received_ns, 1) for task in run.tasks]
    events += [(task.remote_done_ns, -1) for task in run.tasks]
    # A departure and an arrival in the same instant do not join two busy periods.
    for at_ns, change in sorted(events):
        pending += change
        if pending == 0:
            ends.append(at_ns)
    assert ends == unfinished_work(jobs)


@pytest.mark.parametrize("policy", CONSERVING)
def test_one_cpu_is_as_busy_under_two_planes_as_under_one(policy):
    jobs = busy_trace(7)
    two = [plane(policy), plane("fifo", name="control")]
    run = serve(two, jobs, cpu=True, route=lambda task: task.level == 0)
    assert max(task.remote_done_ns for task in run.tasks) == unfinished_work(jobs)[-1]
    assert run.lost_ns == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_urgent_never_notice_the_rest_under_preemption(seed):
    jobs = busy_trace(seed)
    alone = [job for job in jobs if job[1] == 0]
    ends = [
        [task.remote_done_ns for task in serve([plane("priority")], those).of_level(0)]
        for those in (jobs, alone)
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("granularity_ms", [0.5, 2])
def test_the_urgent_are_late_by_one_segment_at_most(granularity_ms):
    jobs = busy_trace(5)
    alone = [job for job in jobs if job[1] == 0]
    segment_ns = round(granularity_ms * MS)
    among, ideal = (
        [
            task.remote_done_ns
            for task in serve(
                [plane("priority")], those, granularity_ns=segment_ns
            ).of_level(0)
        ]
        for those in (jobs, alone)
    )
    # One segment per busy period of the urgent; they may follow one another closely.
    late = [a - b for a, b in zip(among, ideal, strict=True)]
    assert min(late) >= 0
    assert max(late) <= segment_ns
    assert max(late) > 0


def test_overheads_are_lost_and_billed_to_no_request():
    jobs = [(0, 1, 10 * MS), (2 * MS, 0, MS), (6 * MS, 0, MS)]
    run = serve([plane("priority")], jobs, preemption_ns=MS // 10, switch_ns=MS // 100)
    (data,) = run.of_level(1)
    assert data.preemptions == 2
    # Two preemptions and five starts of another task than the one before.
    assert run.lost_ns == 2 * MS // 10 + 5 * MS // 100
    assert run.end_ns == 12 * MS + run.lost_ns
    assert sum(task.attained_ns for task in run.tasks) == 12 * MS


def test_one_cpu_serves_planes_in_turn_and_servers_serve_them_at_once():
    jobs = [(0, 0, 10 * MS), (0, 1, 10 * MS)]
    for cpu, ends_ms in ((True, 20), (False, 10)):
        two = [plane("fifo"), plane("fifo", name="control")]
        run = serve(two, jobs, cpu=cpu, route=lambda task: task.level)
        assert run.end_ns == ends_ms * MS


def test_the_engine_drives_the_same_cpu_as_the_broker():
    """Turn-taking is ``planes.Cpu``'s: two backlogged planes get half each."""
    assert Cpu.__module__ == "planes.cpu"
    two = [plane("fifo"), plane("fifo", name="control")]
    jobs = [(0, k % 2, MS) for k in range(200)]
    run = serve(two, jobs, cpu=True, route=lambda task: task.level)
    firsts = run.tasks[:100]
    assert sum(task.level for task in firsts) in range(48, 53)
