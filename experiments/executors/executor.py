"""What an executor is, and the loop that those with several lanes share.

An executor asks for cells one by one, as it has room for them: a repetition of a run
that did not count is handed out next, not after all the others, and no more results are
in memory than cells are under way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Protocol

from experiments.cells import Failure, Outcome, Work, expect


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

        :raises experiments.cells.CellFailed: if a cell raised, at the first one.
        :raises experiments.worlds.world.WorldError: if no cell can run.
        """


def stream(
    submit: Callable[[Work], Future[Outcome | Failure]],
    todo: Todo,
    room: Callable[[], int],
) -> Generator[Outcome, None, None]:
    """Keep up to ``room()`` cells under way, and yield outcomes as they come."""
    running: set[Future[Outcome | Failure]] = set()
    while True:
        free = room() - len(running)
        while free > 0 and (work := todo.next()) is not None:
            running.add(submit(work))
            free -= 1
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield expect(future.result())
