"""A naive broker: one CPU, one request after the other, all of its costs known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is spent beside handlers, in microseconds, as a calibration has it."""

    reading_us: float = 0.0
    waking_us: float = 0.0
    writing_us: float = 0.0
    event_loop_us: float = 0.0
    settling_us: float = 0.0
    travel_us: float = 0.0

    @property
    def unbilled_us(self) -> float:
        return self.writing_us + self.event_loop_us


@dataclass(frozen=True, kw_only=True)
class Served:
    """The rows, the CPU of all, and which requests found the broker idle."""

    rows: pa.Table
    cpu_s: float
    idle: np.ndarray


def serve(
    sent_us: np.ndarray,
    handler_us: np.ndarray,
    parts: Parts,
    ids: np.ndarray | None = None,
    in_idle_us: float = 0.0,
) -> Served:
    """Serve requests in the order in which they were sent.

    A handler takes ``in_idle_us`` more where the broker was idle.
    """
    free_us = cpu_us = 0.0
    columns: dict[str, list[float]] = {name: [] for name in _COLUMNS}
    found_idle = []
    for sent, handler in zip(sent_us, handler_us, strict=True):
        came = sent + parts.travel_us
        idle = came >= free_us
        began = max(came, free_us)
        prior = parts.reading_us + parts.waking_us * idle
        enqueued = began + prior
        served = handler + in_idle_us * idle
        handled = enqueued + served
        answered = handled + parts.writing_us
        free_us = answered + parts.event_loop_us + parts.settling_us * idle
        cpu_us += free_us - began
        row = (sent, enqueued, handled, answered, answered + parts.travel_us)
        for name, value in zip(_COLUMNS, (*row, prior, served), strict=True):
            columns[name].append(value)
        found_idle.append(idle)
    ids = np.arange(len(sent_us)) if ids is None else ids
    table = {name: np.rint(np.array(us) * 1000) for name, us in columns.items()}
    rows = pa.table({"request_id": ids, "outcome": ["ok"] * len(ids), **table})
    return Served(rows=rows, cpu_s=cpu_us / 1e6, idle=np.array(found_idle, bool))


_COLUMNS = (
    "sent_ns",
    "enqueued_ns",
    "response_dequeued_ns",
    "response_sent_ns",
    "client_done_ns",
    "prior_ns",
    "service_ns",
)
