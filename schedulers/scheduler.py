"""What a scheduling policy is: seven synchronous verbs over a set of waiting jobs.

A policy is a queue discipline and nothing more. It has no clock (``now_ns`` is handed
in and never decreases), no I/O and no randomness but the ``random.Random`` that its
configuration carries; so the event-heap model, the broker in virtual time and the live
broker drive the very same object.

The life of a job, as ``planes.core.PlaneCore`` calls it::

    arrive ──> waiting ── pick ──> in service ── leave(done=True) ──>
                  ^                  │ ran, ran, ...
                  │                  └── leave(done=False) ── away ──┐
                  └───────────────────── resume ────────────────────┘

A preempted job leaves and resumes at once; one that waits for a device or in purgatory
is away for a while in between.

Laws, each of which the shared contract tests against a naive reference:

1. *No job is lost or invented*: what arrives is picked, once per arrive or resume.
2. *Work conservation*: ``pick`` returns None only if nothing waits, unless the policy
   declares ``work_conserving = False``; it then names its next event, or waits for a
   job in service to leave.
3. *Determinism*: the same calls give the same answers; ties break by ``job.number``.
4. *Order*: jobs of one flow and one class are first picked in order of arrival, unless
   the policy declares ``keeps_flow_order = False``. (Kafka has one request of a
   connection in the broker at a time, so a connection's own order is never at stake.)
5. ``outranks`` changes nothing, and is true only if ``pick`` would return another job.
   ``preempts`` says when it can become true: ``NEVER``, ``ON_ARRIVAL`` (only when a
   job comes to wait) or ``IN_SERVICE`` (also because the running job has used CPU).
   A policy may have a method ``outranked_at_ns(running)`` that says more: what CPU the
   job will have attained before which ``outranks`` stays false, as long as nothing but
   ``ran`` of this job happens; None if for ever. And an attribute ``least_turn_ns``:
   what CPU a job has had since it was picked before which ``outranks`` is false,
   whatever happens. Simulators ask these, to ask less.
6. *Progress*: a waiting job is picked in the end however many others keep arriving, if
   ``ageing_ns`` is set, unless the policy declares ``may_starve = True``.

``ran`` of the last slice before ``leave(done=True)`` may be left out if the policy says
``leave_suffices = True``: what it needs to know stands in ``job.attained_ns``.

A turn may be used for another job (``planes.lock``): then a job is billed more than its
own need. A policy that bounds how far backlogged flows get apart by weight may declare
``shares_by_weight = True``, so that ``planes.laws`` watches it do so.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol

from schedulers.job import Job

NEVER: Final = "never"
ON_ARRIVAL: Final = "on arrival"
IN_SERVICE: Final = "in service"


class Scheduler(Protocol):
    """A queue discipline over the waiting jobs of one plane."""

    work_conserving: ClassVar[bool]
    keeps_flow_order: ClassVar[bool]
    may_starve: ClassVar[bool]
    preempts: ClassVar[str]

    def arrive(self, job: Job, now_ns: int) -> None:
        """Take a new job, which waits from now on."""

    def pick(self, now_ns: int) -> Job | None:
        """Remove and return the waiting job to serve next, or None."""

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a waiting job should take over at the next preemption point."""

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Learn that ``job``, in service, has just used ``used_ns`` of CPU."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Let a job out of service; if done, ``job.attained_ns`` is its true cost."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Take back a job that left service unfinished: it waits again."""

    def next_event_ns(self, now_ns: int) -> int | None:
        """When the passing of time alone may change an answer, or None if never."""

    def waiting(self) -> Iterator[Job]:
        """Iterate over the waiting jobs, in no promised order."""

    def __len__(self) -> int:
        """Count the waiting jobs."""

    def check(self) -> None:
        """Assert every internal invariant; for tests and simulations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What a policy may be told when it is made.

    ``weights`` maps a request class to its share (missing: 1.0); ``seats`` is the
    number of jobs that can be in service at once (the D of SFQ(D)); ``ageing_ns``
    bounds how long strict priority may pass a job over (None: no bound);
    ``quantum_ns`` is the slice of time-sharing policies; ``options`` are a policy's
    own named settings, as numbers.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    seats: int = 1
    ageing_ns: int | None = None
    quantum_ns: int = 1_000_000
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        assert self.seats >= 1, self.seats
        assert self.quantum_ns >= 1, self.quantum_ns
        assert self.ageing_ns is None or self.ageing_ns >= 1, self.ageing_ns
        assert all(weight > 0 for weight in self.weights.values()), self.weights

    def weight(self, job: Job) -> float:
        """Return the share of the job's class."""
        return self.weights.get(job.request_class, 1.0)

    def option(self, name: str, default: float, *, least: float = 0.0) -> float:
        """Return a policy's own setting.

        :raises BadSetting: if it is below ``least``.
        """
        value = self.options.get(name, default)
        if value < least:
            raise BadSetting(f"{name} = {value}, expected at least {least}")
        return value


class BadSetting(ValueError):
    """An option that a policy does not know, or a value that it cannot use."""


class SchedulerFactory(Protocol):
    """Makes a scheduler; what ``module:factory`` on the command line must name.

    A factory with settings of its own has an attribute ``OPTIONS``: their names, or
    prefixes of names that end in a point.
    """

    def __call__(self, config: SchedulerConfig) -> Any:
        """Return a new, empty scheduler."""
