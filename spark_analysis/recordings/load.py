"""Reading of the recorded requests and samples of the compared runs, with a schema.

Spark infers no schema: an arm named "1" stays a string, and a column of another type is
refused. Spark opens the files on any of its file systems. The point and the session of
a row are those of its run in the manifest; ``point_index`` is the point's number there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from spark_analysis.recordings.columns import (
    ATTEMPTS,
    IDENTITY,
    REQUESTS,
    SAMPLES,
    STAMPS,
    ddl,
)
from spark_analysis.recordings.contract import DamagedFile, Manifest, Run
from spark_analysis.recordings.manifest import check
from spark_analysis.recordings.phases import PHASES
from spark_analysis.recordings.spark_session import reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind: TypeAlias = Literal["requests", "samples", "attempts"]

_COLUMNS: Final[Mapping[Kind, Mapping[str, str]]] = MappingProxyType(
    {"requests": REQUESTS, "samples": SAMPLES, "attempts": ATTEMPTS}
)
# Special characters in Hadoop's patterns of file names.
_SPECIAL: Final = re.compile(r"[\\{}\[\]*?,^]")
QUEUE_BINS: Final = 100
QUEUE_BIN_NS_MIN: Final = 100_000_000


def read_requests(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return every request of the compared runs, with latency and phases derived.

    ``latency_ns`` is a double: infinite without a good answer in time. Nanoseconds
    below 2^53 (104 days) are exact in it. ``inside`` is true if the intended instant
    lies in the window, which excludes the warm-up. ``print`` is a hash of the request's
    identity, null if a part is missing. The windows of fairness are ``fairness_ns``
    wide, 1 if fairness is not measured.
    """
    frame = _read(spark, REQUESTS, compared_files(manifest, "requests"))
    latency = f"{STAMPS[-1]} - {STAMPS[0]}"
    lost = "double('Infinity')"
    known = " AND ".join(f"{name} IS NOT NULL" for name in IDENTITY)
    # The session is the manifest's: rows of older recordings have none.
    rows = frame.drop("session")
    return rows.join(_runs(spark, manifest), "run_id").selectExpr(
        "run_id",
        "point_index",
        "block",
        "session",
        "arm",
        "request_id",
        "class",
        "flow",
        "intended_ns",
        "local_done_ns",
        "window_start",
        "window_end",
        "fairness_ns",
        "intended_ns >= window_start AND intended_ns < window_end AS inside",
        "outcome",
        "service_ns",
        f"IF({known}, xxhash64({', '.join(IDENTITY)}), NULL) AS print",
        f"IF(outcome = 'ok', double({latency}), {lost}) AS latency_ns",
        *(f"{phase.sql} AS {phase.name}" for phase in PHASES),
    )


def read_samples(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return the queue samples of the compared runs, each in its time bin."""
    frame = _read(spark, SAMPLES, compared_files(manifest, "samples"))
    placed = frame.join(_runs(spark, manifest), "run_id")
    return placed.selectExpr(
        "point_index",
        "arm",
        "block",
        "plane",
        "queued",
        "waiting",
        "t_ns DIV bin_ns AS bin",
    )


def read_attempts(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return every attempt of the compared runs on a cluster, as recorded."""
    return _read(spark, ATTEMPTS, compared_files(manifest, "attempts"))


def _read(
    spark: SparkSession, columns: Mapping[str, str], files: Sequence[str]
) -> DataFrame:
    """Return the rows of files whose paths are literal names, not patterns."""
    names = map(escaped, files)
    return spark.read.schema(ddl(columns)).parquet(*names)


def escaped(path: str) -> str:
    """Return a pattern that matches this path only."""
    return _SPECIAL.sub(r"\\\g<0>", path)


def bin_ns(window_ns: tuple[int, int]) -> int:
    """Return the length of a bin of the queue over time."""
    return max(QUEUE_BIN_NS_MIN, window_ns[1] // QUEUE_BINS)


def _runs(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return the data of each run for its rows: a small table, sent to every worker."""
    indices = {point.name: index for index, point in enumerate(manifest.points)}
    fairness_ms = manifest.options.fairness_window_ms or 0.0
    rows = []
    for run in manifest.runs_compared:
        index = indices[run.point]
        window = manifest.points[index].window_ns
        stretch = manifest.points[index].stretch or 1.0
        rows.append(
            {
                "run_id": run.run_id,
                "point_index": index,
                "session": run.session,
                "window_start": window[0],
                "window_end": window[1],
                "bin_ns": bin_ns(window),
                "fairness_ns": max(1, round(fairness_ms * 1e6 * stretch)),
            }
        )
    return spark.createDataFrame(pa.Table.from_pylist(rows)).hint("broadcast")


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("\\", r"\\").replace("'", r"\'") + "'"


def aggregates(expressions: dict[str, str]) -> list[Any]:
    """Return named columns of SQL expressions."""
    from pyspark.sql import functions as F

    return [F.expr(sql).alias(name) for name, sql in expressions.items()]


def compared_files(manifest: Manifest, kind: Kind) -> list[str]:
    """Return the files of the compared runs as Spark reads them, each once.

    The runs of an arm in one session share a file.

    :raises DamagedFile: naming the first missing or empty file on this machine.
    """
    first: dict[str, Run] = {}
    for run in manifest.runs_compared:
        first.setdefault(str(getattr(run, kind)), run)
    return [_location(manifest, file, run) for file, run in first.items()]


def _location(manifest: Manifest, file: str, run: Run) -> str:
    """Return Spark's location of a file: below a URI, or its path on this machine."""
    if manifest.location:
        return f"{manifest.location}/{file}"
    path = manifest.directory / file
    try:
        if not path.is_file():
            raise DamagedFile(path, f"there is no such file (run {run.run_id})")
        if not path.stat().st_size:
            # Spark would read no rows of an empty file, and report nothing.
            raise DamagedFile(path, "damaged, or no Parquet file: it is empty")
        # Java accepts names in UTF-8 only.
        return "file:" + os.fsencode(path.resolve()).decode("utf-8")
    except (OSError, ValueError) as error:
        raise DamagedFile(path, str(error)) from error


def without_damaged(spark: SparkSession, manifest: Manifest) -> Manifest:
    """Return the manifest without runs that have a partly unreadable file.

    Reads every compared file, one by one.

    :raises RecordingError: if the remaining runs cannot be compared.
    """
    runs: dict[str, Run] = {}
    kinds: dict[str, Kind] = {}
    for kind in _COLUMNS:
        for run in manifest.runs_compared:
            file = getattr(run, kind)
            if file is not None:
                runs.setdefault(file, run)
                kinds.setdefault(file, kind)
    damaged: dict[str, str] = {}
    for file, run in runs.items():
        try:
            with reading():
                location = _location(manifest, file, run)
                _read_whole(spark, _COLUMNS[kinds[file]], location)
        except DamagedFile as fault:
            damaged[file] = str(fault)
    reasons = {
        run.run_id: damaged[file]
        for run in manifest.runs_compared
        for file in (run.requests, run.samples, run.attempts)
        if file in damaged
    }
    left = replace(
        manifest,
        runs=tuple(
            replace(run, valid=False, reason=reasons[run.run_id])
            if run.run_id in reasons
            else run
            for run in manifest.runs
        ),
    )
    check(left, manifest.location or manifest.directory)
    return left


def _read_whole(spark: SparkSession, columns: Mapping[str, str], file: str) -> None:
    """Read every page of a file.

    :raises DamagedFile: if required columns are missing or unreadable.
    """
    frame = _read(spark, columns, [file])
    found = frame.selectExpr("bit_xor(xxhash64(*))", "count_if(run_id IS NULL) AS lost")
    if found.toArrow()["lost"][0].as_py():
        raise DamagedFile(file.removeprefix("file:"), "it has no column run_id")
