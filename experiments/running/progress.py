"""Display of a running experiment: the current run, and the remaining time.

The bar is drawn only on calls of the runner or of a world, never by a separate thread.
Drawing uses CPU time of the measured machine.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from experiments.load.lateness import DISCARDED
from experiments.worlds.world import RunResult, Trial


class Watcher(Protocol):
    """Receives the progress of an experiment."""

    def planned(
        self, runs: int, seconds_each: float, lanes: int | None, stale: int
    ) -> None:
        """Receive the number of planned runs, their length, and their concurrency.

        ``stale`` runs were recorded with other code or another calibration and no
        longer count.
        """

    def started(self, trial: Trial) -> None:
        """Receive the start of a run."""

    def tick(self) -> None:
        """Receive a clock tick, about once per second."""

    def ended(self, trial: Trial, result: RunResult) -> None:
        """Receive the end of a run."""


class ProgressBar:
    """A bar on the terminal; without a terminal, one line per block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]} left"),
            console=console,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None, left="?")
        self._runs_left = 0
        self._seconds_each = 0.0
        self._ended = 0
        self._uncounted = Counter[str]()
        self._began = self._last = time.monotonic()
        self._block = -1

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._report_uncounted()
        self._progress.stop()

    def planned(
        self, runs: int, seconds_each: float, lanes: int | None, stale: int
    ) -> None:
        """Set the bar's length."""
        self._runs_left, self._seconds_each = runs, seconds_each / (lanes or 1)
        self._began = self._last = time.monotonic()
        self._progress.update(self._task, total=runs)
        minutes = runs * self._seconds_each / 60
        lasting = f", about {minutes:.1f} minutes" if lanes else ""
        self._console.print(f"{runs} runs to go{lasting}")
        if stale:
            self._console.print(
                f"{stale} recorded runs no longer count: other code or calibration"
            )

    def started(self, trial: Trial) -> None:
        """Show the current run."""
        again = f" (attempt {trial.attempt + 1})" if trial.attempt else ""
        sessions, blocks = trial.experiment.sessions, trial.experiment.blocks
        block = f"block {trial.block + 1}/{blocks}"
        worth_a_line = True
        if sessions is not None:
            block = f"session {trial.session + 1}/{sessions.count}"
            worth_a_line = trial.block % sessions.rounds == 0
            if worth_a_line and trial.block > self._block:
                self._report_uncounted()
        if not self._console.is_terminal and trial.block > self._block and worth_a_line:
            self._console.print(f"{block}, {self._left()} left")
        self._block = max(self._block, trial.block)
        point = f"  {trial.point.name}" if trial.point.name else ""
        self._progress.update(
            self._task,
            description=f"{block}{point}  [bold]{trial.arm.name}[/]{again}",
            left=self._left(),
        )
        self._progress.refresh()

    def tick(self) -> None:
        """Redraw."""
        self._progress.update(self._task, left=self._left())
        self._progress.refresh()

    def ended(self, trial: Trial, result: RunResult) -> None:
        """Advance unless the run will be repeated; report a run that is not valid."""
        self._ended += 1
        self._last = time.monotonic()
        if result.valid:
            self._runs_left -= 1
            self._progress.advance(self._task)
        elif trial.experiment.sessions is None:
            self._console.print(
                f"{trial.run_id} does not count: {result.reason}", markup=False
            )
        else:
            # A session has dozens: print one line per reason.
            self._uncounted[_kind(result.reason)] += 1
        self.tick()

    def _report_uncounted(self) -> None:
        """Print the number and reasons of invalid runs since the last such line."""
        for kind, count in self._uncounted.most_common():
            self._console.print(f"runs that do not count: {count} ({kind})")
        self._uncounted.clear()

    def _left(self) -> str:
        """Estimate the remaining time from the pace so far, for any concurrency."""
        each = self._seconds_each
        if self._ended:
            each = (self._last - self._began) / self._ended
        left_s = self._runs_left * each - (time.monotonic() - self._last)
        minutes, seconds = divmod(max(0, round(left_s)), 60)
        return f"{minutes}:{seconds:02d}"


def _kind(reason: str) -> str:
    """Return a reason without its figures."""
    parts = reason.split(": ")
    return ": ".join(parts[: 2 if parts[0] == DISCARDED else 1])
