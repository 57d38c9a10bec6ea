"""Laws of each fair queueing policy, against bounds and a fluid reference."""

import random
from collections import deque
from fractions import Fraction
from itertools import groupby

import pytest

from schedulers import Job, SchedulerConfig, make
from tests.schedulers.fairness import (
    WEIGHTS,
    largest_costs,
    random_jobs,
    serve_in_parallel,
    widest_gaps,
)


@pytest.mark.parametrize("seed", range(25))
def test_two_backlogged_flows_stay_within_the_bound_of_scfq(seed):
    """Service counts when a job ends, which adds one job of each flow at either end."""
    jobs = random_jobs(random.Random(seed), lambda true_ns: true_ns)
    config = SchedulerConfig(weights=WEIGHTS)
    largest = largest_costs(jobs)
    for (i, j), gap in widest_gaps(make("scfq", config), jobs, 1).items():
        ends = (Fraction(largest[flow]) / Fraction(WEIGHTS[flow]) for flow in (i, j))
        assert gap <= 2 * sum(ends), (i, j)


@pytest.mark.parametrize("seed", range(10))
def test_wf2q_keeps_every_backlogged_flow_within_a_job_of_its_fluid_share(seed):
    rng = random.Random(seed)
    policy = make("wf2q+", SchedulerConfig(weights=WEIGHTS))
    largest = {flow: rng.choice((10, 100, 1_000)) for flow in WEIGHTS}
    for number in range(900):
        flow = "abc"[number % 3]
        need_ns = rng.randrange(1, largest[flow] + 1)
        job = Job(number=number, request_class=flow, flow=flow, cost_ns=need_ns)
        policy.arrive(job, 0)
    now_ns, served = 0, dict.fromkeys(WEIGHTS, 0)
    share = {flow: weight / sum(WEIGHTS.values()) for flow, weight in WEIGHTS.items()}
    while all(any(job.flow == flow for job in policy.waiting()) for flow in WEIGHTS):
        job = policy.pick(now_ns)
        assert served[job.flow] <= share[job.flow] * now_ns + 1, "ahead before it began"
        now_ns += job.cost_ns
        job.attained_ns = job.cost_ns
        policy.ran(job, job.cost_ns, now_ns)
        policy.leave(job, now_ns, done=True)
        served[job.flow] += job.cost_ns
        for flow, had_ns in served.items():
            late_ns = now_ns - max(largest.values())
            assert had_ns >= share[flow] * late_ns - largest[flow] - 1


@pytest.mark.parametrize("guess", ["true", "none"])
@pytest.mark.parametrize("seed", range(25))
def test_deficit_round_robin_stays_within_its_bound(guess, seed):
    """Shreedhar and Varghese (1996): the smallest quantum plus twice the largest cost.

    Services are divided by weights, so the quantum is that of weight 1.
    """
    guesses = {"true": lambda true_ns: true_ns, "none": lambda true_ns: 0}
    jobs = random_jobs(random.Random(f"{guess}/{seed}"), guesses[guess])
    quantum_ns = max(largest_costs(jobs).values())
    options = {"quantum_ns": quantum_ns}
    policy = make("drr", SchedulerConfig(weights=WEIGHTS, options=options))
    for gap in widest_gaps(policy, jobs, 1).values():
        assert gap <= quantum_ns + 2 * quantum_ns


# ---- the fluid ideal ----------------------------------------------------------------


def fluid_finishes(jobs, weights):
    """Serve all backlogged flows at once by weight; return when each job ends."""
    arrivals = deque(sorted(jobs, key=lambda it: (it[0], it[1].number)))
    backlog = {flow: deque() for flow in weights}
    now, ends = Fraction(0), {}
    while arrivals or any(backlog.values()):
        while arrivals and arrivals[0][0] <= now:
            _, job, need = arrivals.popleft()
            backlog[job.flow].append([job.number, Fraction(need)])
        busy = [flow for flow in weights if backlog[flow]]
        if not busy:
            now = Fraction(arrivals[0][0])
            continue
        total = sum(Fraction(weights[flow]) for flow in busy)
        share = {flow: Fraction(weights[flow]) / total for flow in busy}
        step = min(backlog[flow][0][1] / share[flow] for flow in busy)
        if arrivals:
            step = min(step, arrivals[0][0] - now)
        now += step
        for flow in busy:
            head = backlog[flow][0]
            head[1] -= step * share[flow]
            if not head[1]:
                ends[head[0]] = now
                backlog[flow].popleft()
    return ends


@pytest.mark.parametrize("seed", range(8))
def test_no_job_ends_later_than_in_the_fluid_by_more_than_one_largest_job(seed):
    """Parekh and Gallager's bound holds, and is nearly reached."""
    jobs = random_jobs(random.Random(seed), lambda true_ns: true_ns)
    ends = {}

    def observe(now_ns, waiting, ended):
        pass

    class Watched:
        """Records the end of each job."""

        def __init__(self, policy):
            self._policy = policy

        def __getattr__(self, name):
            return getattr(self._policy, name)

        def leave(self, job, now_ns, *, done):
            ends[job.number] = now_ns
            self._policy.leave(job, now_ns, done=done)

    policy = make("wfq-exact", SchedulerConfig(weights=WEIGHTS))
    serve_in_parallel(Watched(policy), jobs, 1, observe)
    fluid = fluid_finishes(jobs, WEIGHTS)
    largest = max(need for _, _, need in jobs)
    late = [ends[number] - fluid[number] for number in fluid]
    # Virtual time is rounded to a fraction of a nanosecond at each event.
    assert max(late) <= largest + 1
    assert max(late) > 0


def runs_of_a(policy):
    """Serve a flow of half of the weight among ten others; return its longest run."""
    config = SchedulerConfig(weights={"half": 10.0})
    scheduler = make(policy, config)
    for number in range(11):
        job = Job(number=number, request_class="half", flow="a", cost_ns=100)
        scheduler.arrive(job, 0)
    for number in range(11, 21):
        scheduler.arrive(Job(number=number, flow=f"b{number}", cost_ns=100), 0)
    order, now_ns = [], 0
    while (job := scheduler.pick(now_ns)) is not None:
        now_ns += 100
        job.attained_ns = 100
        scheduler.ran(job, 100, now_ns)
        scheduler.leave(job, now_ns, done=True)
        order.append(job.flow)
    return max(len(list(run)) for flow, run in groupby(order) if flow == "a")


def test_wf2q_never_gets_a_flow_far_ahead_of_its_share_as_wfq_does():
    """Bennett and Zhang's example."""
    assert runs_of_a("wfq-exact") == 10
    assert runs_of_a("wf2q+") <= 2


def test_a_flow_that_wakes_begins_at_once_under_sfq_but_not_under_scfq():
    def first_after_waking(policy):
        scheduler = make(policy, SchedulerConfig())
        for number in range(4):
            scheduler.arrive(Job(number=number, flow="a", cost_ns=10), 0)
        running = scheduler.pick(0)
        scheduler.arrive(Job(number=4, flow="dear", cost_ns=1_000), 5)
        running.attained_ns = 10
        scheduler.leave(running, 10, done=True)
        return scheduler.pick(10).flow

    assert first_after_waking("wfq") == "dear"
    assert first_after_waking("scfq") == "a"


# ---- lag ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_no_lag_exceeds_a_slice_under_eevdf(seed):
    quantum_ns, piece_ns = 100, 20
    rng = random.Random(seed)
    config = SchedulerConfig(weights=WEIGHTS, quantum_ns=quantum_ns)
    policy = make("eevdf", config)
    for number in range(60):
        flow = "abc"[number % 3]
        job = Job(number=number, request_class=flow, flow=flow)
        policy.arrive(job, 0)
    now_ns, running = 0, policy.pick(0)
    for _ in range(2_000):
        used_ns = rng.randrange(1, piece_ns + 1)
        now_ns += used_ns
        running.attained_ns += used_ns
        policy.ran(running, used_ns, now_ns)
        for lag_ns in policy.lags_ns().values():
            assert abs(lag_ns) <= quantum_ns + piece_ns
        if policy.outranks(running, now_ns):
            policy.leave(running, now_ns, done=False)
            policy.resume(running, now_ns)
            running = policy.pick(now_ns)


def eevdf_with_one_flow_away(had_ns):
    """Serve b and c for ``had_ns`` each while the only job of a is parked."""
    policy = make("eevdf", SchedulerConfig(quantum_ns=100))
    parked = Job(number=0, flow="a")
    policy.arrive(parked, 0)
    assert policy.pick(0) is parked
    policy.leave(parked, 0, done=False)
    for number in (1, 2):
        policy.arrive(Job(number=number, flow="xbc"[number]), 0)
    for _ in range(2 * had_ns // 100):
        serve_a_quantum(policy)
    return policy, parked


def serve_a_quantum(policy):
    """Serve the next job for 100 ns and return it to the queue; return its flow."""
    job = policy.pick(0)
    job.attained_ns += 100
    policy.ran(job, 100, 0)
    policy.leave(job, 0, done=False)
    policy.resume(job, 0)
    return job.flow


@pytest.mark.parametrize("had_ns", [100, 1_000])
def test_a_flow_that_was_parked_comes_back_with_a_slice_of_credit(had_ns):
    policy, parked = eevdf_with_one_flow_away(had_ns)
    # Ties are served by number: with 9 the job would be last among equals.
    parked.number = 9
    policy.resume(parked, 0)
    assert [serve_a_quantum(policy) for _ in range(4)] == ["a", "b", "c", "a"]


def test_a_flow_that_arrives_has_no_credit():
    policy, _ = eevdf_with_one_flow_away(1_000)
    policy.arrive(Job(number=9, flow="a"), 0)
    assert policy.lags_ns() == {"a": 0, "b": 0, "c": 0}
    assert [serve_a_quantum(policy) for _ in range(3)] == ["b", "c", "a"]


def test_a_short_slice_is_served_sooner_and_not_more():
    """Slices set latency and weights set shares, independently."""

    def waits_and_shares(slice_ns):
        options = {"slice_ns.control": slice_ns}
        policy = make("eevdf", SchedulerConfig(quantum_ns=100, options=options))
        for number in range(200):
            flow = "control" if number % 2 else "data"
            job = Job(number=number, request_class=flow, flow=flow)
            policy.arrive(job, 0)
        order = []
        for turn in range(100):
            job = policy.pick(turn)
            job.attained_ns = 100
            policy.ran(job, 100, turn)
            policy.leave(job, turn, done=True)
            order.append(job.flow)
        return order.index("control"), order.count("control")

    assert waits_and_shares(10) == (0, 50)
    assert waits_and_shares(1_000) == (1, 50)


def test_a_flow_that_comes_amid_a_long_job_begins_at_that_moment_under_2dfq():
    """Virtual time has advanced to 100, so the k-th job of b starts at 10 + 90 k.

    Eleven jobs of b start before the second job of a at 1,000, and they end sooner.
    """
    policy = make("2dfq", SchedulerConfig(seats=1))
    for number in range(2):
        policy.arrive(Job(number=number, flow="a", cost_ns=1_000), 0)
    running = policy.pick(0)
    for number in range(2, 30):
        policy.arrive(Job(number=number, flow="b", cost_ns=90), 100)
    now_ns, order = 1_000, []
    while running is not None:
        running.attained_ns = running.cost_ns
        policy.ran(running, running.cost_ns, now_ns)
        policy.leave(running, now_ns, done=True)
        running = policy.pick(now_ns)
        if running is not None:
            now_ns += running.cost_ns
            order.append(running.flow)
    assert order.index("a") == 11


@pytest.mark.parametrize("name", ["wfq", "wf2q+", "scfq", "drr", "2dfq"])
def test_a_plane_may_borrow_more_seats_than_it_has(name):
    """``planes.lending``: three jobs in service under a policy of one seat."""
    policy = make(name, SchedulerConfig(seats=1))
    for number in range(6):
        policy.arrive(Job(number=number, flow="ab"[number % 2], cost_ns=10), 0)
    serving = [policy.pick(0) for _ in range(3)]
    policy.check()
    for job in serving:
        policy.leave(job, 0, done=True)
        policy.check()
    serving += [policy.pick(0) for _ in range(3)]
    policy.check()
    assert sorted(job.number for job in serving) == list(range(6))
