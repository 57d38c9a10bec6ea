"""Kafka's request log, converted to our recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from broker.observation.recording.recording import read_violations
from experiments.records.broker_rows import read_numbered, read_of, read_samples
from experiments.records.recording import NEVER
from experiments.worlds.kafka.request_log import convert, log4j

PRODUCE, METADATA, LEADER_AND_ISR = 0, 3, 4
NOT_LEADER = 6
MS = 1_000_000
# The log line's time since the epoch, and the start of the monotonic clock.
LOGGED_MS = 1_795_860_000_123
APART_NS = 1_795_000_000_000 * MS


def line(
    api_key: int,
    number: int,
    response: Any,
    *phases_ms: float,
    at: str = "2026-11-28T10:00:00.123Z",
) -> str:
    """Return a line; phases are queue, local, remote, response queue, and send."""
    names = ("requestQueue", "local", "remote", "responseQueue", "send")
    content = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": api_key,
            "requestApiVersion": 8,
            "correlationId": number,
            "clientId": "produce-0000",
            "requestApiKeyName": "ANY",
        },
        "request": {"acks": -1, "errorCode": 9},
        "response": response,
        "connection": "127.0.0.1:9092-127.0.0.1:41000-7",
        "totalTimeMs": sum(phases_ms),
        **{f"{name}TimeMs": ms for name, ms in zip(names, phases_ms, strict=True)},
        "throttleTimeMs": 0,
        "listener": "PLAINTEXT",
    }
    return f"{at} Completed request:{json.dumps(content)}\n"


def produced(code: int) -> Any:
    rows = [{"index": 0, "errorCode": code, "baseOffset": 4}]
    return {"responses": [{"name": "produce", "partitionResponses": rows}]}


def written(tmp_path: Path, *lines: str) -> Path:
    log, record = tmp_path / "life-0.log", tmp_path / "life-0.rows"
    log.write_text("".join(lines))
    convert(log, record, APART_NS)
    return record


def test_stamps_count_back_from_the_end_of_the_logged_millisecond(
    tmp_path: Path,
) -> None:
    record = written(
        tmp_path, line(PRODUCE, 0, produced(0), 200.5, 4.25, 30.0, 0.5, 0.125)
    )
    (row,) = read_numbered(record, np.array([PRODUCE]))
    end_ns = (LOGGED_MS + 1) * MS - APART_NS
    received_ns = end_ns - round(235.375 * MS)
    assert row["received_ns"] == received_ns
    assert row["dequeued_ns"] == received_ns + round(200.5 * MS)
    assert row["local_done_ns"] == received_ns + round(204.75 * MS)
    assert row["remote_done_ns"] == received_ns + round(234.75 * MS)
    assert row["response_dequeued_ns"] == end_ns - round(0.125 * MS)
    assert row["response_sent_ns"] == end_ns
    for unknown in ("enqueued_ns", "service_ns", "prior_ns", "suspended_ns"):
        assert row[unknown] == NEVER
    assert row["error_code"] == 0


def test_the_zone_of_the_time_of_day_is_in_the_line(tmp_path: Path) -> None:
    phases = (1.0, 1.0, 0.0, 0.0, 0.0)
    record = written(
        tmp_path,
        line(PRODUCE, 0, produced(0), *phases),
        line(PRODUCE, 1, produced(0), *phases, at="2026-11-28T12:00:00.123+02:00"),
    )
    first, second = read_numbered(record, np.array([PRODUCE, PRODUCE]))
    assert first["response_sent_ns"] == second["response_sent_ns"]


def test_a_refusal_is_answered_when_its_handler_is_done(tmp_path: Path) -> None:
    """The analysis thereby distinguishes a refusal from an append that failed later."""
    record = written(
        tmp_path, line(PRODUCE, 0, produced(NOT_LEADER), 0.3, 0.2, 0.0, 0.1, 0.1)
    )
    (row,) = read_numbered(record, np.array([PRODUCE]))
    assert row["error_code"] == NOT_LEADER
    assert row["remote_done_ns"] == row["local_done_ns"]


def test_rows_join_by_number_and_api(tmp_path: Path) -> None:
    """The controller also numbers its requests; an incomplete line gives no row."""
    phases = (1.0, 1.0, 0.0, 0.0, 0.0)
    record = written(
        tmp_path,
        line(METADATA, 0, {"topics": []}, *phases),
        line(LEADER_AND_ISR, 1, {"errorCode": 0, "topics": []}, *phases),
        "2026-11-28T10:00:00.200Z Some other line\n",
        line(PRODUCE, 1, produced(0), *phases),
        line(PRODUCE, -1, "", *phases),
        line(PRODUCE, 2, produced(0), *phases)[:90],
    )
    found = read_numbered(record, np.array([METADATA, PRODUCE, PRODUCE]))
    assert found["correlation_id"].tolist() == [0, 1]
    (command,) = read_of(record, (LEADER_AND_ISR,), 0)
    assert command["correlation_id"] == 1
    assert read_violations(record) is None
    assert read_samples(record, 0)["t_ns"].tolist() == []


def test_the_log_goes_to_a_file_of_its_own() -> None:
    keys = dict(it.split("=", 1) for it in log4j(Path("/at/life-0.log")).splitlines())
    assert keys["log4j.appender.requests.File"] == "/at/life-0.log"
    assert keys["log4j.additivity.kafka.request.logger"] == "false"
