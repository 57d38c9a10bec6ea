"""The load generator of a session: one process that runs episodes on many brokers.

``python -m experiments.load.episodes JOB.json`` reads one line from standard input with
the address of each arm's broker. It prepares all brokers, opens all connections and
prints one line. Each further line names an arm and a stored trace. The episode uses the
open connections, and one line of JSON reports its end. Only one broker has load at a
time. After an episode with a closed connection or unanswered requests all connections
are opened again, because late answers would arrive during the next episode.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.design import config
from experiments.design.config import Experiment
from experiments.load import frames, replaying, trace
from experiments.load.generator import Target, connect, prepare
from experiments.load.lateness import lateness
from experiments.load.openloop import OpenLoop
from experiments.load.trace import Trace
from experiments.processes.child import Binding, bind

# Time from the end of encoding to the trace's origin.
_LEAD_NS = 5_000_000
READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionJob:
    """The common settings of a session's episodes; passed as a JSON file."""

    content: dict[str, Any]
    binding: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One episode to run: its arm, its trace, and the path of its observations.

    It ends ``span_ns`` after its start, with or without all answers. The generator's
    time without its CPU is counted after ``warmup_ns``. Without ``out`` nothing is
    written.
    """

    arm: str
    trace: str
    span_ns: int
    warmup_ns: int
    out: str | None

    def line(self) -> str:
        """Return the order as one line."""
        return json.dumps(asdict(self))


def targets_line(targets: dict[str, Target]) -> str:
    """Return every arm's target as one line."""
    return json.dumps({arm: target.line() for arm, target in targets.items()})


class ArmConnections:
    """One arm's broker, and the connections to it."""

    def __init__(self, experiment: Experiment, target: Target) -> None:
        self._experiment = experiment
        self._target = target
        self._timestamp_ms = time.time_ns() // 1_000_000
        self._node: frames.Node = prepare(
            experiment.workload, target, self._timestamp_ms
        )
        self._sockets: list[socket.socket] = []
        self._reconnect()

    def run(self, replayed: Trace, order: Order) -> dict[str, int | str]:
        """Run an episode, write the observations; return its start and end."""
        schedule = replaying.schedule(
            self._experiment, replayed, self._node, self._timestamp_ms
        )
        used = self._node.leader_epochs_used + len(replayed)
        self._node = replace(self._node, leader_epochs_used=used)
        with select.epoll() as epoll:
            loop = OpenLoop(self._sockets, schedule, epoll)
            gc.collect()
            origin_ns = time.monotonic_ns() + _LEAD_NS
            loop.watch_from(origin_ns + order.warmup_ns)
            observed = loop.run(origin_ns, origin_ns + order.span_ns)
            ended_ns = time.monotonic_ns()
        if not (loop.drained and loop.intact):
            self._reconnect()
        offered_ns = np.frombuffer(observed.offered_ns, np.int64) - origin_ns
        late = lateness(offered_ns, replayed.table["intended_ns"].to_numpy())
        if order.out is not None:
            table = pa.table(dict(replaying.seen(observed, replayed)))
            with (
                pa.OSFile(order.out, "wb") as sink,
                pa.ipc.new_file(sink, table.schema) as f,
            ):
                f.write_table(table)
        return {
            "origin_ns": origin_ns,
            "ended_ns": ended_ns,
            "trace_sha256": replayed.sha256,
            "late_p99_ns": late["p99"],
            "off_cpu_ns": loop.off_cpu_ns,
        }

    def _reconnect(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets = connect(self._experiment.workload, self._target)


def main() -> None:
    """Run the session of the file in the command line."""
    job = SessionJob(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    bind(Binding(**job.binding))
    experiment = config.parse(job.content)
    targets = json.loads(sys.stdin.readline())
    arms = {
        arm: ArmConnections(experiment, Target.read(line))
        for arm, line in targets.items()
    }
    gc.collect()
    gc.freeze()
    gc.disable()
    print(READY, flush=True)
    path, replayed = "", None
    for line in sys.stdin:
        order = Order(**json.loads(line))
        if replayed is None or order.trace != path:
            path, replayed = order.trace, trace.read(Path(order.trace), block=0)
        print(json.dumps(arms[order.arm].run(replayed, order)), flush=True)


if __name__ == "__main__":
    main()
