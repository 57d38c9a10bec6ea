"""Optional promises of a policy about its results, which save calls.

Without promises, a simulator or a plane calls every method each time, with the same
results. A policy that adds `Foresight` to its bases promises, in addition to the laws
of `Scheduler`:

* ``outranks`` is false before ``outranked_at_ns``, and in the first ``least_turn_ns``
  of every turn;
* with ``leave_suffices``, no result depends on ``ran`` for the last slice of a job.

The contract tests check all three.
"""

from __future__ import annotations

from typing import ClassVar, Final

from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class Foresight:
    """A mixin of policies; the defaults promise nothing."""

    # `ran` need not be called for the slice that ends a job, because
    # ``job.attained_ns`` is complete when the job leaves.
    leave_suffices: ClassVar[bool] = False
    # `outranked_at_ns` is implemented.
    foresees: ClassVar[bool] = False
    # The CPU of every turn before its job can be outranked.
    least_turn_ns: int = 0

    def outranked_at_ns(self, running: Job) -> int | None:
        """Return the attained CPU of a job from which on it may be outranked.

        Below that value ``outranks`` is false, as long as ``ran`` of this job is the
        only call. None: ``outranks`` stays false.
        """
        return 0


_NONE: Final = Foresight()


def foresight_of(policy: Scheduler) -> Foresight:
    """Return a policy's promises, or the defaults if it declares none."""
    return policy if isinstance(policy, Foresight) else _NONE
