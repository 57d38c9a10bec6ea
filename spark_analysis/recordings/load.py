"""Read the recorded requests and samples of the compared runs, schema in hand.

Spark infers nothing here: an arm called "1" stays a word, and a file of another schema
version is refused by its footer before a row is read. Which point of a sweep a row
belongs to stands in the manifest alone; ``place`` is that point's number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from spark_analysis.contract import SCHEMA, Manifest, RecordingError
from spark_analysis.phases import PHASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REQUESTS: Final = (
    "run_id string, block bigint, arm string, request_id bigint, class string, "
    "flow string, api_key smallint, size_bytes int, intended_ns bigint, "
    "sent_ns bigint, received_ns bigint, enqueued_ns bigint, dequeued_ns bigint, "
    "local_done_ns bigint, remote_done_ns bigint, response_dequeued_ns bigint, "
    "response_sent_ns bigint, client_done_ns bigint, suspended_ns bigint, "
    "outcome string"
)
SAMPLES: Final = (
    "run_id string, block bigint, arm string, t_ns bigint, plane string, "
    "queued int, waiting int, seated int"
)
_SCHEMA_KEY: Final = b"doorkeeper.schema"
QUEUE_BINS: Final = 100
QUEUE_BIN_NS_MIN: Final = 100_000_000


def read_requests(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return every request of the compared runs, with latency and phases derived.

    ``latency_ns`` is a double: infinite where there was no good answer in time.
    Nanoseconds below 2^53 (104 days) are exact in it. ``inside`` says whether the
    request was meant to be sent in the window, which cuts the warm-up off.
    """
    frame = spark.read.schema(REQUESTS).parquet(*compared_files(manifest, "requests"))
    latency = "client_done_ns - intended_ns"
    lost = "double('Infinity')"
    return frame.join(_runs(spark, manifest), "run_id").selectExpr(
        "run_id",
        "place",
        "block",
        "arm",
        "class",
        "intended_ns",
        "intended_ns >= window_start AND intended_ns < window_end AS inside",
        "outcome",
        "xxhash64(request_id, intended_ns, class, flow, api_key, size_bytes) AS print",
        f"IF(outcome = 'ok', double({latency}), {lost}) AS latency_ns",
        *(f"{phase.sql} AS {phase.name}" for phase in PHASES),
    )


def read_samples(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return the queue samples of the compared runs, each in its bin of time."""
    frame = spark.read.schema(SAMPLES).parquet(*compared_files(manifest, "samples"))
    placed = frame.join(_runs(spark, manifest), "run_id")
    return placed.selectExpr(
        "place", "arm", "block", "plane", "queued", "waiting", "t_ns DIV bin_ns AS bin"
    )


def bin_ns(window_ns: tuple[int, int]) -> int:
    """Return how long a bin of the queue over time is."""
    return max(QUEUE_BIN_NS_MIN, window_ns[1] // QUEUE_BINS)


def _runs(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return what a row must know of its run: a small table, sent to every worker."""
    places = {point.name: place for place, point in enumerate(manifest.points)}
    rows = []
    for run in manifest.runs_compared:
        place = places[run.point]
        window = manifest.points[place].window_ns
        rows.append(
            {
                "run_id": run.run_id,
                "place": place,
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
    manifest: Manifest, kind: Literal["requests", "samples"]
) -> list[str]:
    """Return the files of the compared runs, each with the right schema version.

    :raises RecordingError: naming the first that is missing or of another version.
    """
    paths = []
    for run in manifest.runs_compared:
        path = manifest.directory / str(getattr(run, kind))
        if not path.is_file():
            raise RecordingError(f"{path}: there is no such file (run {run.run_id})")
        found = (pq.read_metadata(path).metadata or {}).get(_SCHEMA_KEY)
        if found != str(SCHEMA).encode():
            raise RecordingError(f"{path}: schema {found!r} found, {SCHEMA} expected")
        paths.append(str(path.resolve()))
    return paths
