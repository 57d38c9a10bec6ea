"""Read the recorded requests and samples of the compared runs, schema in hand.

Spark infers nothing here: an arm called "1" stays a word, and a file of another schema
version is refused by its footer before a row is read. Which point of a sweep a row
belongs to stands in the manifest alone; ``point_index`` is its number there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

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
from spark_analysis.recordings.contract import SCHEMA, Manifest, RecordingError, Run
from spark_analysis.recordings.phases import PHASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA_KEY: Final = b"doorkeeper.schema"
_FOOTERS_AT_ONCE: Final = 16
QUEUE_BINS: Final = 100
QUEUE_BIN_NS_MIN: Final = 100_000_000


def read_requests(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return every request of the compared runs, with latency and phases derived.

    ``latency_ns`` is a double: infinite where there was no good answer in time.
    Nanoseconds below 2^53 (104 days) are exact in it. ``inside`` says whether the
    request was meant to be sent in the window, which cuts the warm-up off.
    """
    frame = spark.read.schema(ddl(REQUESTS)).parquet(
        *compared_files(manifest, "requests")
    )
    latency = f"{STAMPS[-1]} - {STAMPS[0]}"
    lost = "double('Infinity')"
    return frame.join(_runs(spark, manifest), "run_id").selectExpr(
        "run_id",
        "point_index",
        "block",
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
    frame = spark.read.schema(ddl(SAMPLES)).parquet(
        *compared_files(manifest, "samples")
    )
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
    return spark.read.schema(ddl(ATTEMPTS)).parquet(
        *compared_files(manifest, "attempts")
    )


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
                "window_start": window[0],
                "window_end": window[1],
                "bin_ns": bin_ns(window),
            }
        )
    return spark.createDataFrame(pa.Table.from_pylist(rows)).hint("broadcast")


def aggregates(expressions: dict[str, str]) -> list[Any]:
    """Return named columns of SQL expressions."""
    from pyspark.sql import functions as F

    return [F.expr(sql).alias(name) for name, sql in expressions.items()]


def compared_files(
    manifest: Manifest, kind: Literal["requests", "samples", "attempts"]
) -> list[str]:
    """Return the files of the compared runs, each once, of the right schema version.

    The runs of an arm in a session of episodes share a file.

    :raises RecordingError: naming the first that is missing or of another version.
    """
    first: dict[str, Run] = {}
    for run in manifest.runs_compared:
        first.setdefault(str(getattr(run, kind)), run)
    paths = [(run, manifest.directory / file) for file, run in first.items()]
    # A footer is a read that waits for its disk, or for a network: many at a time.
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return list(pool.map(_checked, *zip(*paths, strict=True)))


def _checked(run: Run, path: Path) -> str:
    """Return the path of a run's file whose footer names the right schema."""
    if not path.is_file():
        raise RecordingError(f"{path}: there is no such file (run {run.run_id})")
    found = (pq.read_metadata(path).metadata or {}).get(_SCHEMA_KEY)
    if found != str(SCHEMA).encode():
        raise RecordingError(f"{path}: schema {found!r} found, {SCHEMA} expected")
    return str(path.resolve())
