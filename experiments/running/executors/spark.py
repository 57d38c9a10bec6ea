"""A Spark cluster: the same trials by the same function, on all its machines.

Every trial is a job of one task. Jobs are submitted from threads, twice as many as the
cluster has cores, so that a core always has work and results arrive one by one. A
single job over all trials would deliver results together, or in order. Spark repeats a
trial whose machine is lost.

The code is sent to the workers. Its libraries (``requirements.lock``) must be installed
there, in a Python of the same version that ``PYSPARK_PYTHON`` names. A worker with
other code refuses to run.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from experiments.records.environment import code_sha256
from experiments.running.executor import Todo
from experiments.running.trials import (
    Answer,
    Failure,
    Outcome,
    TrialFailed,
    Work,
    expect,
)
from experiments.running.unit_runner import attempt

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_UNDER_WAY = 2
_THREADS_MAX = 1024


class Spark:
    """Runs trials of a world on the cluster of the session that ``connect`` opens.

    The session must send `environment.CODE_PACKAGES` to its workers.
    """

    name = "spark"
    lanes: int | None = None

    def __init__(
        self, world: str, connect: Callable[[], AbstractContextManager[SparkSession]]
    ) -> None:
        self._world = world
        self._connect = connect

    def outcomes(self, todo: Todo) -> Generator[tuple[Outcome, ...], None, None]:
        """Run trials, see `Executor`."""
        with contextlib.ExitStack() as stack:
            try:
                session = stack.enter_context(self._connect())
            except Exception as error:
                raise TrialFailed(f"no session: {_error_line(error)}") from error
            context = session.sparkContext
            threads = stack.enter_context(ThreadPoolExecutor(_THREADS_MAX))
            try:
                yield from stream(
                    lambda work: threads.submit(_job, context, self._world, work),
                    todo,
                    # Read each time, because the number of workers changes.
                    lambda: _UNDER_WAY * context.defaultParallelism,
                )
            except BaseException:
                # After an error or Ctrl-C the cluster must not continue.
                threads.shutdown(wait=False, cancel_futures=True)
                context.cancelAllJobs()
                raise


def stream(
    submit: Callable[[Work], Future[Answer]],
    todo: Todo,
    room: Callable[[], int],
) -> Generator[tuple[Outcome, ...], None, None]:
    """Keep up to ``room()`` trials in progress, and yield outcomes as they arrive."""
    running: set[Future[Answer]] = set()
    while True:
        free = room() - len(running)
        while free > 0 and (work := todo.next()) is not None:
            todo.started(work.trials[0])
            running.add(submit(work))
            free -= 1
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield expect(future.result())


def attempt_there(code: str, world: str, work: Work) -> Answer:
    """Run a trial on a worker, if the hash of its code is ``code``."""
    found = code_sha256()
    if found == code:
        return attempt(world, work)
    message = (
        f"{socket.gethostname()} would run other code: {found[:12]}, not {code[:12]}"
    )
    return Failure(message=message, ours=True)


def _job(context: SparkContext, world: str, work: Work) -> Answer:
    """Run one trial as a Spark job, and wait for it."""
    code = code_sha256()
    try:
        one = context.parallelize([work], 1)
        return one.map(lambda each: attempt_there(code, world, each)).collect()[0]
    except Exception as error:
        raise TrialFailed(
            f"{work.trials[0].run_id}: Spark reports: {_error_line(error)}"
        ) from error


def _error_line(error: Exception) -> str:
    """Return the line of Java's and Python's traces with the error."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line or "Exception: " in line]
    line = (errors or lines or [type(error).__name__])[0]
    if "No module named" in line or "Cannot run program" in line:
        line += (
            "; PYSPARK_PYTHON has to name a Python on the workers' machines with the "
            "packages of requirements.lock"
        )
    return line
