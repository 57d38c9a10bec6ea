"""Phases of a request: ten parts of its latency, from stamp to stamp.

The phases are Kafka's (RequestQueue, Local, Remote, ResponseQueue, ResponseSend); parts
outside of Kafka's view (the client's lateness, the network, time blocked before the
queue); and SuspendedTime, which only a preemptive scheduler has. There is one phase
between consecutive stamps, except for the time in the handler, which has two; so they
sum to the latency exactly. Two of them end on a stamp of the other process and may be
slightly negative: the kernel can deliver bytes before their sender has stamped them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from spark_analysis.recordings.columns import STAMPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of a request's latency, as a SQL expression in nanoseconds."""

    name: str
    label: str
    sql: str
    meaning: str
    crosses_processes: bool = False


# Each phase ends on a stamp and begins on the one before.
_SENT, _READ, _ADMITTED, _TAKEN, _SERVED, _READY, _FETCHED, _ANSWERED, _RETURNED = (
    f"{end} - {start}" for start, end in pairwise(STAMPS)
)
# Suspended part of the time in the handler.
_SUSPENDED: Final = "suspended_ns"

PHASES: Final = (
    Phase(
        name="client_ns",
        label="client",
        sql=_SENT,
        meaning="from the intended instant until the last byte is in the kernel",
    ),
    Phase(
        name="unread_ns",
        label="unread",
        sql=_READ,
        meaning="in sockets, until a processor has read the whole frame",
        crosses_processes=True,
    ),
    Phase(
        name="blocked_ns",
        label="blocked",
        sql=_ADMITTED,
        meaning="read, but the request queue is full",
    ),
    Phase(
        name="queue_ns",
        label="request queue",
        sql=_TAKEN,
        meaning="in the request queue, until a handler takes it",
    ),
    Phase(
        name="local_ns",
        label="local",
        sql=f"{_SERVED} - {_SUSPENDED}",
        meaning="with a handler, running or waiting for the CPU",
    ),
    Phase(
        name="suspended_ns",
        label="suspended",
        sql=_SUSPENDED,
        meaning="set aside at a preemption point for something more urgent",
    ),
    Phase(
        name="remote_ns",
        label="purgatory",
        sql=_READY,
        meaning="waiting for other brokers, for data, or for a time to pass",
    ),
    Phase(
        name="response_queue_ns",
        label="response queue",
        sql=_FETCHED,
        meaning="answered, until a processor takes the answer",
    ),
    Phase(
        name="response_send_ns",
        label="response send",
        sql=_ANSWERED,
        meaning="until the answer's last byte is in the kernel",
    ),
    Phase(
        name="return_ns",
        label="return",
        sql=_RETURNED,
        meaning="until the client has read the answer",
        crosses_processes=True,
    ),
)
