"""The recording of a run: outcomes, counts, nulls, the join with broker rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from broker.observation.recording.recording import (
    MEASURES,
    RequestRow,
    SampleRow,
    open_recorder,
)
from experiments.load import trace
from experiments.load.lateness import late, lateness
from experiments.load.trace import Trace
from experiments.records import broker_rows, recording
from experiments.records.recording import NEVER, STAMPS, Results, RunLabels

MS = 1_000_000
LABELS = RunLabels(
    run_id="b000-fifo-t0",
    block=0,
    session=0,
    arm="fifo",
    scheduler="fifo",
    world="live",
)


def small_trace(requests: int) -> Trace:
    """Return requests a millisecond apart on one connection."""
    columns: list[Any] = [
        range(requests),
        [number * MS for number in range(requests)],
        ["load"] * requests,
        ["produce"] * requests,
        ["load-0000"] * requests,
        [0] * requests,
        range(requests),
        [0] * requests,
        [100] * requests,
        [0] * requests,
    ]
    return trace.build(0, columns)


def results(done_ms: list[float], codes: list[int], ended_ms: float = 100) -> Results:
    """Return responses at these times; a negative time is no response."""
    done = np.array([int(ms * MS) if ms >= 0 else NEVER for ms in done_ms], np.int64)
    never = np.full(len(done), NEVER, np.int64)
    columns = dict.fromkeys((*STAMPS, *MEASURES), never)
    return Results(
        columns={**columns, "client_done_ns": done},
        error_code=np.array(codes, np.int16),
        ended_ns=int(ended_ms * MS),
    )


def named(outcomes: Any) -> list[str]:
    return [recording.OUTCOMES[index] for index in outcomes]


def test_outcomes_follow_answers_codes_and_the_clients_patience() -> None:
    found = recording.outcomes(
        small_trace(7),
        # Sent at 0..6 ms; time-out 50 ms; the run ended at 55.5 ms.
        results([1, 2, 3, 53, 54.1, -1, -1], [0, 6, 7, 0, 0, 0, 0], ended_ms=55.5),
        timeout_ns=50 * MS,
    )
    assert named(found) == [
        "ok",
        "error",
        "timeout",  # answered REQUEST_TIMED_OUT
        "ok",  # at the very end of its time-out
        "timeout",  # answered too late
        "timeout",  # no response, and its time-out had passed
        "unfinished",  # no response, but its time-out had not passed
    ]


def test_counts_add_up_and_a_missing_request_is_noticed() -> None:
    table = recording.requests_table(
        LABELS, small_trace(3), results([1, -1, 3], [0, 0, 6]), 10**12
    )
    counts = recording.counts(table, sent=3)
    assert counts == {"sent": 3, "ok": 1, "error": 1, "timeout": 0, "unfinished": 1}
    assert recording.identity_fault(counts, 3) == ""
    assert recording.identity_fault({**counts, "sent": 2}, 3) == (
        "counts do not add up: 2 sent, 3 with an outcome, 3 in the trace"
    )
    assert recording.identity_fault(counts, 4).endswith("4 in the trace")


def test_rows_have_the_published_schema_and_null_for_never(tmp_path: Path) -> None:
    table = recording.requests_table(
        LABELS, small_trace(2), results([1, -1], [0, 0]), 10**12
    )
    recording.write(table, tmp_path / "r.parquet")
    read = pq.read_table(tmp_path / "r.parquet")
    assert read["client_done_ns"].to_pylist() == [MS, None]
    assert read["outcome"].to_pylist() == ["ok", "unfinished"]
    assert read["arm"].to_pylist() == ["fifo", "fifo"]
    assert read.schema.metadata[b"doorkeeper.schema"] == b"1"
    assert read.schema.names == [
        "run_id",
        "block",
        "session",
        "arm",
        "scheduler",
        "world",
        "request_id",
        "class",
        "flow",
        "api_key",
        "size_bytes",
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
        "service_ns",
        "prior_ns",
        "suspended_ns",
        "throttle_ns",
        "preemptions",
        "outcome",
        "error_code",
    ]
    stamps = [name for name in read.schema.names if name.endswith("_ns")]
    assert {read.schema.field(name).type for name in stamps} == {pa.int64()}


def test_lateness_is_the_nearest_rank_of_offered_minus_intended() -> None:
    late_ns = np.arange(1, 201) * 10
    found = lateness(1000 + late_ns, np.full(200, 1000))
    assert found == {"p50": 1000, "p99": 1980, "max": 2000}
    assert late(1_000_001, 1.0) == "generator late: p99 1.00 ms > 1 ms"
    assert late(1_000_000, 1.0) == ""


def test_lateness_agrees_with_numpys_inverted_cdf() -> None:
    offered = np.random.default_rng(1).integers(0, 10**9, 997)
    found = lateness(offered, np.zeros(997, np.int64))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        assert found[name] == np.quantile(offered, share, method="inverted_cdf")


# ---- the join ----


class Finished:
    """The fields of a request and of its task that the broker's recorder reads."""

    def __init__(self, correlation_id: int, at_ns: int) -> None:
        self.correlation_id, self.task = correlation_id, self
        self.request_class, self.flow = "produce", "load-0000"
        self.api_key, self.size_bytes = 0, 100
        stamps = STAMPS[1:-1]
        for offset, name in enumerate(stamps):
            setattr(self, name, at_ns + offset)
        self.service_ns, self.prior_ns, self.suspended_ns = 777, 33, 5
        self.preemptions, self.error_code = 2, 0
        self.throttled_until_ns = at_ns + 100
        self.task = self


def recorded(directory: Path, *requests: Finished) -> Path:
    path = directory / "broker.rows"
    recorder = open_recorder(path)
    for request in requests:
        recorder.record(request)  # type: ignore[arg-type]  # only its fields are read
    recorder.sample(
        SampleRow(
            t_ns=900,
            plane="data",
            queued=1,
            waiting=1,
            seated=1,
            refused=0,
            handler_idle=0.5,
            processor_idle=0.5,
            housekeeping=0.125,
        )
    )
    recorder.sample(
        SampleRow(
            t_ns=1500,
            plane="data",
            queued=3,
            waiting=4,
            seated=8,
            refused=2,
            handler_idle=0.25,
            processor_idle=0.75,
            housekeeping=0.0,
        )
    )
    recorder.close()
    return path


def test_broker_rows_are_joined_by_correlation_id_and_count_from_the_origin(
    tmp_path: Path,
) -> None:
    path = recorded(tmp_path, Finished(2, 5000), Finished(-1, 10), Finished(0, 4000))
    rows = broker_rows.read_requests(path, 3, origin_ns=1000)
    assert rows.fault == ""
    assert list(rows.columns["received_ns"]) == [3000, NEVER, 4000]
    assert list(rows.columns["response_sent_ns"]) == [3006, NEVER, 4006]
    assert list(rows.columns["service_ns"]) == [777, NEVER, 777]
    assert list(rows.columns["prior_ns"]) == [33, NEVER, 33]
    assert list(rows.columns["throttle_ns"]) == [94, NEVER, 94]
    assert list(rows.columns["preemptions"]) == [2, NEVER, 2]


def test_unknown_and_repeated_rows_are_a_fault(tmp_path: Path) -> None:
    path = recorded(
        tmp_path, Finished(0, 1), Finished(0, 2), Finished(9, 3), Finished(1, 4)
    )
    rows = broker_rows.read_requests(path, 3, origin_ns=0)
    assert rows.fault == "broker recorded 1 unknown requests and 1 twice"


def test_a_torn_last_row_is_dropped(tmp_path: Path) -> None:
    path = recorded(tmp_path, Finished(0, 1), Finished(1, 2))
    path.write_bytes(path.read_bytes()[:-5])
    rows = broker_rows.read_requests(path, 2, origin_ns=0)
    assert list(rows.columns["received_ns"] != NEVER) == [True, False]


def test_samples_count_from_the_origin_and_begin_with_it(tmp_path: Path) -> None:
    columns = broker_rows.read_samples(recorded(tmp_path), origin_ns=1000)
    table = recording.samples_table(LABELS, columns)
    (row,) = table.to_pylist()
    assert row == {
        "run_id": "b000-fifo-t0",
        "block": 0,
        "session": 0,
        "arm": "fifo",
        "scheduler": "fifo",
        "world": "live",
        "t_ns": 500,
        "plane": "data",
        "queued": 3,
        "waiting": 4,
        "seated": 8,
        "refused": 2,
        "handler_idle": 0.25,
        "processor_idle": 0.75,
        "housekeeping": 0.0,
    }


def test_every_stamp_of_the_broker_has_a_column() -> None:
    ours = {*STAMPS[1:-1], *MEASURES}
    assert ours <= set(RequestRow._fields)
