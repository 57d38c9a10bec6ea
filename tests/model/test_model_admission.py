"""Admission in the model world: served and refused requests, and their times."""

from __future__ import annotations

import numpy as np
import pytest

from broker.protocol.errors import ErrorCode
from experiments.records.recording import OUTCOMES
from experiments.worlds.model.engine import Engine
from experiments.worlds.model.readers import Connection, Processor, Readers
from experiments.worlds.model.site import Overheads, Site
from experiments.worlds.model.task import ModelTask
from planes import PlaneCore
from planes.admission import CoDel, Deadline, TokenBucket
from planes.admission.token_bucket import Rate
from schedulers import SchedulerConfig, make
from tests.model.test_model_world import CONTENT, run

MS = 1_000_000
REFUSAL_NS = 10_000


def overload(admission, policy="fifo", *, load=1.5, connections=400, seed=3):
    """Offer ``load`` times one server's capacity; return all tasks and the plane."""
    rng = np.random.default_rng(seed)
    plane = PlaneCore("data", make(policy, SchedulerConfig()), admission, seats=1)
    site = Site([plane], Overheads())
    engine = Engine([site], quantum_ns=MS, refusal_ns=REFUSAL_NS)
    processor, done = Processor(), []
    demands = rng.exponential(1 * MS, 3000).astype(int) + 1
    times = np.cumsum(rng.exponential(MS / load, len(demands))).astype(int)
    tasks = [
        ModelTask(
            number,
            int(at_ns),
            int(demand_ns),
            request_class="produce",
            cost_ns=int(demand_ns),
            connection=number % connections,
        )
        for number, (at_ns, demand_ns) in enumerate(zip(times, demands, strict=True))
    ]
    readers = Readers(
        engine,
        iter(tasks),
        connections=[Connection(processor) for _ in range(connections)],
        route=lambda task: plane,
        done=done.append,
        class_aware=False,
    )
    engine.run(readers)
    plane.check()
    assert sorted(task.number for task in done) == list(range(len(tasks)))
    return done, plane


def test_with_deadlines_what_is_served_is_in_time_and_the_rest_could_not_be():
    """Known costs, no preemption: a request is served only if it can be in time."""
    limit_ns = 20 * MS
    rule = Deadline(capacity=500, limits_ns={"produce": limit_ns}, favoured=frozenset())
    done, plane = overload(rule)
    refused = [task for task in done if task.refusal]
    served = [task for task in done if not task.refusal]
    assert all(it.response_sent_ns <= it.received_ns + limit_ns for it in served)
    assert all(
        it.dequeued_ns + it.cost_ns > it.received_ns + limit_ns for it in refused
    )
    assert all(task.attained_ns == REFUSAL_NS for task in refused)
    # In order of arrival and with one limit for all, no request waits beyond its limit.
    assert plane.held_back == {("produce", "hopeless"): len(refused)}
    # A third of 1.5 times the capacity is refused, and no more work than that. The
    # refused requests are few and large, since large ones miss the limit first.
    refused_ns = sum(task.cost_ns for task in refused)
    offered_ns = sum(task.cost_ns for task in done)
    assert refused_ns / offered_ns == pytest.approx(1 / 3, abs=0.05)
    assert len(refused) / len(done) < 0.2


def test_without_a_rule_nearly_everything_is_late_under_the_same_overload():
    done, _ = overload(Deadline(capacity=500, limits_ns={}, favoured=frozenset()))
    late = [it for it in done if it.response_sent_ns > it.received_ns + 20 * MS]
    assert len(late) > 0.9 * len(done)


def under_controlled_delay(policy):
    rule = CoDel(
        capacity=500, target_ns=5 * MS, interval_ns=100 * MS, favoured=frozenset()
    )
    return overload(rule, policy)[0]


@pytest.mark.parametrize("policy", ["fifo", "adaptive-lifo"])
def test_controlled_delay_bounds_the_wait_of_what_is_served(policy):
    done = under_controlled_delay(policy)
    limits = {task.deadline_ns - task.enqueued_ns for task in done}
    assert limits == {5 * MS, 100 * MS}
    for task in done:
        assert (task.dequeued_ns > task.deadline_ns) == bool(task.refusal)
    # The server loses only the work of refusals.
    assert sum(it.attained_ns for it in done) / done[-1].response_sent_ns > 0.98
    # Refusals are sent soon.
    told = [it.response_sent_ns - it.enqueued_ns for it in done if it.refusal]
    assert max(told) <= 2 * 100 * MS


def test_newest_first_serves_more_while_it_is_fresh():
    fresh = {}
    for policy in ("fifo", "adaptive-lifo"):
        served = [it for it in under_controlled_delay(policy) if not it.refusal]
        waits = np.array([task.dequeued_ns - task.enqueued_ns for task in served])
        fresh[policy] = np.mean(waits <= 5 * MS)
    assert fresh["adaptive-lifo"] > 1.5 * fresh["fifo"]


def test_a_throttled_connection_is_not_read_until_its_debt_is_paid():
    rate = Rate(per_s=200, burst=10)
    connections = 20
    rule = TokenBucket(capacity=500, rates={"produce": rate})
    done, plane = overload(rule, load=0.8, connections=connections)
    assert not any(task.refusal for task in done)
    served_ns = sorted(task.dequeued_ns for task in done)
    for count in (1, 50, 1000, 2999):
        spans_ns = np.subtract(served_ns[count:], served_ns[:-count])
        allowed = rate.burst + connections + spans_ns * rate.per_s / 1e9
        assert (count + 1 <= allowed + 1e-6).all()
    per_s = len(done) / (served_ns[-1] / 1e9)
    assert per_s == pytest.approx(rate.per_s, rel=0.02)
    by_connection = {}
    for task in sorted(done, key=lambda task: task.received_ns):
        before = by_connection.get(task.connection)
        if before is not None:
            assert task.received_ns >= before.throttled_until_ns
        by_connection[task.connection] = task
    assert plane.held_back["produce", "throttled"] > 0.9 * len(done)


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"doorkeeper.admission": "codel"}, ErrorCode.request_timed_out),
        (
            {
                "doorkeeper.admission": "deadline",
                "doorkeeper.admission.deadline.ms": "produce:30",
            },
            ErrorCode.request_timed_out,
        ),
    ],
)
def test_a_recording_says_who_was_turned_away_and_loses_nobody(tmp_path, keys, code):
    arm = {"scheduler": "fifo", "set": keys}
    rows, _ = run(tmp_path, arm)
    assert rows.outcome.isin(OUTCOMES).all()
    refused = rows[rows.error_code != 0]
    assert len(refused) > 100
    assert set(refused.error_code) == {int(code)}
    assert set(refused.outcome) == {"timeout"}
    assert set(refused["class"]) == {"produce"}
    assert (refused.service_ns == REFUSAL_NS).all()
    plain, _ = run(tmp_path, {"scheduler": "fifo"})
    assert len(rows) == len(plain)
    fewer_late = rows[rows.outcome == "ok"].client_done_ns
    assert fewer_late.notna().all()


def test_the_experiment_sets_the_cost_of_a_refusal(tmp_path):
    keys = {
        "doorkeeper.admission": "codel",
        "doorkeeper.admission.favoured": "",
    }
    arm = {"scheduler": "fifo", "set": keys}
    rows, _ = run(tmp_path, arm, model={"refusal_us": 250.0})
    refused = rows[rows.error_code != 0]
    assert set(refused.service_ns) == {250_000}
    assert set(refused["class"]) == {"control", "produce"}
    assert len(CONTENT["workload"]["traffic"]) == 2
