"""The contract of an executor: it runs work, and yields the outcomes.

An executor requests work piece by piece, as it has room for it, so no more results are
in memory than pieces are under way. Rows do not depend on the executor.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from experiments.running.trials import Outcome, Work
from experiments.worlds.world import Trial


class Todo(Protocol):
    """The work that is still to be done."""

    def next(self) -> Work | None:
        """Hand out work; None if there is none left."""

    def started(self, trial: Trial) -> None:
        """Note that a run begins."""


class Executor(Protocol):
    """Runs work. ``lanes`` is how many pieces at a time, None if not known yet."""

    name: str
    lanes: int | None

    def outcomes(self, todo: Todo) -> Generator[tuple[Outcome, ...], None, None]:
        """Run until no work is handed out any more; yield the outcomes of each piece.

        Closing the iterator ends the trials under way.

        :raises experiments.running.trials.TrialFailed: if a trial raised, at the first
        one.
        :raises experiments.worlds.world.WorldError: if no trial can run.
        """
