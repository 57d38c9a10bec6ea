"""The load generator: a process of its own, on a CPU of its own.

``python -m experiments.generator JOB.json`` reads a stored trace, waits for one line
on standard input that says where the broker listens, prepares the topics, replays the
trace in an open loop and writes what it observed. It prints one line of JSON at the
end. It shares the monotonic clock with the broker, hence their stamps subtract.

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from experiments import answers, config, frames, trace, wire
from experiments.arrivals import SECOND_NS
from experiments.config import Experiment
from experiments.openloop import Observed, OpenLoop, Schedule
from experiments.senders import senders
from experiments.workload import LeaderAndIsr, Produce, UpdateMetadata, Workload
from experiments.worlds.child import bind

Address = tuple[str, int]
# From "everything is prepared" to the trace's zero.
_LEAD_NS = 20_000_000
_SETUP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one run of the generator is to do; passed as a JSON file."""

    trace: str
    content: dict[str, Any]
    out: str
    parent: int
    cpu: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Where the broker listens; ``control`` only if control has its own plane."""

    data: Address
    control: Address | None


class SetupClient:
    """One blocking connection that prepares topics before the load."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, _SETUP_TIMEOUT_S)
        self._correlation_id = 0

    def request(self, api_key: int, body: bytes) -> bytes:
        """Send one request and return its answer's frame, without the size."""
        self._correlation_id -= 1
        rest = wire.rest("doorkeeper-setup", body)
        self._socket.sendall(wire.head(api_key, self._correlation_id, len(rest)) + rest)
        return self._exactly(int.from_bytes(self._exactly(4)))

    def expect_no_error(self, api_key: int, body: bytes) -> bytes:
        """Send one request; end the process if its answer has an error code."""
        answer = self.request(api_key, body)
        code = answers.error_of(api_key, answer)
        if code:
            sys.exit(f"set-up request with API key {api_key} was answered {code}")
        return answer

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
    """Run the job whose file the command line names."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    bind(job.parent, job.cpu)
    experiment = config.parse(job.content)
    requests = trace.read(Path(job.trace), block=0)
    told = json.loads(sys.stdin.readline())
    control = told["control"]
    listeners = Listeners(
        data=tuple(told["data"]), control=tuple(control) if control else None
    )
    print(
        json.dumps(replay(experiment, requests, listeners, Path(job.out))), flush=True
    )


def replay(
    experiment: Experiment, requests: trace.Trace, listeners: Listeners, out: Path
) -> dict[str, int | str]:
    """Prepare the broker, replay the trace, write what was observed to ``out``.

    :returns: the origin (trace time 0) and the end on the monotonic clock, and the hash
        of the trace that was replayed.
    """
    workload = experiment.workload
    timestamp_ms = time.time_ns() // 1_000_000
    node = prepare(workload, listeners.data, timestamp_ms)
    schedule = _schedule(workload, requests, node, timestamp_ms)
    epoll = select.epoll()
    loop = OpenLoop(_connect(workload, listeners), schedule, epoll=epoll)
    gc.collect()
    gc.freeze()
    gc.disable()
    origin_ns = time.monotonic_ns() + _LEAD_NS
    span_s = workload.duration_s + experiment.limits.drain_s
    observed = loop.run(origin_ns, origin_ns + round(span_s * SECOND_NS))
    ended_ns = time.monotonic_ns()
    _write(out, observed, _error_codes(observed, requests.column("api_key")))
    return {
        "origin_ns": origin_ns,
        "ended_ns": ended_ns,
        "trace_sha256": requests.sha256,
    }


def prepare(workload: Workload, address: Address, timestamp_ms: int) -> frames.Node:
    """Create and fill the load's topics; return the broker as controllers name it."""
    client = SetupClient(address)
    wanted = frames.topics(workload)
    if wanted:
        client.expect_no_error(wire.CREATE_TOPICS, wire.create_topics(wanted))
    for api_key, body in frames.fill(workload, timestamp_ms):
        client.expect_no_error(api_key, body)
    answer = client.expect_no_error(wire.METADATA, wire.metadata())
    client.close()
    broker_id, host, port = answers.node_of(answer)
    return frames.Node(
        broker_id=broker_id, endpoint=wire.Endpoint(host, port, "PLAINTEXT")
    )


def _schedule(
    workload: Workload, requests: trace.Trace, node: frames.Node, timestamp_ms: int
) -> Schedule:
    connections = requests.column("connection")
    places = zip(connections, requests.column("sequence"), strict=True)
    silent = {
        entry.name
        for entry in workload.traffic
        if isinstance(entry.request, Produce) and entry.request.acks == 0
    }
    return Schedule(
        due_ns=requests.column("intended_ns"),
        connection=connections,
        frames=frames.frames(places, workload, node, timestamp_ms),
        answered=[name not in silent for name in requests.column("traffic")],
    )


def _connect(workload: Workload, listeners: Listeners) -> list[socket.socket]:
    """Open every connection of the load."""
    sockets = []
    for sender in senders(workload):
        address = listeners.data
        if isinstance(sender.traffic.request, LeaderAndIsr | UpdateMetadata):
            address = listeners.control or listeners.data
        each = socket.create_connection(address, _SETUP_TIMEOUT_S)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
        sockets.append(each)
    return sockets


def _error_codes(observed: Observed, api_keys: Sequence[int]) -> list[int]:
    """Return each request's error code: its answer's first, 13 if it was cut off."""
    return [
        answers.NETWORK_EXCEPTION
        if broken
        else answers.NO_ERROR
        if answer is None
        else answers.error_of(api_key, answer)
        for broken, answer, api_key in zip(
            observed.broken, observed.answers, api_keys, strict=True
        )
    ]


def _write(out: Path, observed: Observed, codes: list[int]) -> None:
    """Write the observations, one row per request of the trace."""
    table = pa.table(
        {
            "offered_ns": np.frombuffer(observed.offered_ns, np.int64),
            "sent_ns": np.frombuffer(observed.sent_ns, np.int64),
            "done_ns": np.frombuffer(observed.done_ns, np.int64),
            "error_code": pa.array(codes, pa.int16()),
        }
    )
    with pa.OSFile(str(out), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)


if __name__ == "__main__":
    main()
