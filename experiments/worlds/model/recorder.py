"""What is kept of a run in the model world, in the shape of every recording."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from broker.apis.refusal import error_of
from experiments.recording import MEASURES, NEVER, STAMPS, Int64s, Results
from experiments.worlds.model_engine import Engine
from experiments.worlds.model_readers import Processor, Readers
from experiments.worlds.model_task import ModelTask
from planes import PlaneCore

# In this order `Recorder.record` writes them; intended and client-side stamps follow.
_RECORDED = (
    "received_ns",
    "enqueued_ns",
    "dequeued_ns",
    "local_done_ns",
    "remote_done_ns",
    "response_dequeued_ns",
    "response_sent_ns",
    *MEASURES,
)


class Recorder:
    """Collects one row per request, and samples of planes with so many servers each."""

    def __init__(
        self, servers: Mapping[PlaneCore, int], processors: Sequence[Processor]
    ) -> None:
        self._servers = servers
        self._processors = processors
        self._requests = array("q")
        self._samples: list[tuple[int, str, int, int, int, int, float, float]] = []
        self._busy_ns = dict.fromkeys(servers, 0)
        self._blocked_ns = 0

    def record(self, task: ModelTask) -> None:
        """Keep the row of a request whose response has been sent."""
        self._requests.extend(
            (
                task.number,
                task.received_ns,
                task.enqueued_ns,
                task.dequeued_ns,
                task.local_done_ns,
                task.remote_done_ns,
                task.response_dequeued_ns,
                task.response_sent_ns,
                task.attained_ns if task.locking is None else task.service_ns,
                task.suspended_ns,
                task.preemptions,
                _error_code(task),
            )
        )

    def results(self, intended_ns: Int64s, ended_ns: int) -> Results:
        """Return what was found out about each request, in the trace's order.

        A client sends when it means to; it has its answer as soon as that is sent.
        """
        width = 2 + len(_RECORDED)
        table = np.frombuffer(self._requests, dtype=np.int64).reshape(-1, width)
        rows = len(intended_ns)
        columns = {
            name: np.full(rows, NEVER, np.int64) for name in (*STAMPS, *MEASURES)
        }
        columns["sent_ns"] = intended_ns
        index = table[:, 0]
        for place, name in enumerate(_RECORDED, start=1):
            columns[name][index] = table[:, place]
        error_codes = np.zeros(rows, np.int16)
        error_codes[index] = table[:, -1]
        columns["client_done_ns"] = columns["response_sent_ns"].copy()
        return Results(
            columns=columns,
            error_code=error_codes,
            ended_ns=ended_ns,
        )

    def sample_every(self, engine: Engine, readers: Readers, every_ns: int) -> None:
        """Sample the planes once per period for as long as the run lasts."""

        def sample(now_ns: int) -> None:
            self._sample(readers, now_ns, every_ns)
            engine.at(now_ns + every_ns, sample)

        engine.at(every_ns, sample)

    def samples(self) -> tuple[Mapping[str, Any], int]:
        """Return the samples as columns, and their number."""
        names = (
            *("t_ns", "plane", "queued", "waiting", "seated", "refused"),
            *("handler_idle", "processor_idle"),
        )
        columns = zip(*self._samples, strict=True) if self._samples else [()] * 8
        samples = {
            name: list(column) for name, column in zip(names, columns, strict=True)
        }
        return samples, len(self._samples)

    def _sample(self, readers: Readers, now_ns: int, every_ns: int) -> None:
        blocked_ns = sum(
            it.blocked_ns
            + (now_ns - it.blocked_since_ns if it.blocked is not None else 0)
            for it in self._processors
        )
        share = (blocked_ns - self._blocked_ns) / (every_ns * len(self._processors))
        self._blocked_ns = blocked_ns
        for plane, servers in self._servers.items():
            busy_ns = plane.attained_ns - self._busy_ns[plane]
            self._busy_ns[plane] = plane.attained_ns
            idle = max(0.0, 1 - busy_ns / (every_ns * servers))
            row = (
                *(now_ns, plane.name, plane.queued, len(plane.scheduler)),
                *(plane.seated, readers.outside(plane), idle, max(0.0, 1 - share)),
            )
            self._samples.append(row)


def _error_code(task: ModelTask) -> int:
    """Return what the answer says: Kafka's code if the request was turned away."""
    return 0 if task.refusal is None else int(error_of(task.api_key, task.refusal))
