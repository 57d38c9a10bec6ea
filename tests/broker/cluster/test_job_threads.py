"""Jobs in threads: reported where Trio runs, side by side when there are many."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.lowlevel

from broker.node.job_shell import JobThreads


async def test_a_job_is_reported_in_trios_thread() -> None:
    jobs, told, woken = JobThreads(1), [], trio.Event()
    ran_in: list[int] = []

    def done(error: Exception | None) -> None:
        told.append((threading.get_ident(), error))
        woken.set()

    jobs.start(lambda: ran_in.append(threading.get_ident()), done)
    await woken.wait()
    assert told == [(threading.get_ident(), None)]
    assert ran_in[0] != threading.get_ident()
    jobs.close()


async def test_a_fault_is_handed_over() -> None:
    jobs, told, woken = JobThreads(1), [], trio.Event()

    def fail() -> None:
        raise OSError(28, "full")

    def done(error: Exception | None) -> None:
        told.append(error)
        woken.set()

    jobs.start(fail, done)
    await woken.wait()
    assert isinstance(told[0], OSError)
    jobs.close()


async def test_closing_waits_for_what_runs_and_forgets_the_rest() -> None:
    jobs = JobThreads(1)
    begun, go_on, ended = threading.Event(), threading.Event(), []

    def job() -> None:
        begun.set()
        go_on.wait()
        ended.append(1)

    jobs.start(job, lambda error: None)
    jobs.start(lambda: ended.append(2), lambda error: None)
    assert begun.wait(10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, jobs.close)
        while takes_jobs(jobs):
            await trio.lowlevel.checkpoint()
        go_on.set()
    assert ended == [1]


def takes_jobs(jobs: JobThreads) -> bool:
    try:
        jobs.start(lambda: None, lambda error: None)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("closed", [False, True])
def test_many_are_run_side_by_side(closed: bool) -> None:
    jobs = JobThreads(4)
    if closed:
        jobs.close()
    together = threading.Barrier(4, timeout=10)
    ended: list[int] = []

    def job() -> None:
        together.wait()
        ended.append(1)

    jobs.run_all([job] * 8)
    assert len(ended) == 8
