"""A watcher of experiments that reports nothing."""

from experiments.worlds.world import RunResult, Trial


class Unwatched:
    """Ignores all events."""

    def planned(
        self, runs: int, seconds_each: float, lanes: int | None, stale: int
    ) -> None:
        """Do nothing."""

    def started(self, trial: Trial) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""

    def ended(self, trial: Trial, result: RunResult) -> None:
        """Do nothing."""
