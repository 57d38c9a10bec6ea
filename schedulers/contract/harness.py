"""The test harness of the contract: it drives a policy, and raises at a broken law.

The laws are defined in ``scheduler``; ``conformance`` and hypothesis provide scripts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import foresight_of
from schedulers.contract.job import Job
from schedulers.contract.scheduler import (
    IN_SERVICE,
    NEVER,
    Scheduler,
    SchedulerFactory,
)

# A policy that returns an event after each nanosecond would make a script endless.
_IDLE_MAX: Final = 10_000


class LawBroken(AssertionError):
    """Raised by a ``PolicyHarness`` at the first call that breaks a law."""

    def __init__(self, law: str, detail: str) -> None:
        super().__init__(f"{law}: {detail}")
        self.law = law
        self.detail = detail


def _made(factory: SchedulerFactory, config: SchedulerConfig) -> Scheduler:
    made = factory(config)
    if not isinstance(made, Scheduler):
        raise LawBroken("contract", f"{type(made).__name__} is no schedulers.Scheduler")
    return made


class PolicyHarness:
    """Drives a policy through a script, next to a naive reference and a silent twin.

    The reference records which jobs wait, are in service and are away. The twin is a
    second instance of the policy that receives every event, but of the queries only
    ``pick``. If the two differ, the policy is not deterministic, or a query changes its
    state. Methods raise ``LawBroken``.
    """

    def __init__(
        self, factory: SchedulerFactory, config: Callable[[], SchedulerConfig]
    ) -> None:
        self.subject = _made(factory, config())
        self._twin = _made(factory, config())
        self._doubles: dict[int, Job] = {}
        self.seats = config().seats
        # False to skip the comparison of all waiting jobs, which is costly if thousands
        # wait.
        self.thorough = True
        # Number of picks in a row that returned nothing although jobs waited.
        self._idled = 0
        self.now_ns = 0
        self.waiting: dict[int, Job] = {}
        self.serving: dict[int, Job] = {}
        self.away: dict[int, Job] = {}
        self.finished: list[int] = []
        self._last_finished: list[Job] = []
        self.true_ns: dict[int, int] = {}
        self._unserved: dict[tuple[str, str], deque[int]] = {}
        # CPU attained by each job when it was picked.
        self._picked_ns: dict[int, int] = {}

    def arrive(self, job: Job, true_ns: int) -> None:
        """Add a new job that will need ``true_ns`` of service."""
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
        """Return the next job that the policy picks."""
        job = self.subject.pick(self.now_ns)
        double = self._twin.pick(self.now_ns)
        if (job and job.number) != (double and double.number):
            raise LawBroken(
                "determinism",
                f"picked {job}, but {double} without other questions",
            )
        if job is None:
            self._idle()
            return None
        if self.waiting.get(job.number) is not job:
            raise LawBroken("no job invented", f"{job} was picked and does not wait")
        self._idled = 0
        del self.waiting[job.number]
        self.serving[job.number] = job
        self._picked_ns[job.number] = job.attained_ns
        self._expect_flow_order(job)
        self._inspect()
        return job

    def run(self, job: Job, used_ns: int) -> None:
        """Charge a job in service with CPU, but never more than it needs."""
        outranked = self.subject.outranks(job, self.now_ns)
        at_ns = foresight_of(self.subject).outranked_at_ns(job)
        self._use(
            job, min(used_ns, self.rest_ns(job)), informed=(self.subject, self._twin)
        )
        if not self._outranks(job):
            return
        if not outranked and self.subject.preempts != IN_SERVICE:
            raise LawBroken("preempts as declared", f"{job} was outranked in service")
        if at_ns is None or job.attained_ns < at_ns:
            raise LawBroken(
                "outranked as predicted", f"{job} was outranked before {at_ns}"
            )

    def lend(self, job: Job, used_ns: int) -> None:
        """Bill CPU to a job whose turn another job uses; its need does not decrease.

        A lock holder runs in the turn of a waiter in this way (``planes.lock``).
        """
        self.true_ns[job.number] += used_ns
        self.run(job, used_ns)

    def unserved(self) -> list[Job]:
        """Return jobs that are not in service: waiting, away, and the last finished."""
        return [*self._last_finished, *self.waiting.values(), *self.away.values()]

    def debit(self, job: Job, used_ns: int) -> None:
        """Charge CPU to a job that is not in service: waiting, away, or finished."""
        self.now_ns += used_ns
        for scheduler, it in self._both(job):
            scheduler.debit(it, used_ns, self.now_ns)
        self._inspect()

    def rest_ns(self, job: Job) -> int:
        """Return the remaining service of a job."""
        return self.true_ns[job.number] - job.attained_ns

    def outranked(self, job: Job) -> bool:
        """Return whether a job in service is outranked.

        Check that the query is pure.
        """
        answer = self._outranks(job)
        if self.subject.outranks(job, self.now_ns) != answer:
            raise LawBroken("outranks is pure", f"two answers about {job}")
        if answer and self.subject.preempts == NEVER:
            raise LawBroken("preempts as declared", f"{job} was outranked")
        if answer and not self.waiting:
            raise LawBroken("outranks is true", f"nothing waits to outrank {job}")
        return answer

    def preempt(self, job: Job, *, in_favour: bool) -> Job | None:
        """Suspend a job, and pick; ``in_favour``: the job was outranked."""
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
        """Return a job from away to the waiting ones."""
        del self.away[job.number]
        self._wait_again(job)
        self._inspect()

    def finish(self, job: Job) -> None:
        """Run a job in service to its end.

        If the policy declares ``leave_suffices``, only its twin receives ``ran`` first.
        """
        suffices = foresight_of(self.subject).leave_suffices
        informed = (self._twin,) if suffices else (self.subject, self._twin)
        self._use(job, self.rest_ns(job), informed=informed)
        self._leave(job, done=True)
        self.finished.append(job.number)
        self._last_finished = [job]
        self._inspect()

    def drain(self) -> None:
        """Serve all jobs to completion: each arrived job must finish once."""
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

    def _use(self, job: Job, used_ns: int, *, informed: tuple[Scheduler, ...]) -> None:
        self.now_ns += used_ns
        for scheduler, it in self._both(job):
            it.attained_ns += used_ns
            if scheduler in informed:
                scheduler.ran(it, used_ns, self.now_ns)
        self._inspect()

    def _outranks(self, job: Job) -> bool:
        """Query ``outranks``; check that the job has had its least turn."""
        answer = self.subject.outranks(job, self.now_ns)
        turn_ns = job.attained_ns - self._picked_ns[job.number]
        if answer and turn_ns < foresight_of(self.subject).least_turn_ns:
            raise LawBroken(
                "outranked as predicted", f"{job} was outranked after {turn_ns}"
            )
        return answer

    def _leave(self, job: Job, *, done: bool) -> None:
        del self.serving[job.number]
        for scheduler, it in self._both(job):
            scheduler.leave(it, self.now_ns, done=done)

    def _wait_again(self, job: Job) -> None:
        self.waiting[job.number] = job
        for scheduler, it in self._both(job):
            scheduler.resume(it, self.now_ns)

    def _idle(self) -> None:
        """Check that a pick may return nothing."""
        if not self.waiting:
            return
        if self.subject.work_conserving:
            raise LawBroken(
                "work conservation", f"{len(self.waiting)} jobs wait, none was picked"
            )
        self._idled += 1
        if self._idled == _IDLE_MAX:
            raise LawBroken("next event", f"nothing was picked at {_IDLE_MAX} in a row")
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
        """Compare the policy's counts with the reference."""
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
