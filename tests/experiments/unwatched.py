"""A watcher of experiments for tests, in which nobody watches."""

from experiments.worlds.world import RunResult, Trial


class Unwatched:
    """Ignores whatever it is told."""

    def planned(self, runs: int, seconds_each: float, lanes: int | None) -> None:
        """Ignore it."""

    def started(self, trial: Trial) -> None:
        """Ignore it."""

    def tick(self) -> None:
        """Ignore it."""

    def ended(self, trial: Trial, result: RunResult) -> None:
        """Ignore it."""

    def spoiled(self, trial: Trial, runs: int, reason: str) -> None:
        """Ignore it."""
