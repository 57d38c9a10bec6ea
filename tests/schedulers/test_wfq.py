"""Laws of ``wfq``: the SFQ(D) bound, weights, cost correction, idle flows."""

import random
from fractions import Fraction

import pytest

from schedulers import Job, SchedulerConfig, Wfq, make
from tests.schedulers.fairness import WEIGHTS, largest_costs, random_jobs, widest_gaps


@pytest.mark.parametrize("seats", [1, 2, 4, 8])
@pytest.mark.parametrize("guess", ["true", "none", "wild"])
def test_two_backlogged_flows_stay_within_the_bound_of_sfq_d(seats, guess):
    """(D + 1)(L_i/w_i + L_j/w_j), where L is a flow's largest cost or estimate."""
    for seed in range(15):
        rng = random.Random(f"{guess}/{seats}/{seed}")
        guesses = {
            "true": lambda true_ns: true_ns,
            "none": lambda true_ns: 0,
            "wild": lambda true_ns, rng=rng: rng.randrange(3 * true_ns),
        }
        jobs = random_jobs(rng, guesses[guess])
        config = SchedulerConfig(weights=WEIGHTS, seats=seats)
        largest = largest_costs(jobs)
        for (i, j), gap in widest_gaps(Wfq(config), jobs, seats).items():
            bound = (seats + 1) * sum(
                Fraction(largest[flow]) / Fraction(WEIGHTS[flow]) for flow in (i, j)
            )
            assert gap <= bound, (seed, i, j)


def backlog(policy, flows, each, cost_ns=100):
    number = 0
    for _ in range(each):
        for flow in flows:
            job = Job(number=number, request_class=flow, flow=flow, cost_ns=cost_ns)
            policy.arrive(job, 0)
            number += 1


def serve(policy, count, true_ns):
    """Serve ``count`` jobs one by one; return the service of each flow."""
    service, now_ns = dict.fromkeys("abc", 0), 0
    for _ in range(count):
        job = policy.pick(now_ns)
        now_ns += true_ns(job)
        job.attained_ns += true_ns(job)
        policy.ran(job, true_ns(job), now_ns)
        policy.leave(job, now_ns, done=True)
        service[job.flow] += true_ns(job)
    return service


def test_service_is_shared_in_proportion_to_weight():
    policy = make("wfq", SchedulerConfig(weights=WEIGHTS))
    backlog(policy, "abc", 2_000)
    service = serve(policy, 2_100, lambda job: 100)
    for flow, share in (("a", 1), ("b", 2), ("c", 4)):
        assert abs(service[flow] - 30_000 * share) <= 200


def test_shares_follow_the_true_cost_however_wrong_the_estimates_are():
    """Flow c is estimated 50 times too cheap, flow a 10 times too expensive."""
    policy = make("wfq", SchedulerConfig())
    number = 0
    for _ in range(3_000):
        for flow, guess_ns in (("a", 1_000), ("b", 100), ("c", 10)):
            job = Job(number=number, request_class=flow, flow=flow, cost_ns=guess_ns)
            policy.arrive(job, 0)
            number += 1
    true_ns = {"a": 100, "b": 100, "c": 500}
    service = serve(policy, 3_000, lambda job: true_ns[job.flow])
    assert max(service.values()) - min(service.values()) <= 2 * (1_000 + 500)


def test_a_flow_that_was_idle_has_saved_nothing_up():
    policy = make("wfq", SchedulerConfig())
    backlog(policy, "a", 100)
    serve(policy, 50, lambda job: 100)
    for number in range(1_000, 1_010):
        job = Job(number=number, request_class="b", flow="b", cost_ns=100)
        policy.arrive(job, 0)
    assert [policy.pick(0).flow for _ in range(6)] == ["b", "a", "b", "a", "b", "a"]


def test_a_job_is_preempted_after_a_quantum_once_another_flow_is_behind():
    policy = make("wfq", SchedulerConfig(quantum_ns=10))
    policy.arrive(Job(number=0, flow="a", cost_ns=1_000), 0)
    running = policy.pick(0)
    policy.arrive(Job(number=1, flow="b", cost_ns=1_000), 5)

    def run(used_ns):
        running.attained_ns += used_ns
        policy.ran(running, used_ns, running.attained_ns)
        return policy.outranks(running, running.attained_ns)

    assert not run(9)
    assert run(1)


def test_an_overrun_delays_the_next_job_of_its_flow_at_once():
    """A job with an estimate of 0 is still in service; its flow has paid."""
    policy = make("wfq", SchedulerConfig(seats=2, quantum_ns=10))
    for number, flow in enumerate("aab"):
        policy.arrive(Job(number=number, flow=flow, cost_ns=0), 0)
    running = policy.pick(0)
    running.attained_ns = 100
    policy.ran(running, 100, 100)
    assert policy.pick(100).flow == "b"


def test_idle_flows_are_forgotten():
    policy = Wfq(SchedulerConfig())
    now_ns = 0
    for number in range(10_000):
        now_ns += 100
        policy.arrive(Job(number=2 * number, flow="steady", cost_ns=10), now_ns)
        policy.arrive(Job(number=2 * number + 1, flow=f"{number}", cost_ns=10), now_ns)
        while len(policy) > 1:
            job = policy.pick(now_ns)
            job.attained_ns = 10
            policy.leave(job, now_ns, done=True)
        assert len(policy._flows) <= 150


def test_nothing_of_a_busy_period_is_remembered_after_it():
    policy = make("wfq", SchedulerConfig())
    backlog(policy, "a", 100)
    serve(policy, 100, lambda job: 100)
    for number, flow in ((1_000, "a"), (1_001, "b"), (1_002, "a"), (1_003, "b")):
        job = Job(number=number, request_class=flow, flow=flow, cost_ns=100)
        policy.arrive(job, 10**9)
    assert [policy.pick(0).number for _ in range(4)] == [1_000, 1_001, 1_002, 1_003]


def test_a_flow_that_is_moved_again_and_again_leaves_nothing_behind():
    """Each debit moves the waiting flow; its old heap entries are removed later."""
    policy = make("wfq", SchedulerConfig(seats=2))
    backlog(policy, "ab", 2)
    first, second = policy.pick(0), policy.pick(0)
    assert (first.flow, second.flow) == ("a", "b")
    longest = 0
    for _ in range(1_000):
        policy.debit(first, 100, 0)
        longest = max(longest, len(policy._order))
        policy.check()
    assert 10 < longest <= 70
    # The flow that owes 100,000 goes after the flow that owes nothing.
    assert [policy.pick(0).flow for _ in range(2)] == ["b", "a"]


# ---- changed weights ----------------------------------------------------------------


def test_new_weights_share_the_service_from_then_on():
    """Gaps stay within the sum of the bounds of the old and the new weights."""
    old, new = {"a": 1.0, "b": 2.0, "c": 4.0}, {"a": 4.0, "b": 1.0, "c": 1.0}
    policy = Wfq(SchedulerConfig(weights=old))
    backlog(policy, "abc", 3_000)
    before = serve(policy, 700, lambda job: 100)
    for flow, share in (("a", 1), ("b", 2), ("c", 4)):
        assert abs(before[flow] - 10_000 * share) <= 200
    policy.reconfigure(SchedulerConfig(weights=new))
    policy.check()
    after = serve(policy, 600, lambda job: 100)
    for i, j in ("ab", "ac", "bc"):
        gap = abs(after[i] / new[i] - after[j] / new[j])
        bounds = (2 * 100 * (1 / them[i] + 1 / them[j]) for them in (old, new))
        assert gap <= sum(bounds), after


@pytest.mark.parametrize("seed", range(6))
def test_no_job_is_lost_when_weights_change_amid_turns(seed):
    rng = random.Random(seed)
    policy, now_ns, left, serving = Wfq(SchedulerConfig()), 0, set(), []
    for number in range(2_000):
        now_ns += 10
        job = Job(number=number, request_class=rng.choice("abc"), flow=rng.choice("xy"))
        left.add(number)
        policy.arrive(job, now_ns)
        if rng.random() < 0.1:
            weights = {flow: rng.choice([0.01, 1.0, 1000.0]) for flow in "abc"}
            policy.reconfigure(SchedulerConfig(weights=weights))
        while len(serving) < 3 and (picked := policy.pick(now_ns)) is not None:
            serving.append(picked)
        ended = serving.pop(rng.randrange(len(serving)))
        ended.attained_ns += rng.randrange(1, 1_000)
        policy.ran(ended, ended.attained_ns, now_ns)
        policy.leave(ended, now_ns, done=True)
        left.discard(ended.number)
        policy.check()
    assert {it.number for it in (*policy.waiting(), *serving)} == left
