"""Trials in processes on this machine, several at a time.

Processes are spawned, not forked: a fork would copy this process's threads and locks.
They ignore the terminal's Ctrl-C, which is for the process that writes the files, and
die with it (prctl).

Each process has its own pipe, and a single thread here reads them in turn. A process
may therefore be killed at any point, and Ctrl-C may come at any moment: no reader waits
for the rest of a message, or for a lock. (In ``concurrent.futures`` all processes share
one pipe and one lock, which a killed process may leave locked.)
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

# Trials per process: one runs, one waits.
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
                self._distribute(todo, workers)
                busy = {it.pipe: it for it in workers if it.under_way}
                if not busy:
                    return
                for pipe in wait([*busy]):
                    assert isinstance(pipe, Connection)
                    yield expect(busy[pipe].receive())
        finally:
            # After an error or Ctrl-C their results are not needed.
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.process.join()
                worker.pipe.close()

    def _distribute(self, todo: Todo, workers: list[_Worker]) -> None:
        """Give trials to the least loaded processes, and start further ones."""
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
    """A process, the pipe to it, and the number of its unanswered trials."""

    def __init__(self, world: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, world, os.getpid()), daemon=True
        )
        with _ctrl_c_blocked():
            self.process.start()
        # The child now has the only other end, so its death can be detected.
        theirs.close()
        self.under_way = 0

    def send(self, work: Work) -> None:
        """Send one more trial."""
        with _reporting_death():
            self.pipe.send(work)
        self.under_way += 1

    def receive(self) -> Answer:
        """Receive the next answer."""
        with _reporting_death():
            answer: Answer = self.pipe.recv()
        self.under_way -= 1
        return answer


@contextlib.contextmanager
def _reporting_death() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise TrialFailed(
            "a process that ran trials died; was it killed for want of memory? "
            "--workers N takes fewer at a time"
        ) from error


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Make processes started within the block ignore Ctrl-C."""
    # Started first, because its own start would unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, world: str, parent: int) -> None:
    """Run received work in a child process until it is killed."""
    die_with(parent)
    while True:
        pipe.send(attempt(world, pipe.recv()))
