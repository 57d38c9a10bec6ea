"""A guard around a user's policy: the first broken law stops the run.

``conformance.check`` tests the contract of policies, but users may forget to run it.
Without a guard, a policy that loses a job or picks one twice would produce a wrong
recording or a run that never ends. The guard keeps the set of waiting jobs, in O(1) per
call, and compares each result of the policy with the set. Policies of this package are
tested, so they run without a guard.

Laws checked here: no job is lost or invented, work conservation, the next event lies in
the future, ``outranks`` needs a waiting job, no exception. A policy that never returns
from a call is not detected.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Collection
from typing import Final, NoReturn, TypeVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight, foresight_of
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler

_T = TypeVar("_T")

NO_EXCEPTION: Final = "no exception"
# A policy that returns an event after each nanosecond would make a run endless.
_IDLE_MAX: Final = 10_000


class PolicyFault(BaseException):
    """A policy broke a law; the message names policy, file, law and job.

    Not an ``Exception``, so that it passes through code which isolates the errors of
    one request: the plane can serve no further request.
    """


def policy_fault(error: BaseException) -> PolicyFault | None:
    """Return the `PolicyFault` that an exception is or contains as a group, or None."""
    if isinstance(error, PolicyFault):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(policy_fault, error.exceptions)), None)
    return None


def file_of(factory: object) -> str | None:
    """Return the file where a class or function is defined, if it is known."""
    try:
        return inspect.getsourcefile(factory)  # type: ignore[arg-type]  # else TypeError
    except TypeError:
        return None


def place_of(factory: object) -> str:
    """Return file and line of the definition of a class or function, if known."""
    try:
        _, line = inspect.getsourcelines(factory)  # type: ignore[arg-type]  # else TypeError
    except (TypeError, OSError):
        return "file unknown"
    return f"{file_of(factory)}, line {line}"


def raised(error: BaseException, file: str | None) -> str:
    """Format an exception, with the innermost line of ``file`` in its traceback.

    If the traceback has no line of the file, use the innermost line outside of this
    package.
    """
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    words = f"{type(error).__name__}: {error}".removesuffix(": ")
    frames = [
        frame
        # The first frame is the frame that caught the exception.
        for frame in traceback.extract_tb(error.__traceback__)[1:]
        if frame.filename not in (__file__, importlib.__file__)
        and not frame.filename.startswith("<frozen ")
    ]
    own = [frame for frame in frames if frame.filename == file]
    if not frames:
        return words
    frame = (own or frames)[-1]
    return f"{words} ({frame.filename}, line {frame.lineno})"


def guarded(name: str, policy: Scheduler) -> Scheduler:
    """Wrap ``policy`` in a guard that raises `PolicyFault` at the first broken law."""
    foresight = foresight_of(policy)
    promises = {
        "work_conserving": policy.work_conserving,
        "keeps_flow_order": policy.keeps_flow_order,
        "may_starve": policy.may_starve,
        "preempts": policy.preempts,
        "shares_by_weight": policy.shares_by_weight,
        "leave_suffices": foresight.leave_suffices,
        "foresees": foresight.foresees,
        "least_turn_ns": foresight.least_turn_ns,
    }
    made: Scheduler = type("Guarded", (_Guarded,), promises)(name, policy)
    return made


class _Guarded(Scheduler, Foresight):
    """Guard of a user's policy; `guarded` creates a subclass with its promises."""

    def __init__(self, name: str, policy: Scheduler) -> None:
        self._name = name
        self.policy = policy
        # In order of arrival: the first job has waited longest.
        self._waiting: dict[Job, None] = {}
        self._serving = 0
        # Time at which `pick` last returned nothing although a job waited.
        self._idle_ns: int | None = None
        # Number of picks that returned nothing since a job was last picked.
        self._idled = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        self._wait(job, now_ns, self.policy.arrive)

    def resume(self, job: Job, now_ns: int) -> None:
        self._wait(job, now_ns, self.policy.resume)

    def pick(self, now_ns: int) -> Job | None:
        first = next(iter(self._waiting), None)
        job = self._call("pick", lambda: self.policy.pick(now_ns), first)
        if job is None:
            if first is not None:
                self._judge_idle(first, now_ns)
            return None
        if not isinstance(job, Job):
            self._fail("no job invented", f"picked {job!r}, which is no job", first)
        if job not in self._waiting:
            self._fail("no job invented", "picked a job that does not wait", job)
        del self._waiting[job]
        self._serving += 1
        self._idled = 0
        self._compare("pick", job)
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        answer = self._call(
            "outranks", lambda: self.policy.outranks(running, now_ns), running
        )
        if answer and not self._waiting:
            self._fail("outranks is true", "nothing waits to outrank it", running)
        return answer

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        self._call("ran", lambda: self.policy.ran(job, used_ns, now_ns), job)

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        self._call("debit", lambda: self.policy.debit(job, used_ns, now_ns), job)

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        self._serving -= 1
        self._call("leave", lambda: self.policy.leave(job, now_ns, done=done), job)

    def resize(self, seats: int, now_ns: int) -> None:
        self._call("resize", lambda: self.policy.resize(seats, now_ns))

    def reconfigure(self, config: SchedulerConfig) -> None:
        self._call("reconfigure", lambda: self.policy.reconfigure(config))

    def next_event_ns(self, now_ns: int) -> int | None:
        event_ns = self._call(
            "next_event_ns", lambda: self.policy.next_event_ns(now_ns)
        )
        if event_ns is not None and event_ns <= now_ns == self._idle_ns:
            first = next(iter(self._waiting), None)
            self._fail("next event", f"{event_ns} is not after {now_ns}", first)
        return event_ns

    def outranked_at_ns(self, running: Job) -> int | None:
        return self._call(
            "outranked_at_ns",
            lambda: foresight_of(self.policy).outranked_at_ns(running),
            running,
        )

    def waiting(self) -> Collection[Job]:
        return self._waiting.keys()

    def __len__(self) -> int:
        return len(self._waiting)

    def check(self) -> None:
        self._call("check", self.policy.check)

    def _wait(self, job: Job, now_ns: int, verb: Callable[[Job, int], None]) -> None:
        self._waiting[job] = None
        self._call(verb.__name__, lambda: verb(job, now_ns), job)
        self._compare(verb.__name__, job)

    def _compare(self, verb: str, job: Job) -> None:
        """Compare the number of waiting jobs; report the first missing job."""
        found, expected = self._call("len", self.policy.__len__), len(self._waiting)
        if found == expected:
            return
        held = set(self._call("waiting", self.policy.waiting))
        lost = next((each for each in self._waiting if each not in held), job)
        law = "no job invented" if found > expected else "no job lost"
        self._fail(law, f"after {verb} it holds {found} jobs, {expected} wait", lost)

    def _judge_idle(self, first: Job, now_ns: int) -> None:
        self._idle_ns = now_ns
        self._idled += 1
        count = len(self._waiting)
        if self.work_conserving:
            self._fail(
                "work conservation", f"nothing was picked though {count} wait", first
            )
        if self.next_event_ns(now_ns) is None and not self._serving:
            self._fail("next event", f"none is named though {count} wait", first)
        if self._idled == _IDLE_MAX:
            detail = f"nothing was picked at {_IDLE_MAX} in a row"
            self._fail("next event", detail, first)

    def _call(self, verb: str, call: Callable[[], _T], job: Job | None = None) -> _T:
        try:
            return call()
        except Exception as error:  # a policy may fail in any way
            words = raised(error, file_of(type(self.policy)))
            self._fail(NO_EXCEPTION, f"{verb} raised {words}", job, error)

    def _fail(
        self, law: str, detail: str, job: Job | None, cause: Exception | None = None
    ) -> NoReturn:
        place = place_of(type(self.policy))
        at = f"; job {job}" if job is not None else ""
        raise PolicyFault(
            f"policy {self._name} ({place}) broke the law {law!r}: {detail}{at}"
        ) from cause
