"""Preemptive threads of the model: cases by hand, invariants, closed forms."""

import random

import numpy as np
import pytest

from experiments.design.config import parse
from experiments.design.config_errors import ExperimentError
from experiments.theory.mg1 import MG1
from experiments.theory.mmc import MMc
from experiments.worlds.model.engine import Engine
from experiments.worlds.model.open_loop import OpenLoop
from experiments.worlds.model.site import Overheads
from experiments.worlds.model.threads import Kernel, Threads
from tests.model.simulation import MS, Run, exponential, make_task, plane, poisson
from tests.model.test_model_world import CONTENT, run

DATA, CONTROL = 1, 0
US = 1_000


def serve(jobs, *, data=1, control=0, cpus=1, slice_ns=MS, wakes=True, **overheads):
    """Serve jobs by ``data`` and ``control`` threads; level 0 is control's."""
    planes = [plane("fifo", seats=data)]
    if control:
        planes.append(plane("fifo", seats=control, name="control"))
    kernel = Kernel(cpus=cpus, slice_ns=slice_ns, wakes=wakes)
    site = Threads(planes, kernel, Overheads(**overheads))
    engine = Engine([site], quantum_ns=MS)
    found = Run()

    def tasks():
        for number, job in enumerate(jobs):
            task = make_task(number, *job)
            task.plane = planes[-1] if task.level == CONTROL else planes[0]
            yield task

    engine.run(OpenLoop(engine, tasks(), found.tasks.append))
    for each in planes:
        each.check()
        assert each.seated == len(each.scheduler) == 0
    found.lost_ns, found.end_ns = site.lost_ns, engine.now_ns
    return found


def ends_us(found):
    """Return the end of each task in microseconds, by number."""
    return {task.number: task.remote_done_ns // US for task in found.tasks}


# ---- by hand ------------------------------------------------------------------------


def test_a_thread_that_wakes_preempts_one_that_runs():
    jobs = [(0, DATA, 10 * MS), (2 * MS, CONTROL, MS)]
    found = serve(jobs, data=1, control=1, slice_ns=3 * MS)
    assert ends_us(found) == {1: 3_000, 0: 11_000}
    data = found.of_level(DATA)[0]
    assert (data.preemptions, data.suspended_ns) == (1, MS)
    assert found.of_level(CONTROL)[0].suspended_ns == 0


def test_without_wake_up_preemption_it_waits_for_the_end_of_a_slice():
    jobs = [(0, DATA, 10 * MS), (2 * MS, CONTROL, MS)]
    found = serve(jobs, data=1, control=1, slice_ns=3 * MS, wakes=False)
    assert ends_us(found) == {1: 4_000, 0: 11_000}
    assert found.of_level(CONTROL)[0].suspended_ns == MS


def test_threads_that_have_received_as_much_take_turns_of_a_slice():
    found = serve([(0, DATA, 3 * MS), (0, DATA, 3 * MS)], data=2, wakes=False)
    assert ends_us(found) == {0: 5_000, 1: 6_000}


def test_a_thread_alone_runs_on_past_its_slices():
    found = serve([(0, DATA, 10 * MS)], data=4, preemption_ns=US)
    assert ends_us(found) == {0: 10_000}
    assert found.tasks[0].preemptions == 0
    assert found.lost_ns == 0


def test_a_request_keeps_its_thread_and_others_wait_in_the_queue():
    """One data thread: the second request starts only after the first has ended."""
    jobs = [(0, DATA, 4 * MS), (0, DATA, 4 * MS), (MS, CONTROL, MS)]
    found = serve(jobs, data=1, control=1)
    began = {task.number: task.dequeued_ns // US for task in found.tasks}
    assert began == {0: 0, 2: 1_000, 1: 5_000}


def test_a_thread_that_goes_on_with_the_next_request_is_not_switched_to():
    jobs = [(0, DATA, MS), (0, DATA, MS), (0, DATA, MS)]
    found = serve(jobs, data=1, switch_ns=10 * US)
    assert found.lost_ns == 10 * US
    assert ends_us(found) == {0: 1_010, 1: 2_010, 2: 3_010}


def test_preemption_and_switches_cost_what_they_are_said_to():
    """Three switches: to the data thread, to control by preemption, and back."""
    jobs = [(0, DATA, 10 * MS), (2 * MS, CONTROL, MS)]
    found = serve(jobs, data=1, control=1, switch_ns=10 * US, preemption_ns=5 * US)
    assert found.lost_ns == 3 * 10 * US + 5 * US
    assert ends_us(found) == {1: 3_015, 0: 11_035}


def test_a_thread_that_wakes_during_a_switch_is_next():
    """Control arrives during the switch to data: the switch completes first."""
    jobs = [(0, DATA, 4 * MS), (2 * MS, CONTROL, MS), (3_015 * US, CONTROL, MS)]
    found = serve(jobs, data=1, control=1, switch_ns=10 * US, slice_ns=3 * MS)
    assert ends_us(found) == {1: 3_010, 2: 4_030, 0: 6_050}


# ---- invariants ---------------------------------------------------------------------


@pytest.mark.parametrize("wakes", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_no_work_is_lost_and_no_cpu_idles_while_a_thread_could_run(seed, wakes):
    rng = random.Random(seed)
    cpus = rng.randint(1, 3)
    jobs = sorted(
        (rng.randrange(50 * MS), rng.choice([DATA, CONTROL]), rng.randint(1, 4 * MS))
        for _ in range(100)
    )
    found = serve(jobs, data=4, control=2, cpus=cpus, slice_ns=500 * US, wakes=wakes)
    for task in found.tasks:
        assert task.attained_ns == task.demand_ns
        local_ns = task.local_done_ns - task.dequeued_ns
        assert local_ns == task.attained_ns + task.suspended_ns
    changes = sorted(
        (at_ns, step)
        for task in found.tasks
        for at_ns, step in ((task.dequeued_ns, 1), (task.local_done_ns, -1))
    )
    # The demand is served: min(busy threads, CPUs), integrated over time, equals it.
    busy_ns = at_work = before_ns = 0
    for at_ns, step in changes:
        busy_ns += min(at_work, cpus) * (at_ns - before_ns)
        at_work, before_ns = at_work + step, at_ns
    assert busy_ns == sum(task.demand_ns for task in found.tasks)


@pytest.mark.parametrize("data", [1, 4])
def test_threads_that_never_sleep_get_equal_shares(data):
    """Control, which wants a whole CPU, gets 1 / (``data`` + 1) of it."""
    slice_ns = MS
    jobs = [(0, DATA, 1_000 * MS) for _ in range(data)]
    jobs += [(0, CONTROL, MS // 4)] * 400
    found = serve(jobs, data=data, control=1, slice_ns=slice_ns)
    last_ns = max(task.remote_done_ns for task in found.of_level(CONTROL))
    assert last_ns == pytest.approx(100 * MS * (data + 1), abs=2 * slice_ns * data)


def test_sleep_is_no_credit_beyond_one_slice():
    """After a second asleep, a long control request preempts for two slices at most."""
    jobs = [(0, DATA, 2_000 * MS), (1_000 * MS, CONTROL, 10 * MS)]
    found = serve(jobs, data=1, control=1, slice_ns=MS)
    # Control begins one slice behind data, so after two slices it is one slice ahead;
    # from then on the threads alternate.
    assert ends_us(found)[1] // 1_000 in range(1_000 + 10 + 8, 1_000 + 10 + 10)


# ---- against closed forms -----------------------------------------------------------


def by_batches(values, batches=20):
    """Return a mean and the half width of its 99.9 % interval, by batch means."""
    means = [part.mean() for part in np.array_split(np.array(values), batches)]
    half = 3.883 * np.std(means, ddof=1) / batches**0.5
    return np.mean(means), half


def assert_near(values, expected, *, precision):
    mean, half = by_batches(values)
    assert half <= precision * expected, (mean, half, expected)
    assert abs(mean - expected) <= half, (mean, half, expected)


def test_many_threads_in_fine_slices_share_the_processor():
    """M/G/1-PS: sojourn times are service times / (1 - load), whatever the variance."""
    sizes = {0.2: 0.9, 3.2: 0.1}

    def size(rng):
        return rng.choices([*sizes], [*sizes.values()])[0]

    load = 0.6
    jobs = poisson(5, 40_000, [load / 0.5], [size])
    found = serve(
        [(at, DATA, demand) for at, _, demand in jobs],
        data=200,
        slice_ns=MS // 50,
        wakes=False,
    )
    for each in sizes:
        sojourns = [
            (task.remote_done_ns - task.received_ns) / MS
            for task in sorted(found.tasks, key=lambda it: it.number)
            if task.demand_ns == round(each * MS)
        ]
        assert_near(sojourns, each / (1 - load), precision=0.15)


def test_threads_on_fewer_cpus_have_the_mean_of_as_many_servers():
    """Exponential sizes: the mean does not depend on the order of service (M/M/c)."""
    load, cpus = 0.8, 3
    jobs = poisson(6, 60_000, [load * cpus], [exponential(1.0)])
    found = serve(
        [(at, DATA, demand) for at, _, demand in jobs],
        data=16,
        cpus=cpus,
        slice_ns=MS // 2,
    )
    known = MMc(servers=cpus, rates=(load * cpus,), mean=1.0)
    tasks = sorted(found.tasks, key=lambda it: it.number)
    sojourns = [(task.remote_done_ns - task.received_ns) / MS for task in tasks]
    assert_near(sojourns, known.fifo() + 1.0, precision=0.15)


def test_a_plane_of_control_that_sleeps_long_preempts_as_priority_does():
    """A slice longer than any busy period: M/G/1 with preemptive-resume priority."""
    rates, means = (0.2, 0.5), (0.5, 1.2)
    jobs = poisson(7, 60_000, rates, [exponential(mean) for mean in means])
    found = serve(jobs, data=1, control=1, slice_ns=10_000 * MS)
    squares = tuple(2 * mean * mean for mean in means)
    known = MG1(rates=rates, means=means, squares=squares).preemptive()
    tasks = sorted(found.tasks, key=lambda it: it.number)
    for level, precision in ((CONTROL, 0.05), (DATA, 0.15)):
        sojourns = [
            (task.remote_done_ns - task.received_ns) / MS
            for task in tasks
            if task.level == level
        ]
        assert_near(sojourns, known[level], precision=precision)


@pytest.mark.parametrize(("share", "pays"), [(0.05, False), (0.25, True)])
def test_the_kernel_is_fair_to_threads_and_not_to_planes(share, pays):
    """One of nine threads is control's: it gains while its load is below a ninth."""
    rates = (0.9 * share / 0.2, 0.9 * (1 - share))
    jobs = list(poisson(8, 20_000, rates, [exponential(0.2), exponential(1.0)]))

    def p95_ms(found):
        return np.percentile(found.sojourns_ms(CONTROL), 95)

    planes = p95_ms(serve(jobs, data=8, control=1, slice_ns=3 * MS))
    one_queue = p95_ms(serve(jobs, data=1))
    assert (planes > 2 * one_queue) == pays
    assert (planes < one_queue / 10) == (not pays)


# ---- in the model world -------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["fifo", "planes"])
def test_a_cpu_for_each_thread_is_a_server_for_each_seat(tmp_path, scheduler):
    arm = {"scheduler": scheduler}
    seats, _ = run(tmp_path, arm, model={"server": "seats"})
    threads, _ = run(tmp_path, arm, model={"server": "threads", "cpus": 9})
    stamps = [name for name in seats if name.endswith("_ns") or name == "preemptions"]
    assert len(stamps) > 10
    assert seats[stamps].equals(threads[stamps])


def test_requests_that_are_turned_away_cost_what_a_refusal_costs(tmp_path):
    keys = {
        "doorkeeper.admission": "deadline",
        "doorkeeper.admission.deadline.ms": "produce:20",
    }
    model = {"server": "threads", "refusal_us": 7.0}
    rows, _ = run(tmp_path, {"scheduler": "fifo"}, model=model, keys=keys)
    refused = rows[rows.error_code != 0]
    assert len(refused) > 50
    assert (refused.service_ns == 7_000).all()


@pytest.mark.parametrize(
    ("scheduler", "model", "complaint"),
    [
        ("fifo", {"granularity_us": 100.0}, "granularity_us has to be 0"),
        ("fifo", {"lock_us": 5.0}, "lock_us has to be 0"),
        ("planes-lending", {}, "cannot lend each other"),
    ],
)
def test_settings_that_threads_cannot_have_are_refused(scheduler, model, complaint):
    arm = {"name": "it", "scheduler": scheduler, "model": {"server": "threads"}}
    content = {**CONTENT, "arms": [*CONTENT["arms"], arm], "model": model}
    with pytest.raises(ExperimentError, match=f"arm 'it': model: .*{complaint}"):
        parse(content)
