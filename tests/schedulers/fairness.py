"""Parallel servers, and the widest gap between two flows' weighted services."""

import heapq
from fractions import Fraction
from itertools import combinations

from schedulers import Job

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}


def serve_in_parallel(policy, jobs, seats, observe):
    """Serve ``(arrival_ns, job, true_ns)`` on equal servers; report each change."""
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


def widest_gaps(policy, jobs, seats):
    """Measure the widest gap of weighted service for each pair of flows.

    Gaps are taken over every interval in which jobs of both flows wait throughout.
    Service counts when a job ends.
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

    serve_in_parallel(policy, jobs, seats, observe)
    return widest


def random_jobs(rng, guess):
    """Draw bursts of three flows of different sizes, beyond the servers' capacity."""
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


def largest_costs(jobs):
    """Return each flow's largest cost or estimate."""
    return {
        flow: max(max(need, job.cost_ns) for _, job, need in jobs if job.flow == flow)
        for flow in WEIGHTS
    }
