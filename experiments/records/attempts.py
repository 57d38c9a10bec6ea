"""Recorded attempts of a run on a cluster: one row each, from all senders.

A request of the load is repeated until it succeeds, so it may be sent to several
brokers. The controller's requests and clients' requests for metadata are attempts, too.
The schema is the contract with the analysis. Stamps are int64 nanoseconds since the
run's origin; null marks an event that never happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from broker.observation.recording.recording import STAMPS as BROKER_STAMPS
from experiments.records.recording import (
    LABELS,
    NEVER,
    SCHEMA_KEY,
    SCHEMA_VERSION,
    Int64s,
    RunLabels,
    labelled,
)

NO_REQUEST = -1


class Attempt(NamedTuple):
    """One request as known to its sender.

    ``request_id`` is the row of the trace, `NO_REQUEST` for requests outside of it.
    ``error_code`` is also REQUEST_TIMED_OUT if the client gave up, and
    NETWORK_EXCEPTION if the connection broke; ``client_done_ns`` is then missing.
    ``base_offset`` is the offset of acknowledged records. ``leader`` is the leader in a
    METADATA answer (of its last partition), -1 if none. A controller's requests have
    its first decision as ``intended_ns``. ``kept`` is 1 if the records were in the last
    leader's log at the end, 0 if not, -1 for requests without records.
    """

    request_id: int
    broker: int
    api_key: int
    partition: int
    acks: int
    records: int
    intended_ns: int
    sent_ns: int
    client_done_ns: int
    error_code: int
    base_offset: int
    leader: int
    kept: int


# The broker's error, unknown to a client that gave up.
BROKER_ERROR = "broker_error_code"
_NULLABLE = ("sent_ns", "client_done_ns")
_OWN = Attempt._fields
ATTEMPTS_SCHEMA = pa.schema(
    [
        *LABELS,
        *(pa.field(name, pa.int64(), nullable=name in _NULLABLE) for name in _OWN),
        *(pa.field(name, pa.int64()) for name in BROKER_STAMPS),
        pa.field(BROKER_ERROR, pa.int64()),
    ],
    metadata={SCHEMA_KEY: SCHEMA_VERSION},
)


def attempts_table(
    labels: RunLabels, attempts: list[Attempt], stamps: Mapping[str, Int64s]
) -> pa.Table:
    """Return a run's attempts; ``stamps`` are their brokers', `NEVER` if missing.

    Instants already count from the run's origin. Attempts without a broker's row have
    no broker's error.
    """
    columns: dict[str, Any] = labelled(labels, len(attempts))
    values = np.array(attempts, np.int64).reshape(len(attempts), len(_OWN))
    for name, column in zip(_OWN, values.T, strict=True):
        nulls = column == NEVER if name in _NULLABLE else None
        columns[name] = pa.array(column, mask=nulls)
    for name in BROKER_STAMPS:
        columns[name] = pa.array(stamps[name], mask=stamps[name] == NEVER)
    unknown = stamps[BROKER_STAMPS[0]] == NEVER
    columns[BROKER_ERROR] = pa.array(stamps[BROKER_ERROR], mask=unknown)
    return pa.table(columns, schema=ATTEMPTS_SCHEMA)
