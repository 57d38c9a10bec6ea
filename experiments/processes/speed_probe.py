"""The process of the idle probe, which keeps the brokers' CPU awake and measures it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from experiments.processes.children import Child, CpuTime
from experiments.processes.pinning import Pinning

_PATIENCE_S: Final = 60.0
_LAST: Final = 19


class SpeedProbe:
    """`processes.idle_probe` on the brokers' CPU, at lower priority than all others.

    The generator's CPU has none. A virtual machine whose CPUs are all awake uses more
    of its host than one that sleeps at times, and the host withdrew CPU time: the
    broker stood still for 1.5 to 5 ms about once per second. With one CPU awake this
    happened less than once in ten seconds. Its standard error goes below ``at``.

    :raises experiments.processes.children.RunFailed: if it ends or is silent.
    """

    def __init__(self, pinning: Pinning, at: Path, tick: Callable[[], None]) -> None:
        binding = replace(pinning.binding(pinning.broker), nice=_LAST)
        command = [sys.executable, "-m", "experiments.processes.idle_probe"]
        command.append(binding.text())
        self._child = Child("idle probe", command, at / "idle_probe.err", tick=tick)
        self._ready = False

    def __enter__(self) -> Self:
        self._child.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._child.__exit__(None, None, None)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    def cpu_time(self) -> CpuTime:
        """Return its time on that CPU, and its time waiting for it."""
        return self._child.cpu_time()

    def begin(self) -> None:
        """Start timing the loop, in the CPU's idle time."""
        self._write_line()

    def loop_us(self) -> float:
        """Return the loop's mean time since `begin`, which must have been called."""
        self._write_line()
        return int(self._child.line(_PATIENCE_S)) / 1000

    def _write_line(self) -> None:
        if not self._ready:
            self._child.line(_PATIENCE_S)
            self._ready = True
        self._child.send("")
