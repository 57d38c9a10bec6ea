"""The contract of a scheduling policy: synchronous methods over a set of waiting jobs.

A policy is a pure queue discipline. It has no clock (callers pass ``now_ns``, which
never decreases), no I/O and no randomness except the ``random.Random`` of its
configuration. The event-heap model, the broker in virtual time and the live broker can
therefore drive the same object.

The life of a job, as ``planes.plane.PlaneCore`` calls it::

    arrive ──> waiting ── pick ──> in service ── leave(done=True) ──>
                  ^                  │ ran, ran, ...
                  │                  └── leave(done=False) ── away ──┐
                  └───────────────────── resume ────────────────────┘

A preempted job leaves and resumes at once. A job that waits for a device or in
purgatory is away in between.

Laws, which the shared contract tests check against a naive reference:

1. *No job is lost or invented*: each job is picked once per arrive or resume.
2. *Work conservation*: ``pick`` returns None only if no job waits, unless the policy
   declares ``work_conserving = False``. It then returns its next event from
   ``next_event_ns``, or waits for a job in service to leave.
3. *Determinism*: the same calls give the same results; ties break by ``job.number``.
4. *Order*: jobs of one flow and one class are first picked in order of arrival, unless
   the policy declares ``keeps_flow_order = False``. (Kafka has one request of a
   connection in the broker at a time, so the order within a connection is always kept.)
5. ``outranks`` changes no state, is true only if ``pick`` would return another job, and
   becomes true only at the events that ``preempts`` allows.
6. *Progress*: with ``ageing_ns`` set, every waiting job is picked eventually, however
   many other jobs keep arriving, unless the policy declares ``may_starve = True``.

A policy implements ``arrive``, ``pick`` and ``waiting``, and ``outranks`` if it
preempts. It may have to change three declarations: ``work_conserving``,
``keeps_flow_order`` and ``may_starve``. `Foresight` (`schedulers.contract.foresight`)
is an optional mixin that only saves calls.

A turn may be used for another job (``planes.lock``). The bill of a job can therefore
exceed its own need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import ClassVar, Final, TypeAlias

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job

NEVER: Final = "never"
ON_ARRIVAL: Final = "on arrival"
IN_SERVICE: Final = "in service"


class Scheduler(ABC):
    """A queue discipline over the waiting jobs of one plane.

    A policy must define ``arrive``, ``pick`` and ``waiting``. The other methods default
    to a policy that never preempts and needs no costs.
    """

    # ---- promises ---------------------------------------------------------------

    # The policy serves a job whenever a job waits.
    work_conserving: ClassVar[bool] = True
    # Of one flow and class, the earlier job is begun first.
    keeps_flow_order: ClassVar[bool] = True
    # A job may wait for ever while other jobs keep arriving.
    may_starve: ClassVar[bool] = False
    # Events at which a job in service may become outranked: none; only the arrival or
    # return of another job; or also its own use of CPU.
    preempts: ClassVar[str] = NEVER
    # The weighted services of backlogged flows differ by a bounded amount, which
    # `planes.laws` checks.
    shares_by_weight: ClassVar[bool] = False
    # Names of the policy's own settings, or prefixes of such names that end in a dot.
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    # ---- methods ----------------------------------------------------------------

    @abstractmethod
    def arrive(self, job: Job, now_ns: int) -> None:
        """Add a new job to the waiting jobs."""

    @abstractmethod
    def pick(self, now_ns: int) -> Job | None:
        """Remove and return the waiting job to serve next, or None."""

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether a waiting job preempts at the next preemption point."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Record that ``job``, in service, has just used ``used_ns`` of CPU."""
        return

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Record that CPU was used for ``job`` while it was not in service.

        The job may be waiting, away or finished. A policy that shares by cost charges
        its flow.
        """
        return

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Take a job out of service; if done, ``job.attained_ns`` is its true cost."""
        return

    def resume(self, job: Job, now_ns: int) -> None:
        """Add a job that left service unfinished to the waiting jobs again."""
        self.arrive(job, now_ns)

    def resize(self, seats: int, now_ns: int) -> None:
        """Record that the plane has ``seats`` seats.

        More jobs may still be in service.
        """
        return

    def reconfigure(self, config: SchedulerConfig) -> None:
        """Apply the settings that can change while jobs are served."""
        return

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return when time alone may change a result; None if never."""
        return None

    # ---- waiting jobs -----------------------------------------------------------

    @abstractmethod
    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs in any order; the result is valid until a change."""

    def __len__(self) -> int:
        """Return the number of waiting jobs. Cost: must be O(1), as for a list."""
        return len(self.waiting())

    def check(self) -> None:
        """Assert every internal invariant; for tests and simulations."""
        return


# Creates a scheduler; the type of ``module:factory`` on the command line.
SchedulerFactory: TypeAlias = Callable[[SchedulerConfig], Scheduler]
