"""Spark rows of `make bench`: the two passes at 1, 10 and 100 million requests.

The table is that of `CellSessions`: three quantiles by session, pooled, and with each
session left out. DuckDB computes the same table by the same two passes in its own SQL,
with as many threads. Both results must equal NumPy's in all digits. Each engine runs in
its own process, whose peak resident memory is measured.

``python -m tests.spark_analysis.bench [ROWS_MAX]`` adds the rows to runs/bench.json.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.row import BenchRow
from spark_analysis.recordings.exact_ranks import Quantile, exact_quantiles
from spark_analysis.recordings.latency_histogram import (
    BUCKET,
    BUCKETS_PER_E,
    CELL,
    UNANSWERED,
    GroupKey,
    by_session,
    histograms,
    places,
)
from spark_analysis.recordings.spark_session import spark_session
from spark_analysis.statistics.quantiles import rank

LEVELS: Final = (Fraction(1, 2), Fraction(19, 20), Fraction(99, 100))
SESSIONS: Final = 12
CORES: Final = 2
MEMORY_MAX: Final = 6 * 2**30
LINEAR: Final = 1.3
ROWS: Final = (1_000_000, 10_000_000, 100_000_000)
FILE_ROWS: Final = 1_000_000
SEED: Final = 31
SCHEMA: Final = (
    "point_index bigint, class string, arm string, session int, latency_ns double"
)

# Per cell and level: pooled, by session, without each session, exceedances.
Table = dict[GroupKey, list[tuple[float, list[float], list[float], list[int]]]]


@dataclass(frozen=True, slots=True)
class Taken:
    """One engine's table, with its time and peak memory."""

    seconds: float
    peak: int
    table: Table


def write(directory: Path, rows: int, cells: int) -> None:
    """Write requests of cells, with ties and 1 in 1000 unanswered, cell by cell."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng([SEED, rows, cells])
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        place = np.arange(start, min(rows, start + FILE_ROWS))
        cell = place * cells // rows
        values = np.round(rng.lognormal(14, 1, len(place)))
        values[rng.random(len(place)) < 0.2] = 2_000_000.0
        values[rng.random(len(place)) < 0.001] = np.inf
        table = pa.table(
            {
                "point_index": cell // 25,
                "class": _word("class", cell % 5),
                "arm": _word("arm", cell // 5 % 5),
                "session": rng.integers(0, SESSIONS, len(place), np.int32),
                "latency_ns": values,
            }
        )
        pq.write_table(table, directory / f"{number:04d}.parquet")


def _word(kind: str, number: np.ndarray[Any, Any]) -> pa.Array:
    words = pa.array([f"{kind} {i}" for i in range(5)])
    return pa.DictionaryArray.from_arrays(pa.array(number.astype(np.int32)), words)


def by_spark(directory: Path) -> Iterator[Callable[[Path], Table]]:
    """Yield a function that computes a table in a persistent session."""
    with spark_session(f"local[{CORES}]", rows=ROWS[-1]) as spark:

        def compute(files: Path) -> Table:
            frame = spark.read.schema(SCHEMA).parquet(str(files))
            one = frame.selectExpr(*CELL, "session", f"{BUCKET} AS bucket", "1L AS n")
            counted = by_session(one, range(SESSIONS)).toArrow()
            found = histograms(counted, range(SESSIONS))
            return _table(exact_quantiles(spark, frame, found, LEVELS))

        yield compute


def _table(found: Mapping[GroupKey, tuple[Quantile, ...]]) -> Table:
    return {
        key: [
            (it.pooled, it.own.tolist(), it.without.tolist(), list(it.exceedances))
            for it in of
        ]
        for key, of in found.items()
    }


def by_duckdb(directory: Path) -> Iterator[Callable[[Path], Table]]:
    """Yield the same function for DuckDB."""
    import duckdb

    base = duckdb.connect()
    base.execute(f"SET threads = {CORES}")
    base.execute("SET memory_limit = '4GB'")
    base.execute(f"SET temp_directory = '{directory}'")
    cell = ", ".join(f'"{name}"' for name in CELL)
    bucket = (
        f"CASE WHEN latency_ns = 'inf' THEN {UNANSWERED} ELSE "
        f"floor(ln(greatest(latency_ns, 1)) * {BUCKETS_PER_E})::INT END"
    )

    def compute(files: Path) -> Table:
        rows = f"(SELECT *, {bucket} AS bucket FROM read_parquet('{files}/*.parquet'))"
        counts = ", ".join(f"count(*) FILTER (session = {s})" for s in range(SESSIONS))
        counted = base.sql(
            f"SELECT {cell}, bucket, [{counts}] AS n FROM {rows} GROUP BY ALL"
        ).to_arrow_table()
        found = histograms(counted, range(SESSIONS))
        keys = list(found)
        wanted = [
            (number, place)
            for number, key in enumerate(keys)
            for place in places(found[key], LEVELS)
        ]
        asked = pa.table(
            {
                **{
                    name: [keys[number][i] for number, _ in wanted]
                    for i, name in enumerate(CELL)
                },
                "number": list(range(len(wanted))),
                "bucket": [
                    int(found[keys[n]].buckets[place.column]) for n, place in wanted
                ],
                "scope": [place.scope for _, place in wanted],
                "of": [place.row for _, place in wanted],
                "r": [place.rank for _, place in wanted],
            }
        )
        base.register("asked", asked)
        answer = base.execute(_second_pass(cell, rows)).fetchall()
        table: Table = {
            key: [
                (0.0, [0.0] * len(of.sessions), [0.0] * len(of.sessions), [])
                for _ in LEVELS
            ]
            for key, of in found.items()
        }
        for number, value, below in answer:
            cell_number, place = wanted[number]
            key = keys[cell_number]
            row = table[key][place.level]
            if place.scope == "pooled":
                above = found[key].counts[:, place.column :].sum(axis=1)
                beyond = (above - np.array(below)).tolist()
                table[key][place.level] = (value, row[1], row[2], beyond)
            else:
                row[1 if place.scope == "own" else 2][place.row] = value
        return table

    yield compute


def _second_pass(cell: str, rows: str) -> str:
    """Return the second pass in DuckDB's SQL, over the table ``asked``."""
    counts = ", ".join(
        f"count(*) FILTER (session = {s}) AS n{s}" for s in range(SESSIONS)
    )
    sums = ", ".join(f"sum(n{s}) OVER w AS c{s}" for s in range(SESSIONS))
    here = f"[{', '.join(f'n{s}' for s in range(SESSIONS))}]"
    reached = f"[{', '.join(f'c{s}' for s in range(SESSIONS))}]"
    return f"""
            WITH vals AS (
                SELECT {cell}, bucket, latency_ns, count(*) AS n, {counts}
                FROM {rows} SEMI JOIN asked USING ({cell}, bucket)
                GROUP BY ALL
            ), running AS (
                SELECT *, sum(n) OVER w AS c, {sums} FROM vals
                WINDOW w AS (PARTITION BY {cell}, bucket ORDER BY latency_ns)
            ), listed AS (
                SELECT {cell}, bucket, latency_ns, n, c, {here} AS here,
                    {reached} AS reached FROM running
            )
            SELECT number, latency_ns, list_transform(
                list_zip(reached, here), lambda p: (p[1] - p[2])::BIGINT) AS below
            FROM listed JOIN asked USING ({cell}, bucket)
            WHERE CASE scope
                WHEN 'own' THEN r <= reached[of + 1]
                    AND r > reached[of + 1] - here[of + 1]
                WHEN 'pooled' THEN r <= c AND r > c - n
                ELSE r <= c - reached[of + 1]
                    AND r > c - reached[of + 1] - (n - here[of + 1]) END
        """


def by_numpy(directory: Path) -> Table:
    """Return the same table from sorted arrays."""
    data = pq.read_table(directory)
    point = data["point_index"].to_numpy()
    kinds = [
        data[name].combine_chunks().dictionary_encode() for name in ("class", "arm")
    ]
    cell = point * 25 + kinds[0].indices.to_numpy() * 5 + kinds[1].indices.to_numpy()
    session = data["session"].to_numpy()
    latency = data["latency_ns"].to_numpy()
    words = [kind.dictionary.to_pylist() for kind in kinds]
    del data, point, kinds
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    table: Table = {}
    for start, end in zip(starts, [*starts[1:], len(cell)], strict=True):
        of = int(cell[start])
        key = GroupKey(of // 25, words[0][of // 5 % 5], words[1][of % 5])
        table[key] = _exact(latency[start:end], session[start:end])
    return table


def _exact(
    latency: np.ndarray[Any, Any], session: np.ndarray[Any, Any]
) -> list[tuple[float, list[float], list[float], list[int]]]:
    order = np.argsort(latency)
    latency, session = latency[order], session[order]
    found: list[tuple[float, list[float], list[float], list[int]]] = []
    parts = [latency[session == s] for s in range(SESSIONS)]
    rests = [latency[session != s] for s in range(SESSIONS)]
    for level in LEVELS:
        pooled = float(latency[rank(len(latency), level) - 1])
        first = int(np.searchsorted(latency, pooled, "left"))
        found.append(
            (
                pooled,
                [float(part[rank(len(part), level) - 1]) for part in parts],
                [float(rest[rank(len(rest), level) - 1]) for rest in rests],
                np.bincount(session[first:], minlength=SESSIONS).tolist(),
            )
        )
    return found


ENGINES: Final = {"spark": by_spark, "duckdb": by_duckdb}


def taken(engine: str, files: Path, warm: Path) -> Taken:
    """Run an engine in its own process, on small data first."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(engine, files, warm, sender))
    process.start()
    sender.close()
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.2):
            peak = max(peak, _resident(process.pid or 0))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        seconds, table = receiver.recv()
    finally:
        over.set()
        watcher.join()
        process.join()
    return Taken(seconds, peak, table)


def _resident(pid: int) -> int:
    """Return the resident memory of a process and its children."""
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
        return sum(each.memory_info().rss for each in family)
    except psutil.Error:
        return 0


def _work(engine: str, files: Path, warm: Path, sender: Any) -> None:
    for compute in ENGINES[engine](warm.parent):
        compute(warm)
        start = time.perf_counter()
        table = compute(files)
        sender.send((time.perf_counter() - start, table))


def rows(rows_max: int) -> Iterator[BenchRow]:
    """Yield a row for each size and number of cells, smallest first.

    :raises AssertionError: if a digit, the memory or the growth of time is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder, "warm")
        write(warm, ROWS[0] // 5, 25)
        for cells in (1, 1000):
            before = 0.0
            for count in (it for it in ROWS if it <= rows_max):
                files = Path(folder, "requests")
                write(files, count, cells)
                ours, theirs = (taken(engine, files, warm) for engine in ENGINES)
                assert ours.table == theirs.table == by_numpy(files)
                shutil.rmtree(files)
                assert ours.peak < MEMORY_MAX, ours.peak
                # Faster than linear is allowed; slower than linear is not.
                growth = ours.seconds / before / 10 if before else 0.0
                before = ours.seconds
                print(
                    f"{count} rows, {cells} cells: Spark {ours.seconds:.1f} s, "
                    f"{ours.peak / 2**30:.2f} GiB, {growth:.2f} of linear; DuckDB "
                    f"{theirs.seconds:.1f} s, {theirs.peak / 2**30:.2f} GiB",
                    file=sys.stderr,
                    flush=True,
                )
                assert growth <= LINEAR, growth
                yield BenchRow(
                    name=f"quantiles by session, {count / 1e6:g} M rows, {cells} cells",
                    unit="s",
                    ours=ours.seconds,
                    peer="DuckDB, the same passes",
                    theirs=theirs.seconds,
                    ratio=theirs.seconds / ours.seconds,
                )


def main() -> None:
    """Print the rows, and replace older ones in runs/bench.json."""
    rows_max = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS[-1]
    found = []
    for row in rows(rows_max):
        found.append(row.as_json())
        print(json.dumps(found[-1]), flush=True)
    out = Path("runs/bench.json")
    old = json.loads(out.read_text())["rows"] if out.exists() else []
    names = {row["name"] for row in found}
    kept = [row for row in old if row["name"] not in names]
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"rows": kept + found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
