"""Optional bounds of a policy on its own answers, so that callers ask it less.

A policy needs none of them: a simulator, or a plane, then calls every verb each time,
with the same results. A policy that adds `Foresight` to its bases promises, beside the
laws of `Scheduler`:

* ``outranks`` is false before ``outranked_at_ns``, and in the first ``least_turn_ns``
  of every turn;
* with ``leave_suffices``, no answer depends on ``ran`` for the last slice of a job.

The contract tests check all three.
"""

from __future__ import annotations

from typing import ClassVar, Final

from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class Foresight:
    """A mixin of policies; the defaults promise nothing."""

    # `ran` need not be called for the slice that ends a job: ``job.attained_ns`` has
    # all when the job leaves.
    leave_suffices: ClassVar[bool] = False
    # `outranked_at_ns` is implemented, so it is worth calling.
    foresees: ClassVar[bool] = False
    # The CPU that every turn has before its job can be outranked.
    least_turn_ns: int = 0

    def outranked_at_ns(self, running: Job) -> int | None:
        """Return the CPU that a job will have attained when it may be outranked.

        Before that ``outranks`` is false, as long as nothing but ``ran`` of this job
        happens. None: for ever.
        """
        return 0


_NONE: Final = Foresight()


def foresight_of(policy: Scheduler) -> Foresight:
    """Return a policy's foresight; that of a policy without any promises nothing."""
    return policy if isinstance(policy, Foresight) else _NONE
