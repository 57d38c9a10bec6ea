"""Adaptive LIFO against a naive list and its full history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schedulers import Job, SchedulerConfig, make

INTERVAL_NS = 100_000_000
steps = st.lists(
    st.tuples(
        # Arrivals outnumber picks, so the queue stands for longer than the interval.
        st.sampled_from(("arrive", "arrive", "arrive", "pick", "pick and resume")),
        st.integers(0, 60_000_000) | st.sampled_from((INTERVAL_NS, INTERVAL_NS + 1)),
        st.none() | st.integers(1, 150_000_000),
    ),
    max_size=60,
)


@given(steps)
def test_adaptive_lifo_follows_its_rules(steps):
    config = SchedulerConfig(options={"interval.ms": INTERVAL_NS // 1_000_000})
    policy = make("adaptive-lifo", config)
    now_ns, new, begun = 0, [], []
    was_empty_at_ns = []
    for number, (verb, wait_ns, patience_ns) in enumerate(steps):
        now_ns += wait_ns
        if not new:
            was_empty_at_ns.append(now_ns)
        if verb == "arrive":
            deadline_ns = None if patience_ns is None else now_ns + patience_ns
            job = Job(number=number, deadline_ns=deadline_ns)
            policy.arrive(job, now_ns)
            new.append(job)
            continue
        found = policy.pick(now_ns)
        if begun:
            expected = min(begun, key=lambda job: job.number)
            begun.remove(expected)
        elif not new:
            expected = None
        else:
            stands = all(at_ns < now_ns - INTERVAL_NS for at_ns in was_empty_at_ns)
            free = [job for job in new if job.deadline_ns is None]
            due = [job for job in new if job.deadline_ns is not None]
            late = [job for job in due if job.deadline_ns < now_ns]
            if free and due:
                expected = free[0]
            elif late:
                expected = min(late, key=lambda job: (job.deadline_ns, job.number))
            else:
                expected = new[-1] if stands else new[0]
            new.remove(expected)
        assert found is expected
        if found is not None and verb == "pick and resume":
            policy.leave(found, now_ns, done=False)
            policy.resume(found, now_ns)
            begun.append(found)
        policy.check()
        assert list(policy.waiting()) == sorted(begun, key=lambda it: it.number) + new
