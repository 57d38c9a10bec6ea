"""Work done by processes that are replaced before they have grown large."""

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
    """Yield the results of ``work``, by ``jobs`` processes at a time.

    They are replaced after ``each * jobs`` items: memory that is not given back is no
    finding. From ``ends_s`` on, by ``clock``, nothing more is begun. The executor's own
    option for the first, ``max_tasks_per_child``, has Python 3.11 wait for ever now and
    then: nothing takes the place of a process that has ended.
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
