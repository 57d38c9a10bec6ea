"""What an executor is: it runs trials somewhere, and yields their outcomes.

An executor asks for trials one by one, as it has room for them: a repetition of a run
that did not count is handed out next, not after all the others, and no more results are
in memory than trials are under way.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from experiments.running.trials import Outcome, Work


class Todo(Protocol):
    """The trials that are still to be run."""

    def next(self) -> Work | None:
        """Hand out a trial; None if there is none before another outcome is taken."""


class Executor(Protocol):
    """Runs trials. ``lanes`` is how many at a time, None if that is not known yet."""

    name: str
    lanes: int | None

    def outcomes(self, todo: Todo) -> Generator[Outcome, None, None]:
        """Run trials until none is handed out any more; yield each one's outcome.

        Closing the iterator ends what is under way.

        :raises experiments.running.trials.TrialFailed: if a trial raised, at the first
        one.
        :raises experiments.worlds.world.WorldError: if no trial can run.
        """
