"""Laws of the policies that promise seats, floors, ceilings or turns."""

import random
from itertools import pairwise

import pytest

from schedulers import Job, SchedulerConfig, make
from tests.model.simulation import MS, make_task, plane, serve

# ---- mclock -------------------------------------------------------------------------


def flood(seed, *, levels=(0, 1), each_ms=1.0, until_ms=2_000, rate=1.5):
    """Offer ``rate`` times the server's capacity in each class."""
    rng = random.Random(seed)
    jobs = []
    for level in levels:
        now_ms = 0.0
        while now_ms < until_ms:
            jobs.append((round(now_ms * MS), level, round(each_ms * MS)))
            now_ms += rng.expovariate(rate / each_ms)
    return sorted(jobs)


def shares(run, until_ms=2_000):
    served = {}
    for task in run.tasks:
        if task.remote_done_ns <= until_ms * MS:
            served[task.level] = served.get(task.level, 0) + task.demand_ns
    return {level: ns / (until_ms * MS) for level, ns in served.items()}


def mclock(weights=None, **options):
    named = {name.replace("_", ".", 1): value for name, value in options.items()}
    named = {name.replace("class_", "class-"): v for name, v in named.items()}
    return plane("mclock", weights=weights or {}, options=named)


def test_a_floor_is_kept_whatever_the_weights():
    weights = {"class-0": 1.0, "class-1": 99.0}
    run = serve([mclock(weights, reservation_class_0=0.3)], flood(1))
    assert shares(run)[0] == pytest.approx(0.3, abs=0.02)


def test_a_ceiling_is_kept_even_if_the_server_idles():
    run = serve([mclock(limit_class_0=0.4)], flood(2, levels=(0,)))
    assert shares(run)[0] == pytest.approx(0.4, abs=0.01)


def test_between_floor_and_ceiling_the_weights_decide():
    weights = {"class-0": 3.0, "class-1": 1.0}
    run = serve([mclock(weights)], flood(3))
    assert shares(run)[0] == pytest.approx(0.75, abs=0.02)
    capped = serve([mclock(weights, limit_class_0=0.5)], flood(3))
    assert shares(capped)[0] == pytest.approx(0.5, abs=0.02)
    assert shares(capped)[1] == pytest.approx(0.5, abs=0.02)


def test_wrong_estimates_do_not_change_a_ceiling():
    """Clocks are corrected by the true cost."""
    core = mclock(limit_class_0=0.4)
    jobs = flood(4, levels=(0,))

    def tasks():
        for number, (at_ns, level, need_ns) in enumerate(jobs):
            yield make_task(number, at_ns, level, need_ns, cost_ns=need_ns // 5)

    run = serve([core], tasks())
    assert shares(run)[0] == pytest.approx(0.4, abs=0.01)


# ---- reserved seats -----------------------------------------------------------------


def reserved(seats, **options):
    named = {name.replace("_", "."): value for name, value in options.items()}
    return make("reserved", SchedulerConfig(seats=seats, options=named))


def fill(policy, *classes):
    for number, request_class in enumerate(classes):
        policy.arrive(Job(number=number, request_class=request_class), 0)
    picked = iter(lambda: policy.pick(0), None)
    return [job.request_class[0] for job in picked]


def test_others_leave_reserved_seats_idle_and_the_class_may_take_theirs():
    assert fill(reserved(4, seats_control=2), *["data"] * 4) == ["d", "d"]
    assert fill(reserved(4, seats_control=2), *["control"] * 5) == ["c"] * 4
    mixed = ["data", "data", "data", "control", "control"]
    assert fill(reserved(4, seats_control=2), *mixed) == ["c", "c", "d", "d"]


def test_without_stealing_each_keeps_to_its_own():
    policy = reserved(4, seats_control=1, steal=0)
    assert fill(policy, *["control"] * 3, *["data"] * 4) == ["c", "d", "d", "d"]


def test_a_reservation_never_takes_the_last_seat():
    assert fill(reserved(1, seats_control=3), "data", "data") == ["d"]
    assert fill(reserved(1, seats_control=3, steal=0), "control") == ["c"]


def test_a_reserved_seat_is_free_for_the_next_of_its_class():
    policy = reserved(2, seats_control=1)
    policy.arrive(Job(number=0, request_class="control"), 0)
    job = policy.pick(0)
    for number in (1, 2):
        policy.arrive(Job(number=number, request_class="data"), 0)
    assert policy.pick(0).number == 1
    assert policy.pick(0) is None
    policy.leave(job, 5, done=True)
    assert policy.pick(5) is None
    policy.arrive(Job(number=3, request_class="control"), 5)
    assert policy.pick(5).number == 3


# ---- 2DFQ ---------------------------------------------------------------------------


def longest_gap_ms(policy):
    """Serve four cheap and four expensive backlogged flows on four seats.

    Return the longest time in which some cheap flow was not served.
    """
    jobs = [(0, level, MS) for level in range(4) for _ in range(900)]
    jobs += [(0, level, 60 * MS) for level in range(4, 8) for _ in range(16)]
    run = serve([plane(policy, seats=4)], jobs)
    gaps = []
    for level in range(4):
        starts = sorted(task.dequeued_ns for task in run.of_level(level))
        gaps += [later - earlier for earlier, later in pairwise(starts)]
    return max(gaps) / MS


@pytest.mark.parametrize("rival", ["scfq", "wf2q+", "wfq-exact"])
def test_dear_requests_do_not_take_all_seats_at_once_under_2dfq(rival):
    assert longest_gap_ms("2dfq") < 0.5 * longest_gap_ms(rival)


# ---- FairCallQueue ------------------------------------------------------------------


def call_queue(**options):
    return make("fair-call-queue", SchedulerConfig(options={"by_count": 1, **options}))


def queues_of(policy):
    return [sorted({job.flow for job in queue}) for queue in policy._queues]


def test_a_heavy_user_sinks_and_a_light_one_does_not():
    policy = call_queue()
    for number in range(100):
        flow = "light" if number % 10 == 0 else "heavy"
        policy.arrive(Job(number=number, flow=flow), 0)
    queues = queues_of(policy)
    assert queues[3] == ["heavy"]
    assert "light" in queues[0]
    assert sum(1 for job in policy._queues[3] if job.flow == "heavy") > 80


def test_past_service_is_halved():
    policy = call_queue(decay_ns=100)
    for number in range(64):
        policy.arrive(Job(number=number, flow="once"), 0)
    for number in range(64, 80):
        policy.arrive(Job(number=number, flow="steady"), 550)
    policy.arrive(Job(number=80, flow="once"), 550)
    # 64 has decayed to 2, a ninth of 2 + 16: below an eighth, hence the first queue.
    assert policy._queues[0][-1].number == 80


def test_queues_are_served_eight_to_four_to_two_to_one():
    policy = call_queue()
    # Fill each queue directly, since the queue of an arrival depends on history.
    for index, queue in enumerate(policy._queues):
        queue.extend(Job(number=100 * index + n, flow=str(index)) for n in range(30))
    order = [policy.pick(0).flow for _ in range(30)]
    assert order[:15] == ["0"] * 8 + ["1"] * 4 + ["2"] * 2 + ["3"]
    assert order[:15] == order[15:]
