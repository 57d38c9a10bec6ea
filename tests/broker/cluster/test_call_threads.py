"""Calls in threads: results come in Trio's thread, and calls run in parallel."""

from __future__ import annotations

import os
import pkgutil
import signal
import threading
from functools import partial

import pytest
import trio
import trio.lowlevel

from broker.node.call_shell import CallThreads, call_in_thread
from broker.node.resolver_shell import look_up_in_thread


async def test_a_call_is_reported_in_trios_thread() -> None:
    calls, told, woken = CallThreads(1), [], trio.Event()
    ran_in: list[int] = []

    def done(error: Exception | None) -> None:
        told.append((threading.get_ident(), error))
        woken.set()

    calls.start(lambda: ran_in.append(threading.get_ident()), done)
    await woken.wait()
    assert told == [(threading.get_ident(), None)]
    assert ran_in[0] != threading.get_ident()
    calls.close()


async def test_a_fault_is_handed_over() -> None:
    calls, told, woken = CallThreads(1), [], trio.Event()

    def fail() -> None:
        raise OSError(28, "full")

    def done(error: Exception | None) -> None:
        told.append(error)
        woken.set()

    calls.start(fail, done)
    await woken.wait()
    assert isinstance(told[0], OSError)
    calls.close()


async def test_closing_waits_for_what_runs_and_forgets_the_rest() -> None:
    calls = CallThreads(1)
    begun, go_on, ended = threading.Event(), threading.Event(), []

    def call() -> None:
        begun.set()
        go_on.wait()
        ended.append(1)

    calls.start(call, lambda error: None)
    calls.start(lambda: ended.append(2), lambda error: None)
    assert begun.wait(10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, calls.close)
        while takes_calls(calls):
            await trio.lowlevel.checkpoint()
        go_on.set()
    assert ended == [1]


def takes_calls(calls: CallThreads) -> bool:
    try:
        calls.start(lambda: None, lambda error: None)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("closed", [False, True])
def test_many_are_run_side_by_side(closed: bool) -> None:
    calls = CallThreads(4)
    if closed:
        calls.close()
    together = threading.Barrier(4, timeout=10)
    ended: list[int] = []

    def call() -> None:
        together.wait()
        ended.append(1)

    calls.run_all([call] * 8)
    assert len(ended) == 8


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_threads_work_as_are_asked_for(threads: int) -> None:
    calls = CallThreads(8)
    workers: set[threading.Thread] = set()
    calls.run_all(
        [lambda: workers.add(threading.current_thread())] * 20, threads=threads
    )
    assert 1 <= len(workers) <= threads
    # With one thread the caller makes the calls itself, so a signal interrupts them.
    assert (threading.current_thread() in workers) is (threads == 1)


def test_an_exception_of_a_call_is_raised_and_waiting_calls_do_not_begin() -> None:
    calls = CallThreads(2)
    begun: list[int] = []
    go_on = threading.Event()

    def fail() -> None:
        raise OSError("torn")

    def wait() -> None:
        begun.append(1)
        go_on.wait(10)

    with pytest.raises(OSError, match="torn"):
        calls.run_all([fail, *[wait] * 9])
    go_on.set()
    assert len(begun) <= 2


def test_an_interrupted_caller_does_not_wait_for_busy_threads() -> None:
    calls = CallThreads(2)
    go_on, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(10)

    def interrupt() -> None:
        assert begun.wait(10)
        os.kill(os.getpid(), signal.SIGUSR1)

    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, stop)
    threading.Timer(0.0, interrupt).start()
    try:
        with pytest.raises(Stopped):
            calls.run_all([wait, wait])
        assert not go_on.is_set()
    finally:
        go_on.set()
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each start of a thread fail, as under a container's limit on processes."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    # Trio would reuse its idle threads.
    cache = "trio._core._thread_cache.THREAD_CACHE"
    monkeypatch.setattr(cache, type(pkgutil.resolve_name(cache))())


@pytest.mark.usefixtures("no_threads")
async def test_without_a_thread_the_caller_makes_the_call_once() -> None:
    calls, made, told = CallThreads(2), [], []
    for number in range(3):
        ended = trio.Event()

        def done(error: Exception | None, ended: trio.Event = ended) -> None:
            told.append(error)
            ended.set()

        calls.start(partial(made.append, number), done)
        await ended.wait()
        await call_in_thread(partial(made.append, number))
    assert made == [0, 0, 1, 1, 2, 2]
    assert told == [None] * 3
    calls.run_all([partial(made.append, 3)] * 5)
    assert made[6:] == [3] * 5
    calls.close()
    assert not takes_calls(calls)


async def test_files_that_the_caller_made_no_later_thread_makes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, made, ended = CallThreads(1), [], trio.Event()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        calls.start(lambda: made.append(1), lambda error: None)
    calls.start(lambda: made.append(2), lambda error: ended.set())
    await ended.wait()
    assert made == [1, 2]
    calls.close()


@pytest.mark.usefixtures("no_threads")
async def test_the_fault_of_a_call_is_not_taken_for_a_missing_thread() -> None:
    made: list[int] = []

    def fail() -> None:
        made.append(1)
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError):
        await call_in_thread(fail)
    assert made == [1]


@pytest.mark.usefixtures("no_threads")
async def test_a_name_that_no_thread_can_look_up_is_unknown() -> None:
    with pytest.raises(OSError, match="cannot be looked up"):
        await look_up_in_thread("localhost")
