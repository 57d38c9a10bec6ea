"""Recording of a run in the model world, in the format of every recording."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from broker.handling.api_registry import APIS
from broker.handling.error_answer import error_of
from broker.observation.recording.recording import MEASURES, SampleRow
from broker.observation.recording.recording import STAMPS as BROKER_STAMPS
from experiments.records.recording import NEVER, STAMPS, Int64s, Results
from experiments.worlds.model.engine import Engine
from experiments.worlds.model.readers import Processor, Readers
from experiments.worlds.model.task import ModelTask
from planes import PlaneCore

# A row of `Recorder.record`; the client's columns are derived from it.
_ROW = ("request_id", "sent_ns", *BROKER_STAMPS, *MEASURES, "error_code")
_stamps = attrgetter(*BROKER_STAMPS)


class Recorder:
    """Collects one row per request, and samples of planes with their server counts."""

    def __init__(
        self, servers: Mapping[PlaneCore, int], processors: Sequence[Processor]
    ) -> None:
        self._servers = servers
        self._processors = processors
        self._requests = array("q")
        self._samples: list[SampleRow] = []
        self._busy_ns = dict.fromkeys(servers, 0)
        self._blocked_ns = 0

    def record(self, task: ModelTask, sent_ns: int) -> None:
        """Keep the row of a request whose response has been sent."""
        self._requests.extend(
            (
                task.number,
                sent_ns,
                *_stamps(task),
                task.attained_ns if task.locking is None else task.own_cpu_ns(),
                task.prior_ns,
                task.suspended_ns,
                max(task.throttled_until_ns - task.response_sent_ns, 0),
                task.preemptions,
                _error_code(task),
            )
        )

    def record_further(self, row: int, task: ModelTask, sent_ns: int) -> None:
        """Keep another row of a request; its cost is already counted."""
        measures = dict.fromkeys(MEASURES, 0)
        measures["suspended_ns"] = task.suspended_ns
        self._requests.extend(
            (row, sent_ns, *_stamps(task), *measures.values(), _error_code(task))
        )

    def results(self, intended_ns: Int64s, ended_ns: int) -> Results:
        """Return the measurements of each request, in the trace's order.

        A client in an open loop sends at the intended instant. Answers arrive as soon
        as they are sent.
        """
        table = np.frombuffer(self._requests, dtype=np.int64).reshape(-1, len(_ROW))
        known = dict(zip(_ROW, table.T, strict=True))
        rows, index = len(intended_ns), known["request_id"]
        columns = {
            name: np.full(rows, NEVER, np.int64) for name in (*STAMPS, *MEASURES)
        }
        for name in (*BROKER_STAMPS, *MEASURES):
            columns[name][index] = known[name]
        error_codes = np.zeros(rows, np.int16)
        error_codes[index] = known["error_code"]
        columns["sent_ns"] = intended_ns.copy()
        columns["sent_ns"][index] = known["sent_ns"]
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

    def samples(self) -> Mapping[str, Any]:
        """Return the samples as columns, named as in `SampleRow`."""
        return {
            name: [getattr(sample, name) for sample in self._samples]
            for name in SampleRow._fields
        }

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
            sample = SampleRow(
                t_ns=now_ns,
                plane=plane.name,
                queued=plane.queued,
                waiting=len(plane.scheduler),
                seated=plane.seated,
                refused=readers.outside(plane),
                handler_idle=idle,
                processor_idle=max(0.0, 1 - share),
                housekeeping=0.0,
            )
            self._samples.append(sample)


def _error_code(task: ModelTask) -> int:
    """Return the answer's error code: Kafka's if the request was rejected."""
    return (
        0 if task.refusal is None else int(error_of(APIS[task.api_key], task.refusal))
    )
