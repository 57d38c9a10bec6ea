"""Columns of a recording's rows: Spark's types, and stamps in order.

The recorder in ``experiments/records`` is the other side of this contract; a test
checks that the two are equal. Stamps are nanoseconds since the run's origin on one
clock, null for an event that never happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The intended time of a request, and its later stamps, in this order.
STAMPS: Final = (
    "intended_ns",
    "sent_ns",
    "received_ns",
    "enqueued_ns",
    "dequeued_ns",
    "local_done_ns",
    "remote_done_ns",
    "response_dequeued_ns",
    "response_sent_ns",
    "client_done_ns",
)
OUTCOMES: Final = ("ok", "error", "timeout", "unfinished")

_LABELS: Final = {
    "run_id": "string",
    "block": "bigint",
    "session": "int",
    "arm": "string",
    "scheduler": "string",
    "world": "string",
}
# One row per request.
REQUESTS: Final[Mapping[str, str]] = {
    **_LABELS,
    "request_id": "bigint",
    "class": "string",
    "flow": "string",
    "api_key": "smallint",
    "size_bytes": "int",
    **dict.fromkeys(STAMPS, "bigint"),
    "service_ns": "bigint",
    "prior_ns": "bigint",
    "suspended_ns": "bigint",
    "throttle_ns": "bigint",
    "preemptions": "int",
    "outcome": "string",
    "error_code": "smallint",
}
# One row per plane and sample.
SAMPLES: Final[Mapping[str, str]] = {
    **_LABELS,
    "t_ns": "bigint",
    "plane": "string",
    "queued": "int",
    "waiting": "int",
    "seated": "int",
    "refused": "int",
    "handler_idle": "double",
    "processor_idle": "double",
    "housekeeping": "double",
}
# One row per attempt at a request, in a run on a cluster.
ATTEMPTS: Final[Mapping[str, str]] = {
    **_LABELS,
    **dict.fromkeys(
        (
            "request_id",
            "broker",
            "api_key",
            "partition",
            "acks",
            "records",
            STAMPS[0],
            STAMPS[1],
            STAMPS[-1],
            "error_code",
            "base_offset",
            "leader",
            "kept",
            *STAMPS[2:-1],
            "broker_error_code",
        ),
        "bigint",
    ),
}
# Columns that identify the same request under two arms.
IDENTITY: Final = (
    "request_id",
    "intended_ns",
    "class",
    "flow",
    "api_key",
    "size_bytes",
)


def ddl(columns: Mapping[str, str]) -> str:
    """Return columns as the schema string that Spark reads."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
