"""The broker's own record of a run, joined with the load's observations.

The correlation id of a request is its index in the trace, so the join is an assignment
by index. A row that cannot be joined is a fault of the run: it is reported, never
dropped silently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from broker.observation.recording.recording import (
    MEASURES,
    REQUEST_TYPES,
    SAMPLE_TYPES,
    SAMPLES_SUFFIX,
    SampleRow,
    read_accounts,
    read_names,
    read_violations,
)
from broker.observation.recording.recording import STAMPS as BROKER_STAMPS
from experiments.records.recording import NEVER, SAMPLES_SCHEMA, STAMPS, Int64s

# Measures that belong to a request, not to each of its rows.
COUNTED_ONCE: Final = ("service_ns", "prior_ns", "preemptions")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerRows:
    """The broker's columns, by request, and a fault in them, if any."""

    columns: Mapping[str, Int64s]
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerRecord:
    """A broker's record of a run; its samples as columns."""

    requests: BrokerRows
    samples: Mapping[str, Any]
    violations: Mapping[str, int] | None
    accounts: Mapping[str, int]


def read(recording: Path, requests: int, origin_ns: int) -> BrokerRecord:
    """Read the record of a run, with stamps relative to ``origin_ns``."""
    return BrokerRecord(
        requests=read_requests(recording, requests, origin_ns),
        samples=read_samples(recording, origin_ns),
        violations=read_violations(recording),
        accounts=read_accounts(recording),
    )


def by_row(record: BrokerRecord, carrier: Int64s) -> BrokerRecord:
    """Return the record by rows of a trace instead of by requests.

    ``carrier`` is the number of each row's request. All rows of a request have its
    stamps. Its CPU time and its preemptions are counted once, for its first row.
    """
    _, firsts = np.unique(carrier, return_index=True)
    is_further = np.ones(len(carrier), np.bool_)
    is_further[firsts] = False
    columns = {}
    for name, of_requests in record.requests.columns.items():
        values = of_requests[carrier]
        if name in COUNTED_ONCE:
            values = np.where(is_further & (values != NEVER), 0, values)
        columns[name] = values
    return replace(record, requests=replace(record.requests, columns=columns))


def nothing(requests: int) -> BrokerRecord:
    """Return the record of a broker without recording: no stamps, samples or laws."""
    never = np.full(requests, NEVER, np.int64)
    columns = dict.fromkeys((*BROKER_STAMPS, *MEASURES), never)
    return BrokerRecord(
        requests=BrokerRows(columns=columns, fault=""),
        samples={name: [] for name in SampleRow._fields},
        violations=None,
        accounts={},
    )


def read_requests(recording: Path, requests: int, origin_ns: int) -> BrokerRows:
    """Read the broker's rows into columns of ``requests`` values each.

    Stamps are relative to ``origin_ns``; ``NEVER`` if the broker has no row.
    """
    return _joined(_read(recording, REQUEST_TYPES), requests, origin_ns)


def _joined(rows: npt.NDArray[Any], requests: int, origin_ns: int) -> BrokerRows:
    ids = rows["correlation_id"]
    strangers = int(np.count_nonzero((ids < 0) | (ids >= requests)))
    rows = rows[(ids >= 0) & (ids < requests)]
    ids = rows["correlation_id"]
    twice = len(ids) - len(np.unique(ids))
    columns = {}
    for name in (*BROKER_STAMPS, *MEASURES):
        column = np.full(requests, NEVER, np.int64)
        values = rows[name].astype(np.int64)
        column[ids] = relative(values, origin_ns) if name in STAMPS else values
        columns[name] = column
    fault = ""
    if strangers or twice:
        fault = f"broker recorded {strangers} unknown requests and {twice} twice"
    return BrokerRows(columns=columns, fault=fault)


def read_numbered(recording: Path, api_keys: Int64s) -> npt.NDArray[Any]:
    """Read a cluster broker's rows that belong to attempts at this broker.

    ``api_keys`` has the API key of each attempt by its number, or an unused key for an
    attempt at another broker. Other brokers and the connections of the set-up also
    number their requests. Rows with another API key than the attempt of that number are
    theirs.
    """
    rows = _read(recording, REQUEST_TYPES)
    ids = rows["correlation_id"]
    rows = rows[(ids >= 0) & (ids < len(api_keys))]
    found: npt.NDArray[Any] = rows[api_keys[rows["correlation_id"]] == rows["api_key"]]
    return found


def read_of(
    recording: Path, api_keys: Collection[int], since_ns: int
) -> npt.NDArray[Any]:
    """Read the rows of some APIs that were received at an instant or later."""
    rows = _read(recording, REQUEST_TYPES)
    wanted = np.isin(rows["api_key"], list(api_keys)) & (
        rows["received_ns"] >= since_ns
    )
    found: npt.NDArray[Any] = rows[wanted]
    return found


def read_samples(recording: Path, origin_ns: int) -> dict[str, Any]:
    """Return the columns of the broker's samples since the origin, as `SampleRow`."""
    rows = _read(recording.with_name(recording.name + SAMPLES_SUFFIX), SAMPLE_TYPES)
    rows = rows[rows["t_ns"] >= origin_ns]
    return _sampled(rows, read_names(recording), origin_ns)


class SessionRecord:
    """The record of a broker that ran for a session, divided into its episodes.

    Every episode numbers its requests from 0. A row's episode follows from the time of
    receipt, because the broker is idle between episodes.
    """

    def __init__(self, recording: Path) -> None:
        self._requests = _read(recording, REQUEST_TYPES)
        samples = recording.with_name(recording.name + SAMPLES_SUFFIX)
        self._samples = _read(samples, SAMPLE_TYPES)
        self._names = read_names(recording)
        self.violations = read_violations(recording)
        self.accounts = read_accounts(recording)

    def episode(self, requests: int, origin_ns: int, following_ns: int) -> BrokerRecord:
        """Return an episode's record, without values that span the session.

        ``following_ns`` is the start of the next episode of this broker.
        """
        rows = _between(self._requests, "received_ns", origin_ns, following_ns)
        samples = _between(self._samples, "t_ns", origin_ns, following_ns)
        return BrokerRecord(
            requests=_joined(rows, requests, origin_ns),
            samples=_sampled(samples, self._names, origin_ns),
            violations={},
            accounts={},
        )


def _between(
    rows: npt.NDArray[Any], stamp: str, begin_ns: int, end_ns: int
) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = rows[(rows[stamp] >= begin_ns) & (rows[stamp] < end_ns)]
    return found


def _sampled(
    rows: npt.NDArray[Any], names: Sequence[str], origin_ns: int
) -> dict[str, Any]:
    columns: dict[str, Any] = {
        name: rows[name].astype(SAMPLES_SCHEMA.field(name).type.to_pandas_dtype())
        for name in SampleRow._fields
        if name != "plane"
    }
    columns["t_ns"] -= origin_ns
    columns["plane"] = [names[number] for number in rows["plane"]]
    return columns


def relative(stamps_ns: Int64s, origin_ns: int) -> Int64s:
    """Return stamps relative to the origin; ``NEVER`` is kept."""
    counted: Int64s = np.where(stamps_ns < 0, NEVER, stamps_ns - origin_ns)
    return counted


def _read(path: Path, types: tuple[tuple[str, str], ...]) -> npt.NDArray[Any]:
    """Read complete rows; a row torn by the broker's end is skipped."""
    dtype = np.dtype([(name, f"<{code}") for name, code in types])
    content = path.read_bytes()
    return np.frombuffer(content, dtype, count=len(content) // dtype.itemsize)
