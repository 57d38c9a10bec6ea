"""Display of a running experiment: the present run, and the time left.

The bar is drawn only when the runner or a world asks for it, never by a thread of its
own: drawing takes CPU on the machine under measurement.
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

    def planned(self, runs: int, seconds_each: float, lanes: int | None) -> None:
        """Learn how many runs are to come, how long each takes, how many at a time."""

    def started(self, trial: Trial) -> None:
        """Learn that a run begins."""

    def tick(self) -> None:
        """Learn that time passes; called about once a second."""

    def ended(self, trial: Trial, result: RunResult) -> None:
        """Learn that a run is over."""


class ProgressBar:
    """A bar on the terminal; where there is no terminal, one line per block."""

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
        self._tell_uncounted()
        self._progress.stop()

    def planned(self, runs: int, seconds_each: float, lanes: int | None) -> None:
        """Set the bar's length."""
        self._runs_left, self._seconds_each = runs, seconds_each / (lanes or 1)
        self._began = self._last = time.monotonic()
        self._progress.update(self._task, total=runs)
        minutes = runs * self._seconds_each / 60
        lasting = f", about {minutes:.1f} minutes" if lanes else ""
        self._console.print(f"{runs} runs to go{lasting}")

    def started(self, trial: Trial) -> None:
        """Show what runs now."""
        again = f" (attempt {trial.attempt + 1})" if trial.attempt else ""
        sessions, blocks = trial.experiment.sessions, trial.experiment.blocks
        block = f"block {trial.block + 1}/{blocks}"
        worth_a_line = True
        if sessions is not None:
            block = f"session {trial.session + 1}/{sessions.count}"
            worth_a_line = trial.block % sessions.rounds == 0
            if worth_a_line and trial.block > self._block:
                self._tell_uncounted()
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
        """Advance, unless the run has to be repeated; say so if it did not count."""
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
            # Dozens in a session: one line for each reason.
            self._uncounted[_kind(result.reason)] += 1
        self.tick()

    def _tell_uncounted(self) -> None:
        """Print how many runs did not count since the last such line, and why."""
        for kind, count in self._uncounted.most_common():
            self._console.print(f"runs that do not count: {count} ({kind})")
        self._uncounted.clear()

    def _left(self) -> str:
        """Estimate the time left from the pace so far, however many run at a time."""
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
