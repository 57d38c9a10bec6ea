"""The laws of the scheduler contract, for every policy.

Hypothesis generates and shrinks the histories that
``schedulers.contract.conformance.check`` draws at random.
"""

import hashlib
import os
import random
import subprocess
import sys

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from schedulers import POLICIES, Fifo, Foresight, Job, Priority, SchedulerConfig
from schedulers.contract.conformance import (
    CLASSES,
    UNIT_NS,
    check,
    make_job,
    settings,
)
from schedulers.contract.harness import PolicyHarness
from schedulers.policies.eevdf import Eevdf
from schedulers.policies.las import Las


class SchedulerContract(RuleBasedStateMachine):
    """Random lives of jobs: arrive, pick, run, preempt, park, resume, finish."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    @initialize(seats=st.integers(1, 4))
    def begin(self, seats):
        self.harness = PolicyHarness(POLICIES[self.name], lambda: settings(seats))

    @rule(
        level=st.integers(0, 3),
        flow=st.sampled_from(("a", "b")),
        true_ns=st.integers(0, 5 * UNIT_NS),
        guess_ns=st.integers(0, 5 * UNIT_NS),
        due_ns=st.none() | st.integers(0, 9 * UNIT_NS),
    )
    def arrive(self, level, flow, true_ns, guess_ns, due_ns):
        job = Job(
            number=len(self.harness.true_ns),
            request_class=CLASSES[level],
            level=level,
            flow=flow,
            cost_ns=guess_ns,
            size_ns=true_ns,
            size_bytes=guess_ns,
            deadline_ns=due_ns,
        )
        self.harness.arrive(job, true_ns)

    @precondition(lambda self: len(self.harness.serving) < self.harness.seats)
    @rule()
    def pick(self):
        self.harness.pick()

    @precondition(lambda self: self.harness.serving)
    @rule(data=st.data(), used_ns=st.integers(0, 3 * UNIT_NS), lent=st.booleans())
    def run_slice(self, data, used_ns, lent):
        job = data.draw(st.sampled_from(list(self.harness.serving.values())))
        turn = self.harness.lend if lent else self.harness.run
        turn(job, used_ns)
        if self.harness.outranked(job):
            self.harness.preempt(job, in_favour=True)

    @precondition(lambda self: self.harness.serving)
    @rule(data=st.data())
    def preempt_for_another_plane(self, data):
        job = data.draw(st.sampled_from(list(self.harness.serving.values())))
        self.harness.preempt(job, in_favour=False)

    @precondition(lambda self: self.harness.serving)
    @rule(data=st.data(), parks=st.booleans())
    def leave(self, data, parks):
        job = data.draw(st.sampled_from(list(self.harness.serving.values())))
        if parks:
            self.harness.park(job)
        else:
            self.harness.finish(job)

    @precondition(lambda self: self.harness.away)
    @rule(data=st.data())
    def resume(self, data):
        job = data.draw(st.sampled_from(list(self.harness.away.values())))
        self.harness.resume(job)

    @precondition(lambda self: self.harness.unserved())
    @rule(data=st.data(), used_ns=st.integers(0, 3 * UNIT_NS))
    def debit(self, data, used_ns):
        job = data.draw(st.sampled_from(self.harness.unserved()))
        self.harness.debit(job, used_ns)

    @rule(wait_ns=st.integers(0, 60 * UNIT_NS))
    def let_time_pass(self, wait_ns):
        self.harness.now_ns += wait_ns

    def teardown(self):
        if hasattr(self, "harness"):
            self.harness.drain()


@pytest.mark.parametrize("name", POLICIES)
def test_policy_keeps_the_laws_whatever_happens(name):
    run_state_machine_as_test(
        lambda: SchedulerContract(name),
        settings=hypothesis_settings(
            max_examples=15, stateful_step_count=40, deadline=None
        ),
    )


@pytest.mark.parametrize("name", POLICIES)
def test_policy_passes_the_conformance_check(name):
    assert check(POLICIES[name], trials=8) == []


# ---- policies that break one law each ---------------------------------------------


class Forgetful(Fifo):
    """Loses every fifth job that returns from purgatory."""

    returns = 0

    def resume(self, job, now_ns):
        self.returns += 1
        if self.returns % 5:
            super().resume(job, now_ns)


class Pitiless(Priority):
    """Strict priority that ignores its ageing bound without declaring it."""

    def __init__(self, config):
        super().__init__(
            SchedulerConfig(weights=config.weights, quantum_ns=config.quantum_ns)
        )


class LastInFirstOut(Fifo):
    """Reorders jobs of a flow without declaring it."""

    def pick(self, now_ns):
        return self._new.pop() if self._new else super().pick(now_ns)


class Restless(Priority):
    """Preempts for jobs that do not outrank the running one."""

    def outranks(self, running, now_ns):
        return len(self) > 0


class Meddler(Fifo):
    """Changes the order at each call of ``outranks``."""

    keeps_flow_order = False

    def outranks(self, running, now_ns):
        self._new.rotate()
        return False

    def check(self):
        pass


class Impulsive(Fifo):
    """Preempts for waiting jobs, though it declares that it never does."""

    def outranks(self, running, now_ns):
        return len(self) > 0


class Calm(Las):
    """Predicts preemption two quanta too late."""

    def outranked_at_ns(self, running):
        at_ns = super().outranked_at_ns(running)
        return None if at_ns is None else at_ns + 2 * UNIT_NS


class Hasty(Las):
    """Promises a turn of a quantum, which a job with less service may cut short."""

    least_turn_ns = UNIT_NS


class Deaf(Eevdf, Foresight):
    """Declares that it needs no report of last slices, but depends on them."""

    leave_suffices = True


class Lazy(Fifo):
    """Leaves two jobs waiting although a seat is free."""

    def pick(self, now_ns):
        return super().pick(now_ns) if len(self) != 2 else None


class Absent(Fifo):
    """Hides its waiting jobs from ``ran`` until the next ``outranks``."""

    told = False

    def ran(self, job, used_ns, now_ns):
        super().ran(job, used_ns, now_ns)
        self.told = True

    def outranks(self, running, now_ns):
        self.told = False
        return super().outranks(running, now_ns)

    def waiting(self):
        return [] if self.told else super().waiting()


@pytest.mark.parametrize(
    ("factory", "law"),
    [
        (Forgetful, "no job lost"),
        (Absent, "no job lost"),
        (Pitiless, "progress"),
        (LastInFirstOut, "flow order"),
        (Restless, "outranks is true"),
        (Meddler, "determinism"),
        (Impulsive, "preempts as declared"),
        (Calm, "outranked as predicted"),
        (Hasty, "outranked as predicted"),
        (Deaf, "determinism"),
        (Lazy, "work conservation"),
    ],
)
def test_a_broken_policy_is_caught_by_name(factory, law):
    assert law in {violation.law for violation in check(factory)}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_starves_a_job_says_that_it_may(name):
    """Two jobs of a millisecond arrive in each millisecond, around the old one."""
    policy = POLICIES[name](settings(1))
    ms_ns = 1_000_000
    numbers = iter(range(10_000))
    old = None
    for now_ns in range(0, 1_000 * ms_ns, ms_ns):
        for flow in ("old" if now_ns == 300 * ms_ns else "new", "new"):
            job = Job(number=next(numbers), flow=flow, arrived_ns=now_ns)
            job.cost_ns = job.size_ns = ms_ns
            policy.arrive(job, now_ns)
            old = job if flow == "old" else old
        served = policy.pick(now_ns)
        if served is old:
            return
        served.attained_ns = ms_ns
        policy.ran(served, ms_ns, now_ns + ms_ns)
        policy.leave(served, now_ns + ms_ns, done=True)
    assert policy.may_starve


def test_a_policy_that_raises_is_reported_and_not_raised():
    def explode(config):
        raise RuntimeError("no such luck")

    (violation,) = check(explode, trials=1)
    assert violation.law == "no exception"
    assert "no such luck" in str(violation)


# ---- determinism over processes ---------------------------------------------------


def order_of_service(name):
    rng = random.Random(7)
    harness = PolicyHarness(POLICIES[name], lambda: settings(1))
    order = []
    for _ in range(60):
        harness.arrive(*make_job(len(harness.true_ns), rng, harness.now_ns))
    while harness.waiting:
        job = harness.pick()
        if job is None:
            harness.now_ns = harness.subject.next_event_ns(harness.now_ns)
            continue
        order.append(job.number)
        harness.finish(job)
    return order


def test_no_order_depends_on_the_hashing_of_strings():
    script = (
        f"import runpy; m = runpy.run_path({__file__!r});"
        "print([m['order_of_service'](name) for name in m['POLICIES']])"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        output = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            check=True,
        ).stdout
        assert output.strip()
        digests.add(hashlib.sha256(output).hexdigest())
    assert len(digests) == 1
