"""From a trace to frames, and from observations to columns.

Shared by the live generator and the virtual world, besides the exchange itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from broker.protocol.errors import ErrorCode
from experiments.design.workload import Workload
from experiments.load import frames
from experiments.load.exchange import Observed, Schedule
from experiments.load.requests import error_of
from experiments.load.senders import senders
from experiments.load.trace import Trace

NO_ERROR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION = (
    ErrorCode.none.value,
    ErrorCode.request_timed_out.value,
    ErrorCode.network_exception.value,
)

# Column name -> one value per request: offered_ns, sent_ns, done_ns, error_code.
Seen = Mapping[str, Any]


def schedule(
    workload: Workload, replayed: Trace, node: frames.Node, timestamp_ms: int
) -> Schedule:
    """Encode the requests of a trace."""
    connections = replayed.column("connection")
    places = map(frames.Place, connections, replayed.column("sequence"))
    silent = {
        entry.name
        for entry in workload.traffic
        if not entry.request.shape().is_answered
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
    """Return a load's observations as arrays, error codes read from the answers.

    Instants stay on the load's clock. A request whose connection broke has the code
    NETWORK_EXCEPTION.
    """
    codes = [
        NETWORK_EXCEPTION
        if broken
        else NO_ERROR
        if answer is None
        else error_of(api_key, answer)
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
