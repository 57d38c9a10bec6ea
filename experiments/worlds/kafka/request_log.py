"""Kafka's own request log, converted to a recording.

The logger ``kafka.request.logger`` writes a line when a response has been sent: the
wall-clock time in milliseconds, and a JSON object with the header, the answer, and
Kafka's phases in milliseconds with three decimals. Stamps are derived from the line's
time, so they are exact to a millisecond, and their differences to a microsecond. The
log has neither the instant at which a request entered the queue nor CPU times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, TypedDict

import numpy as np

from broker.observation.recording.recording import (
    LAWS_SUFFIX,
    NAMES_SUFFIX,
    REQUEST_TYPES,
    SAMPLES_SUFFIX,
)
from experiments.records.recording import NEVER

_COMPLETED: Final = " Completed request:"
_APPENDER: Final = "log4j.appender.requests"
_NS_PER_MS: Final = 1_000_000
_UNKNOWN: Final = ("enqueued_ns", "service_ns", "prior_ns", "suspended_ns")


class _Header(TypedDict):
    requestApiKey: int
    correlationId: int


class _Completed(TypedDict):
    """The fields of a line that are read."""

    requestHeader: _Header
    response: object
    totalTimeMs: float
    requestQueueTimeMs: float
    localTimeMs: float
    remoteTimeMs: float
    throttleTimeMs: float
    sendTimeMs: float


def log4j(log: Path) -> str:
    """Return the lines of log4j.properties that write the log to a file."""
    keys = {
        "log4j.logger.kafka.request.logger": "DEBUG, requests",
        "log4j.additivity.kafka.request.logger": "false",
        _APPENDER: "org.apache.log4j.FileAppender",
        f"{_APPENDER}.File": str(log),
        f"{_APPENDER}.layout": "org.apache.log4j.PatternLayout",
        f"{_APPENDER}.layout.ConversionPattern": (
            "%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %m%n"
        ),
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def convert(log: Path, record: Path, apart_ns: int) -> None:
    """Write the recording that a Doorkeeper broker would have written.

    ``apart_ns`` is wall-clock minus monotonic time. There are no samples, and no laws
    are checked. A line torn by the end of the broker is skipped.
    """
    with log.open(encoding="utf-8") as lines:
        rows = [
            _row(line, apart_ns)
            for line in lines
            if _COMPLETED in line and line.endswith("}\n")
        ]
    dtype = np.dtype([(name, f"<{code}") for name, code in REQUEST_TYPES])
    record.write_bytes(np.array(rows, dtype).tobytes())
    for suffix in (NAMES_SUFFIX, SAMPLES_SUFFIX, LAWS_SUFFIX):
        record.with_name(record.name + suffix).touch()


def _row(line: str, apart_ns: int) -> tuple[int, ...]:
    """Return the fields of a row in order: 0 or never if the log lacks them."""
    logged, _, text = line.partition(_COMPLETED)
    found: _Completed = json.loads(text)
    # Logged within the displayed millisecond, like ZooKeeper's decisions.
    logged_ms = round(datetime.fromisoformat(logged).timestamp() * 1000)
    sent_ns = (logged_ms + 1) * _NS_PER_MS - apart_ns
    received_ns = sent_ns - _ns(found["totalTimeMs"])
    dequeued_ns = received_ns + _ns(found["requestQueueTimeMs"])
    local_done_ns = dequeued_ns + _ns(found["localTimeMs"])
    values: Mapping[str, int] = {
        **dict.fromkeys(_UNKNOWN, NEVER),
        "correlation_id": found["requestHeader"]["correlationId"],
        "api_key": found["requestHeader"]["requestApiKey"],
        "received_ns": received_ns,
        "dequeued_ns": dequeued_ns,
        "local_done_ns": local_done_ns,
        "remote_done_ns": local_done_ns + _ns(found["remoteTimeMs"]),
        "response_dequeued_ns": sent_ns - _ns(found["sendTimeMs"]),
        "response_sent_ns": sent_ns,
        "throttle_ns": _ns(found["throttleTimeMs"]),
        "error_code": _first_error(found["response"]),
    }
    return tuple(values.get(name, 0) for name, _ in REQUEST_TYPES)


def _ns(time_ms: float) -> int:
    return round(time_ms * _NS_PER_MS)


def _first_error(node: object) -> int:
    """Return the first nonzero error code in an answer, else 0.

    >>> _first_error({"responses": [{"errorCode": 0}, {"errorCode": 6}], "n": 1})
    6
    """
    match node:
        case {"errorCode": int(code)} if code:
            return code
        case dict():
            return next(filter(None, map(_first_error, node.values())), 0)
        case list():
            return next(filter(None, map(_first_error, node)), 0)
    return 0
