"""Counters of law violations at their bounds: the largest legal value, and one more.

``tests/model/test_law_counters.py`` tests them over whole runs.
"""

import pytest

from planes import Block, PlaneCore, Task
from planes.laws import (
    ACCOUNTING,
    FAIRNESS,
    LAWS,
    ORDER,
    STARVATION,
    WINDOW_NS,
    Laws,
    Tolerance,
    total,
)
from schedulers import SchedulerConfig, make

PATIENCE_NS, QUANTUM_NS = 1_000, 100
WEIGHTS = {"a": 1.0, "b": 4.0}


def laws_of(policy="fifo", seats=2):
    config = SchedulerConfig(weights=WEIGHTS, quantum_ns=QUANTUM_NS)
    plane = PlaneCore("p", make(policy, config), Block(capacity=99), seats=seats)
    return Laws(plane, Tolerance(PATIENCE_NS, QUANTUM_NS, config.weight))


def task(number, came_ns=10, started_ns=20, *, flow="a", **stamps):
    made = Task(number=number, flow=flow, request_class=flow)
    made.enqueued_ns, made.dequeued_ns = came_ns, started_ns
    for name, stamp in stamps.items():
        setattr(made, name, stamp)
    return made


def waiting(flow):
    return Task(number=99, flow=flow, request_class=flow)


def counts(laws, now_ns=0):
    """Return the violated laws and their counts."""
    return {law: count for law, count in laws.totals(now_ns).items() if count}


def test_a_plane_that_does_nothing_breaks_no_law():
    laws = laws_of()
    assert laws.totals(10**9) == dict.fromkeys(LAWS, 0)


# ---- starvation ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waited_ns", "suspended_ns", "starved"),
    [(1_000, 1_000, 0), (1_001, 0, 1), (0, 1_001, 1), (1_001, 1_001, 1)],
)
def test_patience_ends_after_its_bound(waited_ns, suspended_ns, starved):
    laws = laws_of()
    for number in range(3):
        came_ns = 50 + number
        late = task(number, came_ns, came_ns + waited_ns, suspended_ns=suspended_ns)
        laws.finished(late, number, 9_999)
    assert counts(laws) == ({STARVATION: 3} if starved else {})


def test_a_starving_task_counts_from_its_own_stamp():
    laws = laws_of(seats=3)
    plane = laws.plane
    for number in range(4):
        assert plane.offer(Task(number=number), 100)
    suspended, parked, _ = (plane.pick(300) for _ in range(3))
    plane.suspend(suspended, 500)
    plane.park(parked, 700)
    plane.resume(parked, 900)
    # The three tasks wait since 100, since 500, and, after its local work, since 700.
    for now_ns, starving in [
        (1_100, 0),
        (1_101, 1),
        (1_501, 2),
        (1_700, 2),
        (1_701, 3),
    ]:
        assert counts(laws, now_ns) == ({STARVATION: starving} if starving else {})


# ---- order --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starts", "broken"),
    [
        # (arrival, start), in order of their ends.
        ([(10, 20), (11, 20)], 0),
        ([(11, 20), (10, 20)], 0),
        ([(10, 20), (10, 19)], 0),
        ([(10, 20), (11, 19)], 1),
        ([(11, 20), (10, 21)], 1),
        ([(11, 20), (10, 19)], 0),
        ([(12, 20), (10, 21), (11, 22)], 2),
        ([(10, 20), (11, 19), (12, 18)], 2),
    ],
)
@pytest.mark.parametrize("policy", ["fifo", "srpt"])
def test_of_one_flow_the_earlier_starts_first(policy, starts, broken):
    laws = laws_of(policy)
    for number, (came_ns, started_ns) in enumerate(starts):
        # Each task has its own connection.
        laws.finished(task(number, came_ns, started_ns), number, 30)
    # Other flows have orders of their own.
    laws.finished(task(9, 1, 99, flow="b"), 9, 100)
    if policy == "srpt":
        broken = 0  # srpt does not declare that it keeps the order of a flow.
    assert counts(laws) == ({ORDER: broken} if broken else {})


@pytest.mark.parametrize(
    ("numbers", "broken"),
    [([0, 1, 2], 0), ([1, 0], 1), ([2, 0, 1], 2), ([1, 0, 2], 1), ([3, 3], 0)],
)
def test_a_connection_is_answered_in_order(numbers, broken):
    laws = laws_of("srpt")
    for number in numbers:
        laws.finished(task(number), 7, 30)
        laws.finished(task(10 - number), 100 + number, 30)
    assert counts(laws) == ({ORDER: broken} if broken else {})


@pytest.mark.parametrize(("others", "remembered"), [(9_000, True), (11_000, False)])
def test_about_so_many_flows_and_connections_are_remembered(others, remembered):
    """Entries are bounded, so a long-running broker does not keep one per past flow."""
    laws = laws_of()
    laws.finished(task(5), 0, 0)
    for number in range(others):
        flow = f"flow {number}"
        laws.finished(task(number, flow=flow), 1 + number, WINDOW_NS - 1)
    laws.finished(task(others), 1, WINDOW_NS)
    laws.finished(task(4), 0, WINDOW_NS + 1)
    assert counts(laws) == ({ORDER: 1} if remembered else {})


# ---- accounting ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queued", "seated", "right"),
    [
        (1, 0, True),
        (1, 2, True),
        (2, 1, False),
        (0, 1, False),
        (1, 3, False),
        (1, -1, False),
    ],
)
def test_the_counts_of_a_plane_match_its_tasks(queued, seated, right):
    laws = laws_of()
    assert laws.plane.offer(Task(number=0), 0)
    laws.plane.queued, laws.plane.seated = queued, seated
    laws.finished(task(1), 1, 5)
    assert counts(laws) == ({} if right else {ACCOUNTING: 1})


def test_a_preempted_task_is_not_in_the_queue():
    laws = laws_of()
    assert laws.plane.offer(Task(number=0), 0)
    laws.plane.suspend(laws.plane.pick(0), 0)
    laws.finished(task(1), 1, 5)
    assert counts(laws) == {}


def test_a_plane_is_looked_at_once_per_window():
    laws = laws_of()
    laws.plane.queued = 1
    for now_ns in (0, 1, WINDOW_NS - 1, WINDOW_NS, WINDOW_NS + 1):
        laws.finished(task(now_ns), 1, now_ns)
    assert counts(laws) == {ACCOUNTING: 2}


# ---- fairness -----------------------------------------------------------------------


def ahead(excess_ns, *, late="a", came_ns=0, seats=1, quantum_costs=True):
    """Serve one flow while the other waits, up to the bound plus ``excess_ns``."""
    laws = laws_of("wfq", seats)
    first = "b" if late == "a" else "a"
    assert laws.plane.offer(waiting(late), came_ns)
    laws.finished(task(0, flow=late, attained_ns=0), 0, 0)  # A window begins.
    dear_ns = QUANTUM_NS if quantum_costs else 700
    slack = QUANTUM_NS / WEIGHTS[late] + dear_ns / WEIGHTS[first]
    allowed_ns = round((2 * seats + 1) * slack * WEIGHTS[first]) + excess_ns
    # The service of the waiting flow reduces its lag.
    laws.finished(task(1, 1, 1, flow=late, attained_ns=80), 1, 1)
    allowed_ns += round(80 / WEIGHTS[late] * WEIGHTS[first])
    number = 2
    while allowed_ns > 0:
        cost_ns = min(dear_ns, allowed_ns)
        laws.finished(
            task(number, number, number, flow=first, attained_ns=cost_ns), 1, 1
        )
        allowed_ns -= cost_ns
        number += 1
    # The bill of a task is counted when the next task finishes.
    laws.finished(task(number, number, number, flow=first), 1, 1)
    laws.finished(task(number + 1, number + 1, number + 1, flow=first), 1, WINDOW_NS)
    return counts(laws)


@pytest.mark.parametrize("late", ["a", "b"])
@pytest.mark.parametrize("seats", [1, 3])
@pytest.mark.parametrize("quantum_costs", [True, False])
def test_a_flow_gets_ahead_of_one_that_waits_by_the_bound_and_no_more(
    late, seats, quantum_costs
):
    given = {"late": late, "seats": seats, "quantum_costs": quantum_costs}
    assert ahead(0, **given) == {}
    assert ahead(1, **given) == {FAIRNESS: 1}


def test_a_flow_that_came_within_the_window_is_owed_nothing():
    assert ahead(10_000, came_ns=0) == {FAIRNESS: 1}
    assert ahead(10_000, came_ns=1) == {}


def test_each_window_begins_anew():
    laws = laws_of("wfq")
    assert laws.plane.offer(waiting("a"), 0)
    for number in range(60):
        # Far beyond the bound over all windows, far below it in each window.
        served = task(number, number, number, flow="b", attained_ns=QUANTUM_NS)
        laws.finished(served, 1, number * WINDOW_NS)
    assert counts(laws) == {}


def test_a_policy_that_does_not_share_is_not_held_to_shares():
    laws = laws_of("fifo")
    assert laws.plane.offer(waiting("a"), 0)
    for number in range(100):
        served = task(number, number, number, flow="b", attained_ns=QUANTUM_NS)
        laws.finished(served, 1, number * WINDOW_NS // 50)
    assert counts(laws) == {}


# ---- sums over planes ---------------------------------------------------------------


def test_several_planes_are_summed():
    both = [laws_of(), laws_of()]
    for laws in both:
        laws.finished(task(0, 0, PATIENCE_NS + 1), 1, 9_999)
    both[1].plane.idled = 3
    lazy = laws_of("mclock")
    lazy.plane.idled = 5  # mclock declares that it may idle.
    found = total([*both, lazy], 9_999)
    assert found == {
        **dict.fromkeys(LAWS, 0),
        STARVATION: 2,
        "work_conservation": 3,
    }


# ---- reconfiguration ----------------------------------------------------------------


def test_fairness_is_judged_by_new_weights_once_the_plane_was_empty():
    """Flow b waits while a is served, first with equal weight, then with a quarter."""
    laws = laws_of("wfq", seats=1)
    plane = laws.plane
    even = SchedulerConfig(weights={"a": 1.0, "b": 1.0}, quantum_ns=QUANTUM_NS)

    def window(start_ns):
        """Serve a hundred quanta of a while b waits, for one window."""
        assert plane.offer(waiting("b"), start_ns)
        for number in range(100):
            served = task(number, start_ns, start_ns, attained_ns=QUANTUM_NS)
            laws.finished(served, number, start_ns + number)
        laws.finished(task(200, start_ns, start_ns), 200, start_ns + WINDOW_NS)
        job = plane.pick(start_ns + WINDOW_NS)
        plane.finish(job, 1, start_ns + WINDOW_NS)

    laws.finished(task(0), 0, 0)
    window(WINDOW_NS)
    before = laws.counts[FAIRNESS]
    laws.reconfigure(Tolerance(PATIENCE_NS, QUANTUM_NS, even.weight))
    window(3 * WINDOW_NS)
    assert laws.counts[FAIRNESS] == before
    laws.finished(task(300), 300, 9 * WINDOW_NS)
    window(10 * WINDOW_NS)
    window(12 * WINDOW_NS)
    assert laws.counts[FAIRNESS] > before
