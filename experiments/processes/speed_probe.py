"""The probe's process, asked how fast the brokers' CPU is just now."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from experiments.processes.children import Child
from experiments.processes.pinning import Pinning

_PATIENCE_S = 60.0


class SpeedProbe:
    """`processes.probe` on the brokers' CPU; asleep but when asked.

    Its complaints go below ``at``.

    :raises experiments.processes.children.RunFailed: if it ends or is silent.
    """

    def __init__(self, pinning: Pinning, at: Path, tick: Callable[[], None]) -> None:
        binding = pinning.binding(pinning.broker).text()
        command = [sys.executable, "-m", "experiments.processes.probe", binding]
        self._child = Child("probe", command, at / "probe.err", tick=tick)
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

    def loop_ns(self) -> int:
        """Time the fixed loop. Cost: about 5 ms of that CPU."""
        if not self._ready:
            self._child.line(_PATIENCE_S)
            self._ready = True
        self._child.tell("")
        return int(self._child.line(_PATIENCE_S))
