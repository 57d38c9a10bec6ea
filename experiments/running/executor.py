"""What an executor is: it runs cells somewhere, and yields their outcomes.

An executor asks for cells one by one, as it has room for them: a repetition of a run
that did not count is handed out next, not after all the others, and no more results are
in memory than cells are under way.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from experiments.running.trials import Outcome, Work


class Todo(Protocol):
    """The cells that are still to be run."""

    def next(self) -> Work | None:
        """Hand out a cell; None if there is none before another outcome is taken."""


class Executor(Protocol):
    """Runs cells. ``lanes`` is how many at a time, None if that is not known yet."""

    name: str
    lanes: int | None

    def outcomes(self, todo: Todo) -> Generator[Outcome, None, None]:
        """Run cells until none is handed out any more; yield each one's outcome.

        Closing the iterator ends what is under way.

        :raises experiments.running.trials.CellFailed: if a cell raised, at the first
        one.
        :raises experiments.worlds.world.WorldError: if no cell can run.
        """
