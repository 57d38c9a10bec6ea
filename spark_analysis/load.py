"""Read the recorded requests and samples of the compared runs, schema in hand.

Spark infers nothing here: an arm called "1" stays a word, and a file of another schema
version is refused by its footer before a row is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

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


def read_requests(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return every request of the compared runs, with latency and phases derived.

    ``latency_ns`` is a double: infinite where there was no good answer in time.
    Nanoseconds below 2^53 (104 days) are exact in it.
    """
    frame = spark.read.schema(REQUESTS).parquet(*compared_files(manifest, "requests"))
    latency = "client_done_ns - intended_ns"
    lost = "double('Infinity')"
    return frame.selectExpr(
        "run_id",
        "block",
        "arm",
        "class",
        "intended_ns",
        "outcome",
        "xxhash64(request_id, intended_ns, class, flow, api_key, size_bytes) AS print",
        f"IF(outcome = 'ok', double({latency}), {lost}) AS latency_ns",
        *(f"{phase.sql} AS {phase.name}" for phase in PHASES),
    )


def read_samples(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return the queue samples of the compared runs."""
    return spark.read.schema(SAMPLES).parquet(*compared_files(manifest, "samples"))


def in_window(manifest: Manifest) -> str:
    """Return SQL for "meant to be sent in the window": what cuts the warm-up off."""
    start, end = manifest.window_ns
    return f"intended_ns >= {start} AND intended_ns < {end}"


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
