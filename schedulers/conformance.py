"""The laws of ``schedulers.scheduler`` as a test that any policy can be put to.

``check(factory)`` plays random scripts against a policy and a naive reference (a few
dictionaries) and returns each law it broke, once, with the trial that shows it. Our own
policies are held to the same ``Witness`` by hypothesis, which also shrinks what it
finds. A policy that passes has not been proven right: its own laws, bounds and closed
forms are its author's to test.

What it does not test: the cost of a call, and whether answers depend on the hashing of
strings (run it twice with different ``PYTHONHASHSEED`` for that).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from schedulers.job import Job
from schedulers.scheduler import (
    IN_SERVICE,
    NEVER,
    Scheduler,
    SchedulerConfig,
    SchedulerFactory,
)

CLASSES: Final = ("control", "group", "data", "admin")
FLOWS: Final = ("a", "b", "c")
UNIT_NS: Final = 1_000
# A job that is given this many slices in all of the plane's time is not starving.
_PATIENCE_SLICES: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One law that a policy broke: in which trial, after how many arrivals."""

    law: str
    detail: str
    trial: str
    arrivals: int

    def __str__(self) -> str:
        return f"{self.law}: {self.detail} ({self.trial}, {self.arrivals} arrivals)"


class LawBroken(AssertionError):
    """What a ``Witness`` raises at the first call that breaks a law."""

    def __init__(self, law: str, detail: str) -> None:
        super().__init__(f"{law}: {detail}")
        self.law = law
        self.detail = detail


class Witness:
    """Drives a policy through a script, beside a naive reference and a silent twin.

    The reference knows which jobs wait, are in service and are away. The twin is a
    second instance that hears of every event but is asked nothing except ``pick``: if
    the two ever differ, the policy is not deterministic or one of its questions
    changes its state. Verbs raise ``LawBroken``.
    """

    def __init__(
        self, factory: SchedulerFactory, config: Callable[[], SchedulerConfig]
    ) -> None:
        self.subject: Scheduler = factory(config())
        self._twin: Scheduler = factory(config())
        self._doubles: dict[int, Job] = {}
        self.seats = config().seats
        # Comparing every waiting job costs too much where thousands wait.
        self.thorough = True
        self.now_ns = 0
        self.waiting: dict[int, Job] = {}
        self.serving: dict[int, Job] = {}
        self.away: dict[int, Job] = {}
        self.finished: list[int] = []
        self.true_ns: dict[int, int] = {}
        self._unserved: dict[tuple[str, str], deque[int]] = {}

    def arrive(self, job: Job, true_ns: int) -> None:
        """Let a new job arrive that will need ``true_ns`` of service."""
        job.arrived_ns = self.now_ns
        self._doubles[job.number] = replace(job)
        self.waiting[job.number] = job
        self.true_ns[job.number] = true_ns
        key = (job.request_class, job.flow)
        self._unserved.setdefault(key, deque()).append(job.number)
        self.subject.arrive(job, self.now_ns)
        self._twin.arrive(self._doubles[job.number], self.now_ns)
        self._inspect()

    def pick(self) -> Job | None:
        """Let the policy choose the next job to serve."""
        job = self.subject.pick(self.now_ns)
        double = self._twin.pick(self.now_ns)
        if (job and job.number) != (double and double.number):
            raise LawBroken(
                "determinism", f"picked {job}, but {double} when asked nothing else"
            )
        if job is None:
            self._idle()
            return None
        if self.waiting.get(job.number) is not job:
            raise LawBroken("no job invented", f"{job} was picked and does not wait")
        del self.waiting[job.number]
        self.serving[job.number] = job
        self._expect_flow_order(job)
        self._inspect()
        return job

    def run(self, job: Job, used_ns: int) -> None:
        """Let a job in service use CPU, but never more than it needs."""
        used_ns = min(used_ns, self.true_ns[job.number] - job.attained_ns)
        outranked = self.subject.outranks(job, self.now_ns)
        tells = getattr(self.subject, "outranked_at_ns", None)
        at_ns: int | None = 0 if tells is None else tells(job)
        self.now_ns += used_ns
        for scheduler, it in self._both(job):
            it.attained_ns += used_ns
            scheduler.ran(it, used_ns, self.now_ns)
        self._inspect()
        if not self.subject.outranks(job, self.now_ns):
            return
        if not outranked and self.subject.preempts != IN_SERVICE:
            raise LawBroken("preempts as declared", f"{job} was outranked in service")
        if at_ns is None or job.attained_ns < at_ns:
            raise LawBroken("outranked as told", f"{job} was outranked before {at_ns}")

    def lend(self, job: Job, used_ns: int) -> None:
        """Let a job's turn be used for another: billed to it, not taken off its need.

        So the holder of a lock runs in the turn of who waits for it (``planes.lock``).
        """
        self.true_ns[job.number] += used_ns
        self.run(job, used_ns)

    def rest_ns(self, job: Job) -> int:
        """Return how much service a job still needs."""
        return self.true_ns[job.number] - job.attained_ns

    def outranked(self, job: Job) -> bool:
        """Ask, twice, whether a job in service should give way."""
        answer = self.subject.outranks(job, self.now_ns)
        if self.subject.outranks(job, self.now_ns) != answer:
            raise LawBroken("outranks is pure", f"two answers about {job}")
        if answer and self.subject.preempts == NEVER:
            raise LawBroken("preempts as declared", f"{job} was outranked")
        if answer and not self.waiting:
            raise LawBroken("outranks is true", f"nothing waits to outrank {job}")
        return answer

    def preempt(self, job: Job, *, in_favour: bool) -> Job | None:
        """Suspend a job, and pick; ``in_favour``: because it was outranked."""
        self._leave(job, done=False)
        self._wait_again(job)
        successor = self.pick()
        if in_favour and successor is job:
            raise LawBroken("outranks is true", f"{job} was preempted for itself")
        return successor

    def park(self, job: Job) -> None:
        """Send a job in service away."""
        self._leave(job, done=False)
        self.away[job.number] = job
        self._inspect()

    def resume(self, job: Job) -> None:
        """Let a job come back."""
        del self.away[job.number]
        self._wait_again(job)
        self._inspect()

    def finish(self, job: Job) -> None:
        """Let a job in service use what it still needs, and end."""
        self.run(job, self.rest_ns(job))
        self._leave(job, done=True)
        self.finished.append(job.number)
        self._inspect()

    def drain(self) -> None:
        """Serve everything to the end: each job that arrived must finish once."""
        for job in list(self.away.values()):
            self.resume(job)
        for job in list(self.serving.values()):
            self.finish(job)
        while self.waiting:
            picked = self.pick()
            if picked is not None:
                self.finish(picked)
                continue
            event_ns = self.subject.next_event_ns(self.now_ns)
            assert event_ns is not None  # else _idle() would have raised
            self.now_ns = event_ns
        if sorted(self.finished) != sorted(self._doubles):
            raise LawBroken("no job lost", "some jobs never finished")

    # ---- the reference ----------------------------------------------------------

    def _both(self, job: Job) -> tuple[tuple[Scheduler, Job], tuple[Scheduler, Job]]:
        return (self.subject, job), (self._twin, self._doubles[job.number])

    def _leave(self, job: Job, *, done: bool) -> None:
        del self.serving[job.number]
        for scheduler, it in self._both(job):
            scheduler.leave(it, self.now_ns, done=done)

    def _wait_again(self, job: Job) -> None:
        self.waiting[job.number] = job
        for scheduler, it in self._both(job):
            scheduler.resume(it, self.now_ns)

    def _idle(self) -> None:
        """Judge a pick that returned nothing."""
        if not self.waiting:
            return
        if self.subject.work_conserving:
            raise LawBroken(
                "work conservation", f"{len(self.waiting)} jobs wait, none was picked"
            )
        event_ns = self.subject.next_event_ns(self.now_ns)
        if not self.serving and (event_ns is None or event_ns <= self.now_ns):
            raise LawBroken("next event", f"idle at {self.now_ns} until {event_ns}")

    def _expect_flow_order(self, job: Job) -> None:
        unserved = self._unserved[job.request_class, job.flow]
        if job.number not in unserved:
            return
        if self.subject.keeps_flow_order and unserved[0] != job.number:
            raise LawBroken("flow order", f"{job} was picked before #{unserved[0]}")
        unserved.remove(job.number)

    def _inspect(self) -> None:
        """Compare what the policy says of itself with the reference."""
        if len(self.subject) != len(self.waiting):
            raise LawBroken(
                "no job lost", f"len {len(self.subject)}, {len(self.waiting)} wait"
            )
        if not self.thorough:
            return
        numbers = sorted(job.number for job in self.subject.waiting())
        if numbers != sorted(self.waiting):
            raise LawBroken("no job lost", f"holds {numbers}, not {list(self.waiting)}")
        try:
            self.subject.check()
        except AssertionError as error:
            raise LawBroken("its own check", repr(error)) from error


# ---- random scripts -------------------------------------------------------------


def settings(seats: int) -> SchedulerConfig:
    """Return the configuration that policies are tested with."""
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


def _script(witness: Witness, rng: random.Random, steps: int) -> None:
    """Play ``steps`` random events, then serve all that is left."""
    for _ in range(steps):
        act = rng.random()
        serving = list(witness.serving.values())
        if act < 0.25 or not (serving or witness.waiting or witness.away):
            witness.arrive(*make_job(len(witness.true_ns), rng, witness.now_ns))
        elif act < 0.45 and len(serving) < witness.seats:
            witness.pick()
        elif act < 0.55 and witness.away:
            witness.resume(rng.choice(list(witness.away.values())))
        elif act < 0.6:
            witness.now_ns += rng.randrange(10 * UNIT_NS)
        elif serving:
            job = rng.choice(serving)
            if act < 0.75:
                turn = witness.lend if act < 0.62 else witness.run
                turn(job, rng.randrange(2 * UNIT_NS))
                if witness.outranked(job):
                    witness.preempt(job, in_favour=True)
            elif act < 0.8:
                witness.park(job)
            else:
                witness.finish(job)
    witness.drain()


def _flood(witness: Witness, victim: int) -> None:
    """Keep one job of a class waiting under an endless flood of all the others."""
    if witness.subject.may_starve:
        return
    witness.thorough = False
    others = [level for level in range(len(CLASSES)) if level != victim]

    def arrive(level: int, size: int) -> int:
        number = len(witness.true_ns)
        name = CLASSES[level]
        size_ns = size * UNIT_NS
        deadline_ns = witness.now_ns + 10 * size_ns
        job = Job(number=number, request_class=name, level=level, flow=name)
        job.cost_ns = job.size_ns = size_ns
        job.deadline_ns = deadline_ns
        witness.arrive(job, size_ns)
        return number

    # A backlog of 5 grows by one job in two slices.
    for level in (*others, others[0], others[0]):
        arrive(level, 1)
    number = arrive(victim, 8)
    for slices in range(_PATIENCE_SLICES):
        for _ in range(1 + slices % 2):
            arrive(others[slices % len(others)], 1)
        serving = next(iter(witness.serving.values()), None) or witness.pick()
        if serving is None:
            witness.now_ns += UNIT_NS
            continue
        witness.run(serving, UNIT_NS)
        if not witness.rest_ns(serving):
            witness.finish(serving)
            if serving.number == number:
                return
        elif witness.outranked(serving):
            witness.preempt(serving, in_favour=True)
    raise LawBroken(
        "progress", f"{CLASSES[victim]} unfinished after {_PATIENCE_SLICES} slices"
    )


def check(
    factory: SchedulerFactory, *, trials: int = 60, steps: int = 200, seed: int = 0
) -> list[Violation]:
    """Return the laws that a policy breaks, each once, with the trial that shows it.

    Any exception that the policy raises is a violation as well. Takes about a second.
    """
    found: dict[str, Violation] = {}

    def attempt(trial: str, seats: int, play: Callable[[Witness], None]) -> None:
        arrivals = 0
        try:
            witness = Witness(factory, lambda: settings(seats))
            try:
                play(witness)
                return
            finally:
                arrivals = len(witness.true_ns)
        except LawBroken as broken:
            law, detail = broken.law, broken.detail
        except Exception as error:  # a policy may fail in any way
            law, detail = "no exception", repr(error)
        violation = Violation(law=law, detail=detail, trial=trial, arrivals=arrivals)
        found.setdefault(law, violation)

    for number in range(trials):
        rng = random.Random(f"{seed}/{number}")

        def play(witness: Witness, rng: random.Random = rng) -> None:
            _script(witness, rng, steps)

        attempt(f"seed {seed}, trial {number}", (1, 2, 4)[number % 3], play)
    for victim, name in enumerate(CLASSES):

        def flood(witness: Witness, victim: int = victim) -> None:
            _flood(witness, victim)

        attempt(f"a flood around {name}", 1, flood)
    return list(found.values())
