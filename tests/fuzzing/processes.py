"""Work in processes that are replaced before they use much memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from multiprocessing import get_context
from typing import Final, TypeVar

RUNS_OF_A_PROCESS: Final = 200
T = TypeVar("T")
R = TypeVar("R")


def in_fresh_processes(
    work: Callable[[T], R],
    items: Iterator[T],
    jobs: int,
    ends_s: float,
    *,
    each: int = RUNS_OF_A_PROCESS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[R]:
    """Yield the results of ``work`` from ``jobs`` concurrent processes.

    Processes are replaced after ``each * jobs`` items, since memory growth is no
    finding. No item begins after ``ends_s`` by ``clock``. The executor's own
    ``max_tasks_per_child`` sometimes hangs on Python 3.11, which does not replace an
    ended process.
    """
    while clock() < ends_s:
        share = list(islice(items, each * jobs))
        if not share:
            return
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            left = {pool.submit(work, item) for item in share}
            for done in as_completed(set(left)):
                left.remove(done)
                yield done.result()
                if clock() >= ends_s:
                    break
            pool.shutdown(cancel_futures=True)
        yield from (late.result() for late in left if not late.cancelled())
