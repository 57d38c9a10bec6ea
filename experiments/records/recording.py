"""Recorded data of runs: one row per request, in a file for each run or session.

The schema is the contract with the analysis, which imports nothing from here. The
broker's stamps have the columns of its own recording. Stamps are int64 nanoseconds
since the run's origin on one monotonic clock; null marks an event that never happened.
Readers derive durations from stamps, so the phases of a request always sum to its
total. No value is capped and no request is dropped: an unanswered one is a row with its
outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from broker.observation.recording.recording import MEASURES, SampleRow
from broker.observation.recording.recording import STAMPS as BROKER_STAMPS
from experiments.load.lateness import lateness
from experiments.load.replaying import REQUEST_TIMED_OUT
from experiments.load.trace import Trace

Int64s = npt.NDArray[np.int64]

SCHEMA_KEY, SCHEMA_VERSION = b"doorkeeper.schema", b"1"
NEVER = -1
OUTCOMES = ("ok", "error", "timeout", "unfinished")
STAMPS = ("sent_ns", *BROKER_STAMPS, "client_done_ns")

_NAME = pa.dictionary(pa.int32(), pa.string())
# Column types by type of value; True: nanoseconds.
_COLUMNS = {True: pa.int64(), int: pa.int32(), float: pa.float64(), str: _NAME}
LABELS = [
    pa.field("run_id", _NAME, nullable=False),
    pa.field("block", pa.int64(), nullable=False),
    pa.field("session", pa.int32(), nullable=False),
    pa.field("arm", _NAME, nullable=False),
    pa.field("scheduler", _NAME, nullable=False),
    pa.field("world", _NAME, nullable=False),
]
REQUESTS_SCHEMA = pa.schema(
    [
        *LABELS,
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("class", _NAME, nullable=False),
        pa.field("flow", _NAME, nullable=False),
        pa.field("api_key", pa.int16(), nullable=False),
        pa.field("size_bytes", pa.int32(), nullable=False),
        pa.field("intended_ns", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64()) for name in STAMPS),
        *(pa.field(name, _COLUMNS[name.endswith("_ns") or int]) for name in MEASURES),
        pa.field("outcome", _NAME, nullable=False),
        pa.field("error_code", pa.int16(), nullable=False),
    ],
    metadata={SCHEMA_KEY: SCHEMA_VERSION},
)
SAMPLES_SCHEMA = pa.schema(
    [
        *LABELS,
        *(
            pa.field(name, _COLUMNS[name.endswith("_ns") or kind], nullable=False)
            for name, kind in get_type_hints(SampleRow).items()
        ),
    ],
    metadata={SCHEMA_KEY: SCHEMA_VERSION},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabels:
    """The run to which a row belongs."""

    run_id: str
    block: int
    session: int
    arm: str
    scheduler: str
    world: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Results:
    """A world's measurements of each request of a trace, in the trace's order.

    ``columns`` has an array for each of `STAMPS` and `MEASURES`, with stamps relative
    to the run's origin, ``NEVER`` if missing. ``ended_ns`` is the instant at which the
    run stopped waiting for answers.
    """

    columns: Mapping[str, Int64s]
    error_code: npt.NDArray[np.int16]
    ended_ns: int


def outcomes(trace: Trace, results: Results, timeout_ns: int) -> npt.NDArray[np.int8]:
    """Return each request's outcome as an index into `OUTCOMES`.

    A client gives up ``timeout_ns`` after the intended instant. An answer after that,
    an answer REQUEST_TIMED_OUT, or a missing answer after that time is a timeout. A
    request without an answer before that time is unfinished.
    """
    ok, error, timeout, unfinished = range(len(OUTCOMES))
    intended = trace.table["intended_ns"].to_numpy()
    done = results.columns["client_done_ns"]
    code = results.error_code
    answered = done != NEVER
    late = np.where(answered, done, results.ended_ns) - intended > timeout_ns
    found = np.where(answered, ok, unfinished).astype(np.int8)
    found[answered & (code != 0)] = error
    found[late | (answered & (code == REQUEST_TIMED_OUT))] = timeout
    return found


def requests_table(
    labels: RunLabels, trace: Trace, results: Results, timeout_ns: int
) -> pa.Table:
    """Return a run's rows, one per request, in the order of the trace."""
    outcome = pa.DictionaryArray.from_arrays(
        outcomes(trace, results, timeout_ns).astype(np.int32), list(OUTCOMES)
    )
    columns: dict[str, Any] = labelled(labels, len(trace))
    for name in ("request_id", "class", "flow", "api_key", "size_bytes", "intended_ns"):
        columns[name] = trace.table[name]
    for name in (*STAMPS, *MEASURES):
        values = results.columns[name]
        assert len(values) == len(trace), name
        kind = REQUESTS_SCHEMA.field(name).type
        columns[name] = pa.array(values, mask=values == NEVER).cast(kind)
    columns["outcome"] = outcome
    columns["error_code"] = results.error_code
    return pa.table(columns, schema=REQUESTS_SCHEMA)


def samples_table(labels: RunLabels, samples: Mapping[str, Any]) -> pa.Table:
    """Return a run's samples; ``samples`` are columns by fields of `SampleRow`."""
    rows = len(samples[SampleRow._fields[0]])
    return pa.table({**labelled(labels, rows), **samples}, schema=SAMPLES_SCHEMA)


def write(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet (zstd), with a checksum of each page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def counts(table: pa.Table, sent: int) -> dict[str, int]:
    """Return the number of a run's requests by outcome, and of requests sent."""
    found = table["outcome"].combine_chunks().indices.to_numpy()
    numbers = np.bincount(found, minlength=len(OUTCOMES))
    each = {name: int(n) for name, n in zip(OUTCOMES, numbers, strict=True)}
    return {"sent": sent, **each}


def identity_fault(found: Mapping[str, int], offered: int) -> str:
    """Return the breach of sent = ok + error + timeout + unfinished, or "".

    ``offered`` is the number of requests in the trace, all of which must be sent.
    """
    total = sum(found[name] for name in OUTCOMES)
    if found["sent"] == total == offered:
        return ""
    return (
        f"counts do not add up: {found['sent']} sent, {total} with an outcome, "
        f"{offered} in the trace"
    )


def lateness_by_class(
    offered_ns: Int64s, intended_ns: Int64s, classes: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Summarise each class's lateness, in ns; ``classes`` are the requests' classes."""
    of = np.array(classes, dtype=object)
    return {
        name: lateness(offered_ns[of == name], intended_ns[of == name])
        for name in dict.fromkeys(classes)
    }


def late_requests(
    offered_ns: Int64s, intended_ns: Int64s, classes: Sequence[str], limit_ms: float
) -> dict[str, int]:
    """Return the number of requests sent later than the limit, by class."""
    late = offered_ns - intended_ns > limit_ms * 1e6
    of = np.array(classes, dtype=object)
    return {name: int(late[of == name].sum()) for name in dict.fromkeys(classes)}


def labelled(labels: RunLabels, rows: int) -> dict[str, Any]:
    """Return the label columns of ``rows`` rows."""

    def name(text: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text])

    return {
        "run_id": name(labels.run_id),
        "block": np.full(rows, labels.block, np.int64),
        "session": np.full(rows, labels.session, np.int32),
        "arm": name(labels.arm),
        "scheduler": name(labels.scheduler),
        "world": name(labels.world),
    }
