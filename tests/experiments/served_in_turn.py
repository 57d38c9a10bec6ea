"""A naive broker: one CPU, one request after the other, all of its costs known."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is spent beside handlers, in microseconds.

    Reading and ``admitting_us`` are what a calibration calls reading; ``turning_us`` is
    billed before the handler, too, but when its turn has come, which is at once where
    the broker was idle. Sending takes ``travel_us``; a broker that is idle begins
    ``rousing_us`` later.
    """

    reading_us: float = 0.0
    admitting_us: float = 0.0
    turning_us: float = 0.0
    waking_us: float = 0.0
    writing_us: float = 0.0
    event_loop_us: float = 0.0
    settling_us: float = 0.0
    travel_us: float = 0.0
    rousing_us: float = 0.0
    returning_us: float = 0.0

    @property
    def prior_us(self) -> float:
        return self.reading_us + self.admitting_us + self.turning_us

    @property
    def unbilled_us(self) -> float:
        return self.writing_us + self.event_loop_us


@dataclass(frozen=True, kw_only=True)
class Served:
    """The rows, the CPU of all, and which share of those not alone was read first."""

    rows: pa.Table
    cpu_s: float
    turning_share: float


class Broker:
    """Reads and admits all that has come, then serves one request, and so on."""

    def __init__(self, parts: Parts, in_idle_us: float) -> None:
        self.parts = parts
        self.in_idle_us = in_idle_us
        self.now_us = self.cpu_us = 0.0
        self.turns = self.behind = 0

    def spend(self, us: float) -> float:
        self.now_us += us
        self.cpu_us += us
        return self.now_us

    def serve(
        self, due_us: Sequence[float], handler_us: Sequence[float]
    ) -> list[dict[str, float]]:
        parts = self.parts
        came_us = [due + parts.travel_us for due in due_us]
        rows = [
            {"intended_ns": due, "sent_ns": came}
            for due, came in zip(due_us, came_us, strict=True)
        ]
        queue: deque[int] = deque()
        read = 0
        while read < len(rows) or queue:
            idle = not queue and came_us[read] > self.now_us
            if idle:
                self.now_us = came_us[read] + parts.rousing_us
            batch = []
            while read < len(rows) and came_us[read] <= self.now_us:
                batch.append(read)
                read += 1
            self.turns += bool(batch) and not idle
            self.behind += len(batch) - idle
            for each in batch:
                waking_us = parts.waking_us * idle
                rows[each]["received_ns"] = self.spend(parts.reading_us + waking_us)
                rows[each]["prior_ns"] = parts.prior_us + waking_us
            for each in batch:
                rows[each]["enqueued_ns"] = self.spend(parts.admitting_us)
            queue.extend(batch)
            served = queue.popleft()
            row = rows[served]
            self.spend(parts.turning_us * idle)
            row["dequeued_ns"] = self.now_us
            self.spend(parts.turning_us * (not idle))
            row["service_ns"] = handler_us[served] + self.in_idle_us * idle
            row["local_done_ns"] = self.spend(row["service_ns"])
            row["response_dequeued_ns"] = self.now_us
            row["response_sent_ns"] = self.spend(parts.writing_us)
            row["client_done_ns"] = row["response_sent_ns"] + parts.returning_us
            self.spend(parts.event_loop_us + parts.settling_us * idle)
        return rows


def serve(
    due_us: np.ndarray,
    handler_us: np.ndarray,
    parts: Parts,
    ids: np.ndarray | None = None,
    in_idle_us: float = 0.0,
) -> Served:
    """Serve requests in the order in which they are due.

    A handler takes ``in_idle_us`` more where the broker was idle.
    """
    broker = Broker(parts, in_idle_us)
    rows = broker.serve(due_us.tolist(), handler_us.tolist())
    table = {
        name: np.rint(np.array([row[name] for row in rows]) * 1000) for name in rows[0]
    }
    ids = np.arange(len(rows)) if ids is None else ids
    named = {"request_id": ids, "outcome": ["ok"] * len(rows)}
    return Served(
        rows=pa.table({**named, **table}),
        cpu_s=broker.cpu_us / 1e6,
        turning_share=broker.turns / max(1, broker.behind),
    )
