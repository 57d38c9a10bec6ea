"""The load generator: a process of its own, on a CPU of its own where there are two.

``python -m experiments.load.generator FILE.json`` reads its assignment, waits for one
line on standard input that says where the broker listens, prepares the topics, replays
the trace in an open loop and writes what it observed. It may be told to rehearse: to
replay the trace before that without a record, and to say when that is over. It prints
one line of JSON at the end. It shares the monotonic clock with the broker, hence their
stamps subtract.

Requests of a controller (LEADER_AND_ISR, UPDATE_METADATA) go to the control plane's
listener where there is one, as a controller would send them; all others to the data
listener. Set-up requests carry negative correlation ids, which no record keeps.
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

import pyarrow as pa

from broker.protocol.errors import ErrorCode
from experiments.design import config
from experiments.design.config import Experiment
from experiments.design.workload import Workload
from experiments.load import frames, replaying, trace
from experiments.load.arrivals import SECOND_NS
from experiments.load.exchange import Observed
from experiments.load.openloop import OpenLoop
from experiments.load.requests import SetupRequest, error_of
from experiments.load.senders import senders
from experiments.processes.child import Binding, bind

Address = tuple[str, int]
# From "everything is prepared" to the trace's zero.
_LEAD_NS = 20_000_000
_SETUP_TIMEOUT_S = 20.0
# What is said between the last rehearsal and the replay that counts.
REHEARSED = "rehearsed"
# A topic that was created a moment ago may have no leader yet (KRaft tells brokers of
# it by a log).
_SETTLING = frozenset(
    {
        ErrorCode.unknown_topic_or_partition.value,
        ErrorCode.leader_not_available.value,
        ErrorCode.not_leader_or_follower.value,
    }
)
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What one run of the generator is to do; passed as a JSON file."""

    trace: str
    content: dict[str, Any]
    out: str
    binding: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker under load: where it listens, and what it needs beforehand.

    ``control`` is its control plane's listener, if it has one. ``rehearsals`` is how
    often the trace is replayed before the replay that is recorded.
    """

    data: Address
    control: Address | None
    controller_epoch: int = frames.CONTROLLER_EPOCH
    rehearsals: int = 0

    @classmethod
    def read(cls, line: str) -> Target:
        """Read what `line` wrote."""
        told = json.loads(line)
        control = told.pop("control")
        data = tuple(told.pop("data"))
        return cls(data=data, control=tuple(control) if control else None, **told)

    def line(self) -> str:
        """Write the target as one line."""
        return json.dumps(asdict(self))


class SetupClient:
    """One blocking connection that prepares topics before the load."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, _SETUP_TIMEOUT_S)
        self._correlation_id = 0

    def request(self, request: SetupRequest) -> bytes:
        """Send one request, return its answer; end the process if that is an error.

        While a topic settles the request is sent again.
        """
        deadline_s = time.monotonic() + _SETUP_TIMEOUT_S
        while True:
            self._correlation_id -= 1
            self._socket.sendall(request.frame(self._correlation_id))
            answer = self._exactly(int.from_bytes(self._exactly(4)))
            code = error_of(request.api_key, answer)
            if not code:
                return answer
            if code not in _SETTLING or time.monotonic() > deadline_s:
                sys.exit(
                    f"set-up request with API key {request.api_key} was answered {code}"
                )
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                sys.exit("the broker closed the set-up connection")
            received += piece
        return bytes(received)


def main() -> None:
    """Do the assignment whose file the command line names."""
    assignment = Assignment(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    bind(Binding(**assignment.binding))
    experiment = config.parse(assignment.content)
    replayed = trace.read(Path(assignment.trace), block=0)
    target = Target.read(sys.stdin.readline())
    print(json.dumps(replay(experiment, replayed, target, assignment.out)), flush=True)


def replay(
    experiment: Experiment, replayed: trace.Trace, target: Target, out: str
) -> dict[str, int | str]:
    """Prepare the broker, replay the trace, write what was observed to ``out``.

    :returns: the origin (trace time 0) and the end on the monotonic clock, and the hash
        of the trace that was replayed.
    """
    workload = experiment.workload
    timestamp_ms = time.time_ns() // 1_000_000
    node = prepare(workload, target, timestamp_ms)
    for _ in range(target.rehearsals):
        _play(experiment, replayed, target, node, timestamp_ms)
        used = node.leader_epochs_used + len(replayed)
        node = replace(node, leader_epochs_used=used)
    if target.rehearsals:
        print(REHEARSED, flush=True)
    origin_ns, observed = _play(experiment, replayed, target, node, timestamp_ms)
    ended_ns = time.monotonic_ns()
    table = pa.table(dict(replaying.seen(observed, replayed)))
    with pa.OSFile(out, "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return {
        "origin_ns": origin_ns,
        "ended_ns": ended_ns,
        "trace_sha256": replayed.sha256,
    }


def _play(
    experiment: Experiment,
    replayed: trace.Trace,
    target: Target,
    node: frames.Node,
    timestamp_ms: int,
) -> tuple[int, Observed]:
    """Replay the trace over new connections; return its origin and what was seen."""
    workload = experiment.workload
    schedule = replaying.schedule(workload, replayed, node, timestamp_ms)
    sockets = connect(workload, target)
    try:
        loop = OpenLoop(sockets, schedule, select.epoll())
        gc.collect()
        gc.freeze()
        gc.disable()
        origin_ns = time.monotonic_ns() + _LEAD_NS
        span_s = workload.duration_s + experiment.limits.drain_s
        return origin_ns, loop.run(origin_ns, origin_ns + round(span_s * SECOND_NS))
    finally:
        for each in sockets:
            each.close()


def prepare(workload: Workload, target: Target, timestamp_ms: int) -> frames.Node:
    """Create and fill the load's topics; return the broker as controllers name it."""
    client = SetupClient(target.data)
    answer = b""
    for request in frames.setup_requests(workload, timestamp_ms):
        answer = client.request(request)
    client.close()
    node = frames.node_of(answer)
    return replace(node, controller_epoch=target.controller_epoch)


def connect(workload: Workload, target: Target) -> list[socket.socket]:
    """Open every connection of the load."""
    sockets = []
    for sender in senders(workload):
        address = target.data
        if sender.traffic.request.is_controllers:
            address = target.control or target.data
        each = socket.create_connection(address, _SETUP_TIMEOUT_S)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
        sockets.append(each)
    return sockets


if __name__ == "__main__":
    main()
