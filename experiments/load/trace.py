"""A trace: every request of a block, replayed to every arm.

A trace is drawn once from the seed, or is a window of a file (`design.trace_windows`).

Pairing gives the experiment its power: with equal arrivals and sizes in every arm, the
variance of a difference falls by an order of magnitude (common random numbers).
Therefore a trace is stored, and every run that replays it records its hash.

Each traffic entry draws from its own generators, forked from the seed by name, so a
change of one entry does not change the arrivals of the others. The hash is over the
columns' content, not over the file: any Parquet writer gives the same hash.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.design.capacity import drawable
from experiments.design.config import Experiment
from experiments.design.trace_windows import bounds_ns, trace_of, window
from experiments.load.arrivals import SECOND_NS, demands, instants
from experiments.load.frames import api_key, size_bytes
from experiments.load.pace import Pace, scales_of
from experiments.load.senders import senders

HASH_KEY = b"doorkeeper.trace.sha256"
_NAME = pa.dictionary(pa.int32(), pa.string())
TRACE_SCHEMA = pa.schema(
    [
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("intended_ns", pa.int64(), nullable=False),
        pa.field("traffic", _NAME, nullable=False),
        pa.field("class", _NAME, nullable=False),
        pa.field("flow", _NAME, nullable=False),
        pa.field("connection", pa.int32(), nullable=False),
        pa.field("sequence", pa.int32(), nullable=False),
        pa.field("api_key", pa.int16(), nullable=False),
        pa.field("size_bytes", pa.int32(), nullable=False),
        pa.field("demand_ns", pa.int64(), nullable=False),
    ]
)


class Arrival(NamedTuple):
    """One request without a number; a flow without a name is its client's id."""

    intended_ns: int
    entry: int
    draw: int
    connection: int
    demand_ns: int
    flow: str = ""


class TraceRow(NamedTuple):
    """One request of a trace, by columns."""

    request_id: int
    intended_ns: int
    traffic: str
    reported_class: str
    flow: str
    connection: int
    sequence: int
    api_key: int
    size_bytes: int
    demand_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The requests of one block in order of arrival; ``request_id`` is the row."""

    block: int
    sha256: str
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, name: str) -> list[Any]:
        """Return a column as Python values."""
        column = self.table[name].combine_chunks()
        if not pa.types.is_dictionary(column.type):
            values: list[Any] = column.to_numpy().tolist()
            return values
        words = column.dictionary.to_pylist()
        return [words[code] for code in column.indices.to_numpy().tolist()]

    def rows(self) -> Iterator[TraceRow]:
        """Yield the requests in order."""
        columns = map(self.column, TRACE_SCHEMA.names)
        yield from map(TraceRow._make, zip(*columns, strict=True))

    def stretched(self, factor: float, cost_ratios: Mapping[str, float]) -> Trace:
        """Return the trace in the time of another machine, with the original hash.

        Instants are multiplied by ``factor``, the demands of each traffic entry by its
        ``cost_ratios``.
        """
        if factor == 1.0 and all(ratio == 1.0 for ratio in cost_ratios.values()):
            return self
        ratio = np.array([cost_ratios.get(it, 1.0) for it in self.column("traffic")])
        instants_ns = np.rint(self.table["intended_ns"].to_numpy() * factor)
        demands_ns = np.rint(self.table["demand_ns"].to_numpy() * ratio)
        table = self.table
        for name, values in (("intended_ns", instants_ns), ("demand_ns", demands_ns)):
            at = TRACE_SCHEMA.get_field_index(name)
            column = pa.array(values.astype(np.int64))
            table = table.set_column(at, TRACE_SCHEMA.field(name), column)
        return replace(self, table=table)


def generate(experiment: Experiment, block: int) -> Trace:
    """Draw the trace of a block. Cost: O(requests log requests).

    Equal experiment, seed and block give an equal trace. It depends neither on the arms
    nor on the machine: instants and demands are in nominal time (`design.capacity`).

    :raises ExperimentError: if a needed cost of some traffic is not known, or a file of
        requests is missing or has changed.
    """
    experiment = drawable(experiment)
    workload = experiment.workload
    connections = senders(workload)
    arrivals = sorted(
        arrival
        for entry in range(len(workload.traffic))
        for arrival in _arrivals(experiment, block, entry)
    )
    sequences = [0] * len(connections)
    sequence: list[int] = []
    for arrival in arrivals:
        sequence.append(sequences[arrival.connection])
        sequences[arrival.connection] += 1
    entries = [workload.traffic[arrival.entry] for arrival in arrivals]
    sizes = {entry.name: size_bytes(workload, entry) for entry in workload.traffic}
    flows = [
        arrival.flow or connections[arrival.connection].client_id
        for arrival in arrivals
    ]
    columns = [
        range(len(arrivals)),
        [arrival.intended_ns for arrival in arrivals],
        [entry.name for entry in entries],
        [entry.reported_class for entry in entries],
        flows,
        [arrival.connection for arrival in arrivals],
        sequence,
        [api_key(entry.request) for entry in entries],
        [sizes[entry.name] for entry in entries],
        [arrival.demand_ns for arrival in arrivals],
    ]
    return build(block, columns)


def _arrivals(experiment: Experiment, block: int, number: int) -> Iterator[Arrival]:
    """Return the arrivals of one entry; ties are broken by entry, then by draw."""
    entry = experiment.workload.traffic[number]
    connections = experiment.workload.connections_of(entry)
    if entry.is_recorded:
        return _replay(experiment, block, number, connections.start)
    return _draw(experiment, block, number, connections)


def _replay(
    experiment: Experiment, block: int, number: int, first: int
) -> Iterator[Arrival]:
    """Yield the requests of an entry's class in a window of the file.

    Connection p belongs to the flow p modulo ``clients``, and a flow uses its
    connections in turn.
    """
    workload, trace = experiment.workload, trace_of(experiment)
    entry = workload.traffic[number]
    begin_ns, _ = bounds_ns(experiment, block)
    rows = np.arange(len(trace))[window(experiment, block)]
    rows = rows[trace.of_class(entry.reported_class)[rows]]
    instants_ns = (trace.arrival_ns[rows] - begin_ns) / workload.trace_speed
    # Rounded down, so that the last instant stays within the window.
    intended_ns = np.floor(instants_ns).astype(np.int64).tolist()
    demands_ns = trace.service_ns[rows].tolist()
    positions = trace.flow_position[rows].tolist()
    names = [trace.flows[code] for code in trace.flow_code[rows].tolist()]
    sent = [0] * entry.clients
    for draw, position in enumerate(positions):
        own = len(range(position, entry.connections, entry.clients))
        turn = sent[position] % own
        sent[position] += 1
        connection = first + position + turn * entry.clients
        yield Arrival(
            intended_ns[draw], number, draw, connection, demands_ns[draw], names[draw]
        )


def _draw(
    experiment: Experiment, block: int, number: int, connections: range
) -> Iterator[Arrival]:
    """Draw the arrivals of one entry."""
    workload = experiment.workload
    entry = workload.traffic[number]
    when, where, cost = (
        random.Random(f"{experiment.experiment.seed}/{block}/{entry.name}/{purpose}")
        for purpose in ("arrivals", "connections", "demands")
    )
    demand = demands(entry.service, cost) if entry.service else lambda: 0
    start_ns = round(entry.start_s * SECOND_NS)
    stop_ns = round(workload.stop_of(entry) * SECOND_NS)
    pace = Pace(scales_of(experiment.faults, entry.name))
    drawn = instants(entry.arrivals, when, pace.work(start_ns), pace.work(stop_ns))
    for draw, at in enumerate(map(pace.instant, drawn)):
        connection = connections[where.randrange(len(connections))]
        yield Arrival(at, number, draw, connection, demand())


def build(block: int, columns: list[Any]) -> Trace:
    """Create a trace from the columns of `TRACE_SCHEMA`, with its hash."""
    arrays = [
        pa.array(column, type=_plain(field.type))
        for column, field in zip(columns, TRACE_SCHEMA, strict=True)
    ]
    digest = hashlib.sha256()
    for array, field in zip(arrays, TRACE_SCHEMA, strict=True):
        digest.update(field.name.encode())
        digest.update(_content(array))
    typed = [
        array.cast(field.type)
        for array, field in zip(arrays, TRACE_SCHEMA, strict=True)
    ]
    table = pa.Table.from_arrays(typed, schema=TRACE_SCHEMA)
    return Trace(block=block, sha256=digest.hexdigest(), table=table)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type before dictionary encoding."""
    return pa.string() if pa.types.is_dictionary(kind) else kind


def _content(array: pa.Array) -> bytes:
    """Return bytes that depend on a column's values only."""
    if pa.types.is_string(array.type):
        return "\0".join(array.to_pylist()).encode()
    content: bytes = array.to_numpy().tobytes()
    return content


def store(trace: Trace, path: Path) -> None:
    """Write a trace atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = trace.table.replace_schema_metadata({HASH_KEY: trace.sha256})
    partial = path.with_suffix(".partial")
    pq.write_table(table, partial, compression="zstd")
    os.replace(partial, path)


def read(path: Path, block: int) -> Trace:
    """Read a stored trace."""
    table = pq.read_table(path)
    sha256 = table.schema.metadata[HASH_KEY].decode()
    return Trace(block=block, sha256=sha256, table=table)
