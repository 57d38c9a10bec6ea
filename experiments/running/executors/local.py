"""Trials in processes on this machine, several at a time.

Processes are spawned, not forked: a fork would copy this process's threads and locks.
They ignore the terminal's Ctrl-C, which is for the process that writes the files, and
die with it (prctl), however it ends.

Each has a pipe of its own, and the one thread here reads them in turn. A process may
therefore be killed at any point, and Ctrl-C may come at any moment: no reader waits for
the rest of a message, or for a lock. (``concurrent.futures`` shares one pipe and one
lock among all, which a process may take with it when it is killed.)
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Generator, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

from experiments.processes.child import die_with
from experiments.running.executor import Todo
from experiments.running.trials import Answer, Outcome, TrialFailed, Work, expect
from experiments.running.unit_runner import attempt

# Besides the running one, each process has one trial waiting.
_UNDER_WAY = 2


class Local:
    """Runs trials of a world in ``workers`` processes; by default one for each CPU."""

    name = "local"

    def __init__(self, world: str, workers: int | None = None) -> None:
        self._world = world
        self._workers = workers or len(os.sched_getaffinity(0))
        self.lanes: int | None = self._workers

    def outcomes(self, todo: Todo) -> Generator[tuple[Outcome, ...], None, None]:
        """Run trials, see `Executor`."""
        workers: list[_Worker] = []
        try:
            while True:
                self._hand_out(todo, workers)
                busy = {it.pipe: it for it in workers if it.under_way}
                if not busy:
                    return
                for pipe in wait([*busy]):
                    assert isinstance(pipe, Connection)
                    yield expect(busy[pipe].receive())
        finally:
            # After an error or Ctrl-C their results are not wanted any more.
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.process.join()
                worker.pipe.close()

    def _hand_out(self, todo: Todo, workers: list[_Worker]) -> None:
        """Give trials to those that have least, and start processes that are wanted."""
        while True:
            least = min(workers, key=lambda it: it.under_way, default=None)
            starts = len(workers) < self._workers and (not least or least.under_way)
            if not starts and least and least.under_way == _UNDER_WAY:
                return
            work = todo.next()
            if work is None:
                return
            if starts or least is None:
                least = _Worker(self._world)
                workers.append(least)
            todo.started(work.trials[0])
            least.send(work)


class _Worker:
    """A process, the pipe to it, and how many trials it has not answered for."""

    def __init__(self, world: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, world, os.getpid()), daemon=True
        )
        with _ctrl_c_blocked():
            self.process.start()
        # Its end is the only one now, so that its death can be read.
        theirs.close()
        self.under_way = 0

    def send(self, work: Work) -> None:
        """Hand it one more trial."""
        with _its_death_told():
            self.pipe.send(work)
        self.under_way += 1

    def receive(self) -> Answer:
        """Take its next answer."""
        with _its_death_told():
            answer: Answer = self.pipe.recv()
        self.under_way -= 1
        return answer


@contextlib.contextmanager
def _its_death_told() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise TrialFailed(
            "a process that ran trials died; was it killed for want of memory? "
            "--workers N takes fewer at a time"
        ) from error


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Make processes that are started meanwhile ignore Ctrl-C."""
    # Its own start would lift the block.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, world: str, parent: int) -> None:
    """Run what comes, in a process of its own, until it is killed."""
    die_with(parent)
    while True:
        pipe.send(attempt(world, pipe.recv()))
