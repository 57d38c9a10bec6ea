"""The connection from a test to its brokers: another thread, or another process."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

import trio

from doorkeeper.testing.advancing_clock import AdvancingClock
from doorkeeper.testing.hosting import BrokerHost, HostSettings

P = ParamSpec("P")
T = TypeVar("T")
HostCall = Callable[Concatenate[BrokerHost, P], Coroutine[Any, Any, T]]
_STOP_S: Final = 30.0


class Link(Protocol):
    """Calls coroutines of a `BrokerHost` that runs elsewhere."""

    def call(self, method: HostCall[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the host, and return its result.

        Raises the method's exception, or `RuntimeError` if the host has failed.
        """

    def close(self) -> None:
        """Stop the host cleanly.

        Raises `RuntimeError` if it has failed.
        """


class ThreadLink:
    """A host in a thread with a Trio run of its own."""

    def __init__(self, settings: HostSettings) -> None:
        clock = AdvancingClock()
        self._host = BrokerHost(settings, clock)
        self._clock = clock
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._failure: BaseException | None = None
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=[ready], name="doorkeeper.testing", daemon=True
        )
        self._thread.start()
        ready.result()

    def call(self, method: HostCall[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the host in its thread."""
        result: Future[T] = Future()

        async def fulfil() -> None:
            try:
                result.set_result(await method(self._host, *args, **kwargs))
            except Exception as error:
                result.set_exception(error)
            finally:
                # No effect unless the run ends before the method does.
                result.cancel()

        try:
            self._token.run_sync_soon(self._start, fulfil, result)
            return result.result()
        except (trio.RunFinishedError, CancelledError):
            self._thread.join(_STOP_S)
            raise self._ended() from self._failure

    def close(self) -> None:
        """Stop the brokers, and wait for the thread's end."""
        if self._thread.is_alive():
            self.call(BrokerHost.close)
            self._thread.join(_STOP_S)
        if self._failure is not None:
            raise self._ended() from self._failure

    def _start(self, fulfil: Callable[[], Awaitable[None]], result: Future[T]) -> None:
        try:
            self._nursery.start_soon(fulfil)
        except RuntimeError:
            result.cancel()

    def _ended(self) -> RuntimeError:
        """Return the error of a call after the host's end."""
        if self._failure is None:
            return RuntimeError("the test's broker has been closed")
        return RuntimeError(f"the test's broker has failed: {self._failure!r}")

    def _run(self, ready: Future[None]) -> None:
        try:
            trio.run(self._main, ready, clock=self._clock)
        except BaseException as error:  # the thread's end: callers get the error
            self._failure = _only(error)
            if not ready.done():
                ready.set_exception(self._failure)

    async def _main(self, ready: Future[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self._serve)
            ready.set_result(None)

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        await self._host.run(task_status)
        self._nursery.cancel_scope.cancel()


class ProcessLink:
    """A host in a process of its own; pickled calls go through its pipes."""

    def __init__(self, settings: HostSettings) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "doorkeeper.testing.host_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C reaches the test only; the process ends with its input.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._calls, self._results = self._process.stdin, self._process.stdout
        try:
            self._exchange(settings)
        except BaseException:
            self._end()
            raise

    def call(self, method: HostCall[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the host in its process."""
        return cast(T, self._exchange((method, args, kwargs)))

    def close(self) -> None:
        """Stop the brokers, and wait for the process's end."""
        status = self._end()
        if status:
            raise RuntimeError(f"the test's broker ended with status {status}")

    def _exchange(self, call: object) -> object:
        with self._lock:
            try:
                pickle.dump(call, self._calls)
                self._calls.flush()
                is_result, found = pickle.load(self._results)
            except (BrokenPipeError, EOFError, ValueError) as error:
                raise RuntimeError("the test's broker has been closed") from error
        if not is_result:
            raise found
        return found

    def _end(self) -> int:
        with contextlib.suppress(BrokenPipeError):
            self._calls.close()
        status = self._process.wait(_STOP_S)
        self._results.close()
        return status


def _only(error: BaseException) -> BaseException:
    """Unwrap groups of a single exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error
