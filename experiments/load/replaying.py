"""From a trace to frames, and from observations to columns.

Shared by the live generator and the virtual world, in addition to the exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from broker.protocol.errors import ErrorCode
from experiments.design.config import Experiment
from experiments.load import frames
from experiments.load.closed_loop import RETRIABLE, rules_of
from experiments.load.exchange import Observed, Schedule
from experiments.load.load_requests import error_of
from experiments.load.senders import senders
from experiments.load.trace import Trace

NO_ERROR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION = (
    ErrorCode.none.value,
    ErrorCode.request_timed_out.value,
    ErrorCode.network_exception.value,
)

# Column name -> one value per row: offered_ns, sent_ns, done_ns, error_code, and the
# number of the request that carried the row (in an open loop, its own).
Seen = Mapping[str, Any]


def schedule(
    experiment: Experiment, replayed: Trace, node: frames.Node, timestamp_ms: int
) -> Schedule:
    """Encode the requests of a trace."""
    workload = experiment.workload
    connections, traffic = replayed.column("connection"), replayed.column("traffic")
    places = map(frames.Place, traffic, connections, replayed.column("sequence"))
    silent = {
        entry.name
        for entry in workload.traffic
        if not entry.request.shape().is_answered
    }
    keys = replayed.column("api_key")
    return Schedule(
        due_ns=replayed.column("intended_ns"),
        connection=connections,
        frames=frames.frames(places, workload, node, timestamp_ms),
        answered=[name not in silent for name in traffic],
        read_delay_ns=[
            round(sender.traffic.read_ms * 1e6) for sender in senders(workload)
        ],
        rules=rules_of(workload, experiment.limits.timeout_ms),
        compose=frames.composer(workload, node, timestamp_ms),
        is_refused=lambda row, answer: error_of(keys[row], answer) in RETRIABLE,
    )


def seen(observed: Observed, replayed: Trace) -> Seen:
    """Return a load's observations as arrays, with error codes from the answers.

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
        "carrier": np.frombuffer(observed.carrier, np.int64),
    }
