"""Child processes of a live run: started, read, stopped, and never left behind.

Every wait has a deadline and a named failure, so no run can hang an experiment.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from experiments.processes.child import Binding

_TICK_S = 1.0
# Time within which a process ends if its fault has ended another.
_SAME_CAUSE_S = 2.0
# The kernel's CPUCLOCK_SCHED: a process with all its threads.
_PROCESS_CPU_CLOCK = 2


class RunFailed(Exception):
    """A run that produced no rows; the message is the reason."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds on a CPU, and seconds runnable while others had it; None if unknown."""

    used_s: float | None = None
    waited_s: float | None = None

    def __sub__(self, earlier: CpuTime) -> CpuTime:
        return CpuTime(
            _difference(self.used_s, earlier.used_s),
            _difference(self.waited_s, earlier.waited_s),
        )


UNKNOWN_CPU_TIME = CpuTime()


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else round(later - earlier, 6)


class Child:
    """One child process: its lines of standard output, its standard error, its end.

    ``tick`` is called about once per second during a wait for a line.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        complaints: Path,
        *,
        tick: Callable[[], None],
    ) -> None:
        self.name = name
        self._complaints = complaints
        self.tick = tick
        with complaints.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                # Ctrl-C does not reach the child; the runner ends its children.
                start_new_session=True,
            )
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill the process if it is still running, and reap it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    def send(self, line: str) -> None:
        """Write a line to the process's standard input.

        :raises RunFailed: if it has ended.
        """
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise self.failure("ended before it received its addresses") from error

    def line(self, timeout_s: float, *others: Child) -> str:
        """Wait for a line of standard output.

        :raises RunFailed: if the process or one of ``others`` ends, or on a time-out.
        """
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self.failure(f"was silent for {timeout_s:.0f} s")
            if not select.select([stdout], [], [], min(left_s, _TICK_S))[0]:
                self.tick()
                for other in others:
                    other.expect_alive()
                continue
            piece = os.read(stdout.fileno(), 65536)
            if not piece:
                # Another process may have ended first and caused this end.
                for other in others:
                    other.expect_alive(_SAME_CAUSE_S)
                raise self.failure(f"ended with status {self._process.wait()}")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def expect_alive(self, within_s: float = 0) -> None:
        """Raise `RunFailed` if the process has ended, or ends within this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        status = self._process.poll()
        if status is not None:
            raise self.failure(f"ended with status {status}")

    def cpu_time(self) -> CpuTime:
        """Return the main thread's CPU time so far.

        Unknown if the kernel does not account for it (CONFIG_SCHEDSTATS).
        """
        path = Path(f"/proc/{self.pid}/schedstat")
        if not path.exists():
            return UNKNOWN_CPU_TIME
        used_ns, waited_ns, _ = map(int, path.read_text(encoding="utf-8").split())
        return CpuTime(used_ns / 1e9, waited_ns / 1e9)

    def stop(self, timeout_s: float, expected: int = 0) -> str:
        """End the process by SIGTERM; return a description of any failure.

        ``expected`` is the exit status of a clean end.
        """
        self.terminate()
        return self.ending(timeout_s, expected)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process and reap it."""
        self._process.kill()
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it is still running."""
        self._process.send_signal(number)

    def ending(self, timeout_s: float, expected: int = 0) -> str:
        """Wait for a requested end; return a description of any failure."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"{self.name} did not stop within {timeout_s:.0f} s of SIGTERM"
        return (
            ""
            if status == expected
            else str(self.failure(f"ended with status {status}"))
        )

    def failure(self, what: str) -> RunFailed:
        """Return a failure, with the last line of the process's standard error."""
        lines = self._complaints.read_text(errors="replace").strip().splitlines()
        return RunFailed(f"{self.name} {what}" + (f": {lines[-1]}" if lines else ""))


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads so far (``clock_getcpuclockid(3)``)."""
    return time.clock_gettime(~pid << 3 | _PROCESS_CPU_CLOCK)


def bound_child(
    name: str,
    command: Sequence[str],
    at: Path,
    binding: Binding,
    tick: Callable[[], None],
) -> Child:
    """Start a bound child; its standard error goes to a file of its name in ``at``."""
    bound = [sys.executable, "-m", "experiments.processes.child", binding.text()]
    return Child(name, [*bound, *command], at / f"{name}.err", tick=tick)
