"""The laws of ``scheduler`` as a test for any policy.

``check(factory)`` plays random scripts against a policy and a naive reference (a few
dictionaries). It returns each broken law once, with a trial that shows the violation.
The policies of this package are also driven through ``PolicyHarness`` by hypothesis,
which shrinks its findings. Passing is no proof of correctness: authors must test the
laws, bounds and closed forms of their own policy.

Not tested: the cost of a call, and whether results depend on the hashing of strings
(run it twice with different ``PYTHONHASHSEED`` for that).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.harness import LawBroken, PolicyHarness
from schedulers.contract.job import Job
from schedulers.contract.policy_guard import NO_EXCEPTION, file_of, raised
from schedulers.contract.scheduler import SchedulerFactory

CLASSES: Final = ("control", "group", "data", "admin")
FLOWS: Final = ("a", "b", "c")
UNIT_NS: Final = 1_000
# A job that is unfinished after this many slices of the plane is starving.
_PATIENCE_SLICES: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken law of a policy, with its trial and the number of arrivals before it."""

    law: str
    detail: str
    trial: str
    arrivals: int

    def __str__(self) -> str:
        return f"{self.law}: {self.detail} ({self.trial}, {self.arrivals} arrivals)"


def settings(seats: int) -> SchedulerConfig:
    """Return the configuration for tests of policies."""
    return SchedulerConfig(
        weights={"control": 8.0, "group": 2.0},
        seats=seats,
        ageing_ns=50 * UNIT_NS,
        quantum_ns=UNIT_NS,
    )


def make_job(number: int, rng: random.Random, now_ns: int) -> tuple[Job, int]:
    """Return a random job and the service it will need."""
    level = rng.randrange(len(CLASSES))
    true_ns = rng.choice((0, 1, UNIT_NS // 2, UNIT_NS, 5 * UNIT_NS, 40 * UNIT_NS))
    job = Job(
        number=number,
        request_class=CLASSES[level],
        level=level,
        flow=rng.choice((*FLOWS, CLASSES[level])),
        size_bytes=rng.randrange(1_000),
        cost_ns=rng.choice((0, true_ns // 4, true_ns, 3 * true_ns)),
        deadline_ns=rng.choice((None, now_ns + rng.randrange(100 * UNIT_NS))),
        size_ns=true_ns,
    )
    return job, true_ns


def _script(harness: PolicyHarness, rng: random.Random, steps: int) -> None:
    """Play ``steps`` random events, then serve the remaining jobs."""
    for _ in range(steps):
        act = rng.random()
        serving = list(harness.serving.values())
        if act < 0.25 or not (serving or harness.waiting or harness.away):
            harness.arrive(*make_job(len(harness.true_ns), rng, harness.now_ns))
        elif act < 0.45 and len(serving) < harness.seats:
            harness.pick()
        elif act < 0.55 and harness.away:
            harness.resume(rng.choice(list(harness.away.values())))
        elif act < 0.6:
            harness.now_ns += rng.randrange(10 * UNIT_NS)
            if harness.unserved():
                job = rng.choice(harness.unserved())
                harness.debit(job, rng.randrange(2 * UNIT_NS))
        elif serving:
            _serve(harness, rng.choice(serving), rng, act)
    harness.drain()


def _serve(harness: PolicyHarness, job: Job, rng: random.Random, act: float) -> None:
    """Do one thing with a job in service; ``act`` is from 0.6 to 1."""
    if act < 0.75:
        turn = harness.lend if act < 0.62 else harness.run
        turn(job, rng.randrange(2 * UNIT_NS))
        if harness.outranked(job):
            harness.preempt(job, in_favour=True)
    elif act < 0.8:
        harness.park(job)
    else:
        harness.finish(job)


def _flood(harness: PolicyHarness, victim: int) -> None:
    """Check that one job of a class finishes while all other classes keep arriving."""
    if harness.subject.may_starve:
        return
    harness.thorough = False
    others = [level for level in range(len(CLASSES)) if level != victim]

    def arrive(level: int, size: int) -> int:
        number = len(harness.true_ns)
        name = CLASSES[level]
        size_ns = size * UNIT_NS
        deadline_ns = harness.now_ns + 10 * size_ns
        job = Job(number=number, request_class=name, level=level, flow=name)
        job.cost_ns = job.size_ns = size_ns
        job.deadline_ns = deadline_ns
        harness.arrive(job, size_ns)
        return number

    # A backlog of 5 grows by one job in two slices.
    for level in (*others, others[0], others[0]):
        arrive(level, 1)
    number = arrive(victim, 8)
    for slices in range(_PATIENCE_SLICES):
        for _ in range(1 + slices % 2):
            arrive(others[slices % len(others)], 1)
        serving = next(iter(harness.serving.values()), None) or harness.pick()
        if serving is None:
            harness.now_ns += UNIT_NS
            continue
        harness.run(serving, UNIT_NS)
        if not harness.rest_ns(serving):
            harness.finish(serving)
            if serving.number == number:
                return
        elif harness.outranked(serving):
            harness.preempt(serving, in_favour=True)
    raise LawBroken(
        "progress", f"{CLASSES[victim]} unfinished after {_PATIENCE_SLICES} slices"
    )


def check(
    factory: SchedulerFactory, *, trials: int = 60, steps: int = 200, seed: int = 0
) -> list[Violation]:
    """Return the laws that a policy breaks, each once, with a trial that shows it.

    Any exception of the policy is a violation as well. Takes about a second.
    """
    found: dict[str, Violation] = {}
    file = file_of(factory)

    def attempt(trial: str, seats: int, play: Callable[[PolicyHarness], None]) -> None:
        arrivals = 0
        try:
            harness = PolicyHarness(factory, lambda: settings(seats))
            try:
                play(harness)
                return
            finally:
                arrivals = len(harness.true_ns)
        except LawBroken as broken:
            law, detail = broken.law, broken.detail
        except Exception as error:  # a policy may fail in any way
            law, detail = NO_EXCEPTION, raised(error, file)
        violation = Violation(law=law, detail=detail, trial=trial, arrivals=arrivals)
        found.setdefault(law, violation)

    for number in range(trials):
        rng = random.Random(f"{seed}/{number}")

        def play(harness: PolicyHarness, rng: random.Random = rng) -> None:
            _script(harness, rng, steps)

        attempt(f"seed {seed}, trial {number}", (1, 2, 4)[number % 3], play)
    for victim, name in enumerate(CLASSES):

        def flood(harness: PolicyHarness, victim: int = victim) -> None:
            _flood(harness, victim)

        attempt(f"a flood around {name}", 1, flood)
    return list(found.values())
