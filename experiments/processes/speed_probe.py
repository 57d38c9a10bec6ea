"""The probes' processes, which say how fast the brokers' CPU is: now, or meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from experiments.processes.child import Binding
from experiments.processes.children import Child, CpuTime
from experiments.processes.pinning import Pinning

_PATIENCE_S = 60.0
_LAST = 19


class _Probe:
    """A process that answers with nanoseconds; its complaints go below ``at``."""

    def __init__(
        self, module: str, binding: Binding, at: Path, tick: Callable[[], None]
    ) -> None:
        command = [sys.executable, "-m", f"experiments.processes.{module}"]
        command.append(binding.text())
        self._child = Child(module, command, at / f"{module}.err", tick=tick)
        self._ready = False

    def __enter__(self) -> Self:
        self._child.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.__exit__(kind, error, trace)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    def cpu_time(self) -> CpuTime:
        """Return what it has had of that CPU, and for how long others had it."""
        return self._child.cpu_time()

    def _tell(self) -> None:
        if not self._ready:
            self._child.line(_PATIENCE_S)
            self._ready = True
        self._child.tell("")

    def _answer_ns(self) -> int:
        return int(self._child.line(_PATIENCE_S))


class SpeedProbe(_Probe):
    """`processes.probe` on the brokers' CPU; asleep but when asked.

    :raises experiments.processes.children.RunFailed: if it ends or is silent.
    """

    def __init__(self, pinning: Pinning, at: Path, tick: Callable[[], None]) -> None:
        super().__init__("probe", pinning.binding(pinning.broker), at, tick)

    def loop_ns(self) -> int:
        """Time the fixed loop. Cost: about 5 ms of that CPU."""
        self._tell()
        return self._answer_ns()


class IdleProbe(_Probe):
    """`processes.idle_probe` on the brokers' CPU, behind all that runs there.

    :raises experiments.processes.children.RunFailed: if it ends or is silent.
    """

    def __init__(self, pinning: Pinning, at: Path, tick: Callable[[], None]) -> None:
        binding = replace(pinning.binding(pinning.broker), nice=_LAST)
        super().__init__("idle_probe", binding, at, tick)

    def begin(self) -> None:
        """Have it time the loop from now on. Cost: one in twenty of what is idle."""
        self._tell()

    def loop_ns(self) -> int:
        """Return the loop's mean time since `begin`, which must have come before."""
        self._tell()
        return self._answer_ns()
