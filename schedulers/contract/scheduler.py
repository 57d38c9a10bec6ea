"""The contract of a scheduling policy: synchronous verbs over a set of waiting jobs.

A policy is a queue discipline and nothing more. It has no clock (``now_ns`` is handed
in and never decreases), no I/O and no randomness but the ``random.Random`` that its
configuration carries; so the event-heap model, the broker in virtual time and the live
broker drive the very same object.

The life of a job, as ``planes.plane.PlaneCore`` calls it::

    arrive ──> waiting ── pick ──> in service ── leave(done=True) ──>
                  ^                  │ ran, ran, ...
                  │                  └── leave(done=False) ── away ──┐
                  └───────────────────── resume ────────────────────┘

A preempted job leaves and resumes at once; one that waits for a device or in purgatory
is away for a while in between.

Laws, each of which the shared contract tests against a naive reference:

1. *No job is lost or invented*: each job is picked once per arrive or resume.
2. *Work conservation*: ``pick`` returns None only if nothing waits, unless the policy
   declares ``work_conserving = False``; it then names its next event, or waits for a
   job in service to leave.
3. *Determinism*: the same calls give the same answers; ties break by ``job.number``.
4. *Order*: jobs of one flow and one class are first picked in order of arrival, unless
   the policy declares ``keeps_flow_order = False``. (Kafka has one request of a
   connection in the broker at a time, so a connection's own order is never at stake.)
5. ``outranks`` changes nothing, is true only if ``pick`` would return another job, and
   becomes true only when ``preempts`` says.
6. *Progress*: a waiting job is picked in the end however many others keep arriving, if
   ``ageing_ns`` is set, unless the policy declares ``may_starve = True``.

Four verbs make a policy: ``arrive``, ``pick`` and ``waiting``, and ``outranks`` if it
preempts. Three promises may have to be lowered: ``work_conserving``,
``keeps_flow_order`` and ``may_starve``. `Foresight` (`schedulers.contract.foresight`)
is an optional mixin that serves only speed.

A turn may be used for another job (``planes.lock``): then a job is billed more than its
own need.
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

    A policy must define ``arrive``, ``pick`` and ``waiting``. All else has a default,
    that of a policy which never preempts and needs no costs.
    """

    # ---- what it promises -------------------------------------------------------

    # It serves something whenever something waits.
    work_conserving: ClassVar[bool] = True
    # Of one flow and class, the earlier job is begun first.
    keeps_flow_order: ClassVar[bool] = True
    # Under a flood of others a job may wait for ever.
    may_starve: ClassVar[bool] = False
    # When a job in service may come to be outranked: never; only when another comes to
    # wait; or also because it has used CPU.
    preempts: ClassVar[str] = NEVER
    # It bounds how far backlogged flows get apart by weight: `planes.laws` watches it.
    shares_by_weight: ClassVar[bool] = False
    # Names of its own settings, or prefixes of such names that end in a point.
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    # ---- the verbs --------------------------------------------------------------

    @abstractmethod
    def arrive(self, job: Job, now_ns: int) -> None:
        """Take a new job, which waits from now on."""

    @abstractmethod
    def pick(self, now_ns: int) -> Job | None:
        """Remove and return the waiting job to serve next, or None."""

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether a waiting job takes over at the next preemption point."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Learn that ``job``, in service, has just used ``used_ns`` of CPU."""
        return

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Learn that CPU was used for ``job`` while it was not in service.

        It may wait, be away, or be gone. A policy that shares by cost charges the flow.
        """
        return

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Take a job out of service; if done, ``job.attained_ns`` is its true cost."""
        return

    def resume(self, job: Job, now_ns: int) -> None:
        """Take back a job that left service unfinished: it waits again."""
        self.arrive(job, now_ns)

    def resize(self, seats: int, now_ns: int) -> None:
        """Learn that the plane has ``seats`` seats now; more jobs may be in service."""
        return

    def reconfigure(self, config: SchedulerConfig) -> None:
        """Take other settings, as far as they can change while jobs are served."""
        return

    def next_event_ns(self, now_ns: int) -> int | None:
        """When the passing of time alone may change an answer, or None if never."""
        return None

    # ---- what it holds ----------------------------------------------------------

    @abstractmethod
    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs, in no promised order, to be looked at at once."""

    def __len__(self) -> int:
        """Count the waiting jobs. Cost: must be O(1), as a list's is."""
        return len(self.waiting())

    def check(self) -> None:
        """Assert every internal invariant; for tests and simulations."""
        return


# Makes a scheduler; what ``module:factory`` on the command line must name.
SchedulerFactory: TypeAlias = Callable[[SchedulerConfig], Scheduler]
