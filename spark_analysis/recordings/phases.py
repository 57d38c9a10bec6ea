"""Where the time of a request goes: ten successive differences of its stamps.

Kafka's phases (RequestQueue, Local, Remote, ResponseQueue, ResponseSend), what Kafka
does not see (the client's lateness, the network, time blocked before the queue), and
SuspendedTime, which only a preemptive scheduler has. They are successive differences
from the intended instant to the answer, so they sum to the latency exactly. Two of them
end on a stamp of the other process and may be a little below zero: the kernel can hand
bytes over before their sender has stamped them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of a request's latency, as a SQL expression in nanoseconds."""

    name: str
    label: str
    sql: str
    meaning: str
    crosses_processes: bool = False


PHASES: Final = (
    Phase(
        name="client_ns",
        label="client",
        sql="sent_ns - intended_ns",
        meaning="from the intended instant until the last byte is in the kernel",
    ),
    Phase(
        name="unread_ns",
        label="unread",
        sql="received_ns - sent_ns",
        meaning="in sockets, until a processor has read the whole frame",
        crosses_processes=True,
    ),
    Phase(
        name="blocked_ns",
        label="blocked",
        sql="enqueued_ns - received_ns",
        meaning="read, but the request queue is full",
    ),
    Phase(
        name="queue_ns",
        label="request queue",
        sql="dequeued_ns - enqueued_ns",
        meaning="in the request queue, until a handler takes it",
    ),
    Phase(
        name="local_ns",
        label="local",
        sql="local_done_ns - dequeued_ns - suspended_ns",
        meaning="with a handler, running or waiting for the CPU",
    ),
    Phase(
        name="suspended_ns",
        label="suspended",
        sql="suspended_ns",
        meaning="set aside at a preemption point for something more urgent",
    ),
    Phase(
        name="remote_ns",
        label="purgatory",
        sql="remote_done_ns - local_done_ns",
        meaning="waiting for other brokers, for data, or for a time to pass",
    ),
    Phase(
        name="response_queue_ns",
        label="response queue",
        sql="response_dequeued_ns - remote_done_ns",
        meaning="answered, until a processor takes the answer",
    ),
    Phase(
        name="response_send_ns",
        label="response send",
        sql="response_sent_ns - response_dequeued_ns",
        meaning="until the answer's last byte is in the kernel",
    ),
    Phase(
        name="return_ns",
        label="return",
        sql="client_done_ns - response_sent_ns",
        meaning="until the client has read the answer",
        crosses_processes=True,
    ),
)
