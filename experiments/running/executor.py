"""The contract of an executor: it runs work, and yields the outcomes.

An executor requests work piece by piece, as it has capacity for it, so memory holds no
more results than pieces in progress. Rows do not depend on the executor.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from experiments.running.trials import Outcome, Work
from experiments.worlds.world import Trial


class Todo(Protocol):
    """The remaining work."""

    def next(self) -> Work | None:
        """Return the next work; None if none remains."""

    def started(self, trial: Trial) -> None:
        """Record that a run begins."""


class Executor(Protocol):
    """Runs work; ``lanes`` is the number of concurrent pieces, None if unknown."""

    name: str
    lanes: int | None

    def outcomes(self, todo: Todo) -> Generator[tuple[Outcome, ...], None, None]:
        """Run until no work remains; yield the outcomes of each piece.

        Closing the iterator ends the trials in progress.

        :raises experiments.running.trials.TrialFailed: at the first trial that raised.
        :raises experiments.worlds.world.WorldError: if no trial can run.
        """
