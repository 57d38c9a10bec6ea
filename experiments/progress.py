"""What a person sees while an experiment runs: what runs now, and the time left.

The bar is drawn only when the runner or a world asks for it, never by a thread of its
own: drawing costs a millisecond of a CPU that a run is being measured on.
"""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from experiments.worlds.world import Cell, RunResult


class Watcher(Protocol):
    """Who is told how an experiment gets on."""

    def planned(self, runs: int, seconds_each: float) -> None:
        """Learn how many runs are to come, and about how long each takes."""

    def started(self, cell: Cell) -> None:
        """Learn that a run begins."""

    def tick(self) -> None:
        """Learn that time passes; called about once a second."""

    def ended(self, cell: Cell, result: RunResult, seconds: float) -> None:
        """Learn that a run is over."""


class Silence:
    """A watcher that says nothing."""

    def planned(self, runs: int, seconds_each: float) -> None:
        """Ignore it."""

    def started(self, cell: Cell) -> None:
        """Ignore it."""

    def tick(self) -> None:
        """Ignore it."""

    def ended(self, cell: Cell, result: RunResult, seconds: float) -> None:
        """Ignore it."""


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
        self._seconds: list[float] = []
        self._began = time.monotonic()

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def planned(self, runs: int, seconds_each: float) -> None:
        """Set the bar's length."""
        self._runs_left, self._seconds_each = runs, seconds_each
        self._progress.update(self._task, total=runs)
        minutes = runs * seconds_each / 60
        self._console.print(f"{runs} runs to go, about {minutes:.1f} minutes")

    def started(self, cell: Cell) -> None:
        """Show what runs now."""
        self._began = time.monotonic()
        again = f" (attempt {cell.attempt + 1})" if cell.attempt else ""
        block = f"block {cell.block + 1}/{cell.experiment.experiment.blocks}"
        if not self._console.is_terminal and cell.order == 0 and not cell.attempt:
            self._console.print(f"{block}, {self._left()} left")
        self._progress.update(
            self._task,
            description=f"{block}  [bold]{cell.arm.name}[/]{again}",
            left=self._left(),
        )
        self._progress.refresh()

    def tick(self) -> None:
        """Redraw."""
        self._progress.update(self._task, left=self._left())
        self._progress.refresh()

    def ended(self, cell: Cell, result: RunResult, seconds: float) -> None:
        """Advance, unless the run has to be repeated; say so if it did not count."""
        self._seconds.append(seconds)
        if result.valid:
            self._runs_left -= 1
            self._progress.advance(self._task)
        else:
            self._console.print(f"{cell.run_id} does not count: {result.reason}")
        self._began = time.monotonic()
        self.tick()

    def _left(self) -> str:
        """Estimate the time left from the runs so far and the present one."""
        each = self._seconds_each
        if self._seconds:
            each = sum(self._seconds) / len(self._seconds)
        left_s = self._runs_left * each - (time.monotonic() - self._began)
        minutes, seconds = divmod(max(0, round(left_s)), 60)
        return f"{minutes}:{seconds:02d}"
