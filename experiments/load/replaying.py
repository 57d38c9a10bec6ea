"""From a trace to what is sent, and from what was seen to columns.

What the live generator and the virtual world share, beside the exchange itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.design.workload import Produce, Workload
from experiments.load import answers, frames, wire
from experiments.load.exchange import Observed, Schedule
from experiments.load.senders import senders
from experiments.load.trace import Trace

# Column name -> one value per request: offered_ns, sent_ns, done_ns, error_code.
Seen = Mapping[str, Any]


def setup_requests(workload: Workload, timestamp_ms: int) -> list[tuple[int, bytes]]:
    """Return what prepares a broker for a workload, as (API key, body), in order.

    Topics are created and filled; METADATA comes last, and `node_of` reads its answer.
    """
    wanted = frames.topics(workload)
    return [
        *([(wire.CREATE_TOPICS, wire.create_topics(wanted))] if wanted else []),
        *frames.fill(workload, timestamp_ms),
        (wire.METADATA, wire.metadata()),
    ]


def node_of(metadata_answer: bytes) -> frames.Node:
    """Return the broker as controller requests have to name it."""
    broker_id, host, port = answers.node_of(metadata_answer)
    endpoint = wire.Endpoint(host, port, "PLAINTEXT")
    return frames.Node(broker_id=broker_id, endpoint=endpoint)


def schedule(
    workload: Workload, replayed: Trace, node: frames.Node, timestamp_ms: int
) -> Schedule:
    """Encode the requests of a trace."""
    connections = replayed.column("connection")
    places = zip(connections, replayed.column("sequence"), strict=True)
    silent = {
        entry.name
        for entry in workload.traffic
        if isinstance(entry.request, Produce) and entry.request.acks == 0
    }
    return Schedule(
        due_ns=replayed.column("intended_ns"),
        connection=connections,
        frames=frames.frames(places, workload, node, timestamp_ms),
        answered=[name not in silent for name in replayed.column("traffic")],
        read_delay_ns=[
            round(sender.traffic.read_ms * 1e6) for sender in senders(workload)
        ],
    )


def seen(observed: Observed, replayed: Trace) -> Seen:
    """Return what a load observed as arrays, error codes read from the answers.

    Instants stay on the load's clock. A request whose connection broke has the code
    NETWORK_EXCEPTION.
    """
    codes = [
        answers.NETWORK_EXCEPTION
        if broken
        else answers.NO_ERROR
        if answer is None
        else answers.error_of(api_key, answer)
        for broken, answer, api_key in zip(
            observed.broken, observed.answers, replayed.column("api_key"), strict=True
        )
    ]
    return {
        "offered_ns": np.frombuffer(observed.offered_ns, np.int64),
        "sent_ns": np.frombuffer(observed.sent_ns, np.int64),
        "done_ns": np.frombuffer(observed.done_ns, np.int64),
        "error_code": np.array(codes, np.int16),
    }
