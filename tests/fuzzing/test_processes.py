"""Work in replaced processes completes, or stops at its time limit."""

from __future__ import annotations

import os
import time
from itertools import chain, repeat

from tests.fuzzing.processes import in_fresh_processes

SOON_S = 3600


def process_of(_: int) -> int:
    return os.getpid()


def test_all_work_is_done_though_processes_end_on_the_way() -> None:
    """With ``max_tasks_per_child``, the executor waited forever for the last items."""
    assert sorted(
        in_fresh_processes(abs, iter(range(7)), 2, time.monotonic() + SOON_S, each=2)
    ) == list(range(7))


def test_no_process_does_more_than_its_share() -> None:
    end_s = time.monotonic() + SOON_S
    pids = list(in_fresh_processes(process_of, iter(range(4)), 1, end_s, each=2))
    assert len(set(pids)) == 2


def test_cases_begun_before_the_deadline_are_reported() -> None:
    moments = chain([0.0, 0.0], repeat(1.0))
    found = list(
        in_fresh_processes(abs, iter(range(500)), 1, 1.0, clock=lambda: next(moments))
    )
    assert 2 <= len(found) < 20
    assert set(found) <= set(range(20))


def test_when_time_is_up_nothing_more_is_begun() -> None:
    items = iter(range(10**9))
    assert list(in_fresh_processes(abs, items, 1, time.monotonic())) == []
    assert next(items) == 0
