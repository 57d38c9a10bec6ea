"""Identities of the model's engine that hold exactly on every sample path.

`test_worlds_agree` and `test_policy_oracles` compare the means with theory.
"""

import random

import pytest

from planes import Cpu
from tests.model.simulation import MS, plane, serve


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


@pytest.mark.parametrize("seed", range(3))
def test_busy_periods_are_those_of_one_server_that_never_idles(seed):
    """FIFO only; `test_policy_oracles` compares the other policies with FIFO."""
    jobs = busy_trace(seed)
    run = serve([plane("fifo")], jobs)
    ends, pending = [], 0
    events = [(task.received_ns, 1) for task in run.tasks]
    events += [(task.remote_done_ns, -1) for task in run.tasks]
    # A departure and an arrival in the same instant end one busy period.
    for at_ns, change in sorted(events):
        pending += change
        if pending == 0:
            ends.append(at_ns)
    assert ends == unfinished_work(jobs)


@pytest.mark.parametrize("policy", ["fifo", "priority", "wfq"])
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
    # At most one segment per busy period of the urgent class; its busy periods may
    # follow one another closely.
    late = [a - b for a, b in zip(among, ideal, strict=True)]
    assert min(late) >= 0
    assert max(late) <= segment_ns
    assert max(late) > 0


def test_overheads_are_lost_and_billed_to_no_request():
    jobs = [(0, 1, 10 * MS), (2 * MS, 0, MS), (6 * MS, 0, MS)]
    run = serve([plane("priority")], jobs, preemption_ns=MS // 10, switch_ns=MS // 100)
    (data,) = run.of_level(1)
    assert data.preemptions == 2
    # Two preemptions and five context switches.
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
    """``planes.Cpu`` alternates: two backlogged planes get half of the CPU each."""
    assert Cpu.__module__ == "planes.cpu"
    two = [plane("fifo"), plane("fifo", name="control")]
    jobs = [(0, k % 2, MS) for k in range(200)]
    run = serve(two, jobs, cpu=True, route=lambda task: task.level)
    firsts = run.tasks[:100]
    assert sum(task.level for task in firsts) in range(48, 53)
