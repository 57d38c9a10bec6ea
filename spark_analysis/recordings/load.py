"""Read the recorded requests and samples of the compared runs, schema in hand.

Spark infers nothing here: an arm called "1" stays a word, and a file of another schema
version is refused by its footer before a row is read. Which point of a sweep a row
belongs to stands in the manifest alone; ``point_index`` is its number there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spark_analysis.recordings.columns import (
    ATTEMPTS,
    IDENTITY,
    REQUESTS,
    SAMPLES,
    STAMPS,
    ddl,
)
from spark_analysis.recordings.contract import SCHEMA, DamagedFile, Manifest, Run
from spark_analysis.recordings.manifest import check
from spark_analysis.recordings.phases import PHASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind: TypeAlias = Literal["requests", "samples", "attempts"]

_COLUMNS: Final[Mapping[Kind, Mapping[str, str]]] = MappingProxyType(
    {"requests": REQUESTS, "samples": SAMPLES, "attempts": ATTEMPTS}
)
_ARROW: Final = MappingProxyType(
    {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "smallint": pa.int16(),
        "double": pa.float64(),
    }
)
_SCHEMA_KEY: Final = b"doorkeeper.schema"
_FOOTERS_AT_ONCE: Final = 16
# What Hadoop's patterns of file names give a meaning to.
_SPECIAL: Final = re.compile(r"[\\{}\[\]*?,^]")
QUEUE_BINS: Final = 100
QUEUE_BIN_NS_MIN: Final = 100_000_000


def read_requests(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return every request of the compared runs, with latency and phases derived.

    ``latency_ns`` is a double: infinite where there was no good answer in time.
    Nanoseconds below 2^53 (104 days) are exact in it. ``inside`` says whether the
    request was meant to be sent in the window, which cuts the warm-up off.
    """
    frame = _read(spark, REQUESTS, compared_files(manifest, "requests"))
    latency = f"{STAMPS[-1]} - {STAMPS[0]}"
    lost = "double('Infinity')"
    return frame.join(_runs(spark, manifest), "run_id").selectExpr(
        "run_id",
        "point_index",
        "block",
        "session",
        "arm",
        "request_id",
        "class",
        "intended_ns",
        "intended_ns >= window_start AND intended_ns < window_end AS inside",
        "outcome",
        "service_ns",
        f"xxhash64({', '.join(IDENTITY)}) AS print",
        f"IF(outcome = 'ok', double({latency}), {lost}) AS latency_ns",
        *(f"{phase.sql} AS {phase.name}" for phase in PHASES),
    )


def read_samples(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return the queue samples of the compared runs, each in its bin of time."""
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
    """Return the rows of files whose paths are names, not patterns of names."""
    names = [_SPECIAL.sub(r"\\\g<0>", file) for file in files]
    return spark.read.schema(ddl(columns)).parquet(*names)


def bin_ns(window_ns: tuple[int, int]) -> int:
    """Return how long a bin of the queue over time is."""
    return max(QUEUE_BIN_NS_MIN, window_ns[1] // QUEUE_BINS)


def _runs(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return what a row must know of its run: a small table, sent to every worker."""
    indices = {point.name: index for index, point in enumerate(manifest.points)}
    rows = []
    for run in manifest.runs_compared:
        index = indices[run.point]
        window = manifest.points[index].window_ns
        rows.append(
            {
                "run_id": run.run_id,
                "point_index": index,
                "session": run.session,
                "window_start": window[0],
                "window_end": window[1],
                "bin_ns": bin_ns(window),
            }
        )
    return spark.createDataFrame(pa.Table.from_pylist(rows)).hint("broadcast")


def literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("\\", r"\\").replace("'", r"\'") + "'"


def aggregates(expressions: dict[str, str]) -> list[Any]:
    """Return named columns of SQL expressions."""
    from pyspark.sql import functions as F

    return [F.expr(sql).alias(name) for name, sql in expressions.items()]


def compared_files(manifest: Manifest, kind: Kind) -> list[str]:
    """Return the files of the compared runs, each once, of the right schema version.

    The runs of an arm in a session of episodes share a file.

    :raises DamagedFile: naming the first that is missing or of another version.
    """
    first: dict[str, Run] = {}
    for run in manifest.runs_compared:
        first.setdefault(str(getattr(run, kind)), run)
    paths = [(run, manifest.directory / file) for file, run in first.items()]
    # A footer is a read that waits for its disk, or for a network: many at a time.
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        check = partial(_checked, kind)
        return list(pool.map(check, *zip(*paths, strict=True)))


def _checked(kind: Kind, run: Run, path: Path, *, whole: bool = False) -> str:
    """Return the path of a run's file whose footer names the right schema.

    ``whole`` reads every page, too, and compares its checksum.

    :raises DamagedFile: if it does not, or is no such file.
    """
    if not path.is_file():
        raise DamagedFile(path, f"there is no such file (run {run.run_id})")
    try:
        # By descriptor: Arrow takes no name that this locale cannot decode.
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            found = parquet.schema_arrow
            if whole:
                for _ in parquet.iter_batches():
                    pass
        # And Java takes no other than UTF-8.
        name = os.fsencode(path.resolve()).decode("utf-8")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DamagedFile(path, f"damaged, or no Parquet file: {error}") from error
    version = (found.metadata or {}).get(_SCHEMA_KEY)
    if version != str(SCHEMA).encode():
        raise DamagedFile(path, f"schema {version!r} found, {SCHEMA} expected")
    for field in found:
        expected = _COLUMNS[kind].get(field.name)
        if expected is not None and not _reads(field.type, expected):
            why = f"column {field.name} is {field.type}, expected {expected}"
            raise DamagedFile(path, why)
    return name


def without_damaged(manifest: Manifest) -> Manifest:
    """Return the manifest without the runs of which a file cannot be read to its end.

    Reads every compared file.

    :raises RecordingError: if nothing can be compared then.
    """
    damaged: dict[str, str] = {}
    for run in manifest.runs_compared:
        for kind in _COLUMNS:
            file = getattr(run, kind)
            if file is None or file in damaged:
                continue
            try:
                _checked(kind, run, manifest.directory / file, whole=True)
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
    check(left, manifest.directory)
    return left


def _reads(found: pa.DataType, expected: str) -> bool:
    """Say whether Spark reads Arrow's type as the type that it is told."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    return bool(found == _ARROW[expected])
