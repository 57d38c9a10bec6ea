"""The own laws of ``wfq``: the SFQ(D) bound, weights, correction, forgetting."""

import heapq
import random
from fractions import Fraction
from itertools import combinations

import pytest

from schedulers import Job, SchedulerConfig, Wfq, make

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}


def serve_in_parallel(policy, jobs, seats, observe):
    """Serve ``(arrival_ns, job, true_ns)`` on equal servers; tell each change."""
    arrivals = sorted(jobs, key=lambda it: (it[0], it[1].number), reverse=True)
    true_ns = {job.number: size_ns for _, job, size_ns in jobs}
    ends, waiting = [], {}
    while arrivals or ends:
        arrival_ns = arrivals[-1][0] if arrivals else None
        if ends and (arrival_ns is None or ends[0][0] <= arrival_ns):
            now_ns, _, job = heapq.heappop(ends)
            job.attained_ns = true_ns[job.number]
            policy.ran(job, job.attained_ns, now_ns)
            policy.leave(job, now_ns, done=True)
            observe(now_ns, dict(waiting), (job.flow, job.attained_ns))
        else:
            now_ns, job, _ = arrivals.pop()
            waiting[job.flow] = waiting.get(job.flow, 0) + 1
            policy.arrive(job, now_ns)
        while len(ends) < seats and (job := policy.pick(now_ns)):
            waiting[job.flow] -= 1
            end_ns = now_ns + true_ns[job.number]
            heapq.heappush(ends, (end_ns, job.number, job))
        policy.check()
        observe(now_ns, dict(waiting), None)


def widest_gaps(jobs, seats, config):
    """Measure, for each pair of flows, the widest gap of weighted service.

    Over every interval in which both flows have jobs waiting throughout; service is
    counted when a job ends.
    """
    service = dict.fromkeys(WEIGHTS, Fraction(0))
    running = dict.fromkeys(combinations(WEIGHTS, 2))
    widest = dict.fromkeys(running, Fraction(0))

    def observe(now_ns, waiting, ended):
        if ended is not None:
            flow, used_ns = ended
            service[flow] += Fraction(used_ns) / Fraction(WEIGHTS[flow])
        for pair in running:
            i, j = pair
            if not (waiting.get(i) and waiting.get(j)):
                running[pair] = None
                continue
            gap = service[i] - service[j]
            low, high = running[pair] or (gap, gap)
            running[pair] = low, high = min(low, gap), max(high, gap)
            widest[pair] = max(widest[pair], high - low)

    serve_in_parallel(Wfq(config), jobs, seats, observe)
    return widest


def random_jobs(rng, guess):
    """Three flows of different sizes, in bursts, more than the servers can do."""
    largest = {flow: rng.choice((10, 100, 1_000)) for flow in WEIGHTS}
    jobs, now_ns = [], 0
    for number in range(400):
        now_ns += rng.choice((0, 0, 0, 50, 300))
        flow = rng.choice("abc")
        true_ns = rng.randrange(1, largest[flow] + 1)
        job = Job(number=number, request_class=flow, flow=flow)
        job.cost_ns = guess(true_ns)
        jobs.append((now_ns, job, true_ns))
    return jobs


@pytest.mark.parametrize("seats", [1, 2, 4, 8])
@pytest.mark.parametrize("guess", ["true", "none", "wild"])
def test_two_backlogged_flows_stay_within_the_bound_of_sfq_d(seats, guess):
    """(D + 1)(L_i/w_i + L_j/w_j), L being the largest cost or estimate of a flow."""
    for seed in range(15):
        rng = random.Random(f"{guess}/{seats}/{seed}")
        guesses = {
            "true": lambda true_ns: true_ns,
            "none": lambda true_ns: 0,
            "wild": lambda true_ns, rng=rng: rng.randrange(3 * true_ns),
        }
        jobs = random_jobs(rng, guesses[guess])
        config = SchedulerConfig(weights=WEIGHTS, seats=seats)
        for (i, j), gap in widest_gaps(jobs, seats, config).items():
            largest = {
                flow: max(max(t, job.cost_ns) for _, job, t in jobs if job.flow == flow)
                for flow in (i, j)
            }
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
    """Flow c claims to be 50 times cheaper than it is, flow a 10 times dearer."""
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
    """A job that claimed to cost nothing is still in service; its flow has paid."""
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
