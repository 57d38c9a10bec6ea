"""A ZooKeeper server as a process: Doorkeeper's in-memory server, without Java."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from experiments.processes.child import Binding
from experiments.processes.children import Child, bound_child
from experiments.processes.loopback import HOST

_MODULE: Final = "broker.zookeeper.in_memory"


def start_own_zookeeper(
    at: Path,
    port: int,
    binding: Binding,
    tick: Callable[[], None],
    *,
    tick_ms: int = 3000,
) -> Child:
    """Start a server that listens on the loopback and keeps its data below ``at``.

    Sessions expire at multiples of ``tick_ms``; a session may last from 2 to 20 ticks.
    """
    command = [sys.executable, "-m", _MODULE, "--data", str(at / "zookeeper")]
    command += ["--host", HOST, "--port", str(port), "--tick-ms", str(tick_ms)]
    return bound_child("zookeeper", command, at, binding, tick)
