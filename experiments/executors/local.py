"""A pool of processes on this machine.

Processes are spawned, not forked: a fork would copy whatever threads and locks this
process happens to hold. They ignore the terminal's Ctrl-C, which is for the process
that writes the files, and die with it (prctl), however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from experiments.cells import CellFailed, Outcome, attempt
from experiments.executors.executor import Todo, stream
from experiments.worlds.child import die_with

# Besides the one that it runs, each process has one cell waiting.
_UNDER_WAY = 2


class Local:
    """Runs cells of a world in ``workers`` processes; by default one for each CPU."""

    name = "local"

    def __init__(self, world: str, workers: int | None = None) -> None:
        self._world = world
        self._workers = workers or len(os.sched_getaffinity(0))
        self.lanes: int | None = self._workers

    def outcomes(self, todo: Todo) -> Generator[Outcome, None, None]:
        """Run cells, see `Executor`."""
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(
            self._workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(os.getpid(),),
        )
        room = _UNDER_WAY * self._workers
        try:
            yield from stream(
                lambda work: pool.submit(attempt, self._world, work),
                todo,
                lambda: room,
            )
        except BrokenProcessPool as error:
            raise CellFailed(
                "a process that ran cells died; was it killed for want of memory? "
                "--workers N takes fewer at a time"
            ) from error
        except BaseException:
            # Out of an error or Ctrl-C: nobody wants what they are at any more.
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(parent: int) -> None:
    """Leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)
