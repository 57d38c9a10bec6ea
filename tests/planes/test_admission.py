"""Admission to a full queue, and rejection at the start of service.

Token buckets are compared with a naive bucket of fractions, and deadlines with the
clock. Controlled delay is compared with a trace worked out by hand from the published
algorithm.
"""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planes import Block, PlaneCore, Task
from planes.admission import (
    EXPIRED,
    OVER_QUOTA,
    THROTTLED,
    CoDel,
    Deadline,
    Exempt,
    Reserve,
    TokenBucket,
)
from planes.admission.token_bucket import Rate
from schedulers import Job, SchedulerConfig, make

MS, S = 1_000_000, 1_000_000_000
CONTROL = Job(number=0, request_class="control")
DATA = Job(number=1, request_class="data")
FAVOURED = frozenset({"control"})


@pytest.mark.parametrize(
    ("rule", "data_until", "control_until"),
    [
        (Block(capacity=10), 10, 10),
        (Reserve(capacity=10, reserved=3, favoured=FAVOURED), 7, 10),
        (Reserve(capacity=10, reserved=0, favoured=FAVOURED), 10, 10),
        (Exempt(capacity=10, favoured=FAVOURED), 10, 10_000),
        (TokenBucket(capacity=10, rates={}), 10, 10),
        (CoDel(capacity=10, target_ns=1, interval_ns=9, favoured=FAVOURED), 10, 10),
        (Deadline(capacity=10, limits_ns={}, favoured=FAVOURED), 10, 10),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_each_rule_admits_a_class_up_to_its_bound(rule, data_until, control_until):
    for queued in (0, 6, 7, 9, 10, 11, 9_999):
        assert rule.admits(DATA, queued) == (queued < data_until)
        assert rule.admits(CONTROL, queued) == (queued < control_until)


@pytest.mark.parametrize("reserved", [-1, 10])
def test_a_reservation_leaves_room_for_the_rest(reserved):
    with pytest.raises(AssertionError):
        Reserve(capacity=10, reserved=reserved, favoured=FAVOURED)


def task(number=0, request_class="data", **fields):
    return Task(number=number, request_class=request_class, **fields)


def plane(rule, policy="fifo"):
    return PlaneCore("data", make(policy, SchedulerConfig()), rule, seats=1)


# ---- the token bucket ---------------------------------------------------------------


class NaiveBucket:
    """Fractional tokens, filled up to the burst and taken one by one (KIP-599)."""

    def __init__(self, rate):
        self.rate, self.tokens, self.at_ns = rate, Fraction(rate.burst), 0

    def fill(self, now_ns):
        earned = Fraction(self.rate.per_s * (now_ns - self.at_ns), S)
        self.tokens = min(self.tokens + earned, Fraction(self.rate.burst))
        self.at_ns = now_ns

    def debt_ends_ns(self):
        wait = max(Fraction(0), -self.tokens) * S / self.rate.per_s
        return -(-(self.at_ns + wait) // 1)


rates = st.builds(Rate, per_s=st.integers(1, 5_000), burst=st.integers(1, 20))


@given(rates, st.lists(st.tuples(st.integers(0, 2 * S), st.booleans()), max_size=40))
def test_a_token_bucket_is_a_bucket_of_tokens(rate, requests):
    rule = TokenBucket(capacity=9, rates={"data": rate})
    naive = NaiveBucket(rate)
    now_ns = 0
    for wait_ns, refusable in requests:
        now_ns += wait_ns
        it = Task(number=0, request_class="data", can_be_refused=refusable)
        reason = rule.judge(it, now_ns)
        naive.fill(now_ns)
        if refusable and naive.tokens < 0:
            assert reason == OVER_QUOTA
        else:
            assert reason is None
            naive.tokens -= 1
        if naive.tokens < 0:
            assert it.throttled_until_ns == naive.debt_ends_ns()
        else:
            assert it.throttled_until_ns <= now_ns


@given(
    rate=rates,
    connections=st.integers(1, 6),
    thinking_ns=st.lists(st.integers(0, 300 * MS), min_size=1, max_size=30),
    service_ns=st.integers(0, 5 * MS),
)
def test_no_more_than_burst_and_rate_and_one_per_connection_are_served(
    rate, connections, thinking_ns, service_ns
):
    """A connection sends again only after its response and its throttle time."""
    rule = TokenBucket(capacity=9, rates={"data": rate})
    free_ns = dict.fromkeys(range(connections), 0)
    served_ns = []
    for wait_ns in thinking_ns * 3:
        connection = min(free_ns, key=free_ns.__getitem__)
        now_ns = free_ns[connection]
        it = task()
        assert rule.judge(it, now_ns) is None
        served_ns.append(now_ns)
        answered_ns = now_ns + service_ns
        free_ns[connection] = max(answered_ns, it.throttled_until_ns) + wait_ns
    for first, since_ns in enumerate(served_ns):
        for last in range(first, len(served_ns)):
            earned = Fraction(rate.per_s * (served_ns[last] - since_ns), S)
            assert last - first + 1 <= rate.burst + earned + connections


def test_a_class_without_a_rate_is_not_limited():
    rule = TokenBucket(capacity=9, rates={"data": Rate(per_s=1, burst=1)})
    for _ in range(100):
        control = task(request_class="control")
        assert rule.judge(control, 0) is None
        assert control.throttled_until_ns == 0


# ---- controlled delay ---------------------------------------------------------------


def test_controlled_delay_follows_the_published_algorithm():
    """``if (queue.lastEmptyTime() < now - N) timeout = M else timeout = N``.

    M = 5 ms, N = 100 ms. Columns: arrival of a request, requests queued before it, and
    its allowed wait, worked out by hand.
    """
    rule = CoDel(
        capacity=9, target_ns=5 * MS, interval_ns=100 * MS, favoured=frozenset()
    )
    trace = [
        (0, 0, 100),  # empty until now
        (40, 1, 100),  # empty 40 ms ago
        (100, 2, 100),  # empty 100 ms ago: not yet longer than N
        (101, 3, 5),  # longer than N: the queue stands
        (250, 1, 5),  # still not drained
        (251, 0, 100),  # drained meanwhile
        (351, 1, 100),
        (352, 1, 5),
    ]
    for at_ms, queued, may_wait_ms in trace:
        it = task()
        rule.entered(it, queued, at_ms * MS)
        assert it.deadline_ns == (at_ms + may_wait_ms) * MS, at_ms
        assert rule.judge(it, it.deadline_ns) is None
        assert rule.judge(it, it.deadline_ns + 1) == EXPIRED


def test_controlled_delay_leaves_the_favoured_alone():
    rule = CoDel(capacity=9, target_ns=5, interval_ns=10, favoured=FAVOURED)
    control = task(request_class="control")
    rule.entered(control, 1, 1000)
    assert control.deadline_ns is None
    assert rule.judge(control, 10**12) is None


# ---- deadlines ----------------------------------------------------------------------


@given(
    received_ns=st.integers(0, 1000),
    limit_ns=st.integers(1, 1000),
    own_ns=st.none() | st.integers(0, 3000),
    cost_ns=st.integers(0, 500),
    turn_ns=st.integers(1000, 4000),
)
def test_only_requests_that_end_in_time_are_served(
    received_ns, limit_ns, own_ns, cost_ns, turn_ns
):
    rule = Deadline(capacity=9, limits_ns={"data": limit_ns}, favoured=FAVOURED)
    it = task(received_ns=received_ns, cost_ns=cost_ns, deadline_ns=own_ns)
    rule.entered(it, 0, 1000)
    due_ns = received_ns + limit_ns
    due_ns = due_ns if own_ns is None else min(due_ns, own_ns)
    reason = rule.judge(it, turn_ns)
    assert (reason is None) == (turn_ns + cost_ns <= due_ns)
    assert (reason == EXPIRED) == (turn_ns > due_ns)


def test_deadlines_of_the_favoured_and_of_classes_without_limit_are_let_pass():
    rule = Deadline(
        capacity=9, limits_ns={"data": 10, "control": 10}, favoured=FAVOURED
    )
    for it in (
        task(request_class="control", received_ns=0),
        task(request_class="control", received_ns=0, deadline_ns=5),
        task(request_class="fetch", received_ns=0),
    ):
        rule.entered(it, 0, 0)
        assert rule.judge(it, 10**12) is None


# ---- within a plane -----------------------------------------------------------------


def test_a_plane_judges_a_task_once_and_counts_delayed_tasks():
    core = plane(Deadline(capacity=9, limits_ns={"data": 10}, favoured=FAVOURED))
    late, in_time = task(0, received_ns=0), task(1, received_ns=95)
    for it in (late, in_time):
        assert core.offer(it, 100)
    assert core.pick(101) is late
    assert late.refusal == EXPIRED
    core.finish(late, 0, 102)
    assert core.pick(102) is in_time
    core.suspend(in_time, 103)
    assert core.pick(10_000) is in_time
    assert in_time.refusal is None
    assert core.held_back == {("data", EXPIRED): 1}
    core.check()


def test_a_plane_counts_throttled_tasks():
    core = plane(TokenBucket(capacity=9, rates={"data": Rate(per_s=1000, burst=1)}))
    for number in range(3):
        assert core.offer(task(number), 0)
        it = core.pick(0)
        assert it.refusal is None
        core.finish(it, 0, 0)
    assert core.held_back == {("data", THROTTLED): 2}
