"""A Spark program that writes topics and reads them back, like a user's program.

It runs in its own process, because the connector must be present when Spark starts
Java. It prints its results to standard output as JSON. Its arguments are the broker's
address, a directory for checkpoints, and the connector's jars. The topics ``source``,
``timed`` and ``copied`` exist before it starts.

Usage: spark_program.py BOOTSTRAP DIRECTORY JAR...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 200
# Records per micro-batch, so that a query has several batches.
BATCH = 60
# `timed` has one partition, with a record per minute from this time on.
START_MS, STEP_MS = 1_700_000_000_000, 60_000


class Program:
    """The steps, in one Spark session."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self._spark = spark
        self._broker = {"kafka.bootstrap.servers": bootstrap}
        self._directory = directory

    def write(self, topic: str, numbers: range) -> None:
        """Write numbers with keys and headers through Spark's sink."""
        from pyspark.sql import functions as f

        number = f.col("id").cast("string")
        header = f.struct(
            f.lit("of").alias("key"), number.cast("binary").alias("value")
        )
        rows = self._spark.range(numbers.start, numbers.stop).select(
            f.concat(f.lit("key "), number).alias("key"),
            f.concat(f.lit("value "), number).alias("value"),
            f.array(header).alias("headers"),
        )
        options = {**self._broker, "topic": topic, "includeHeaders": "true"}
        rows.write.format("kafka").options(**options).save()

    def read(self, topic: str, **options: str) -> list[list[Any]]:
        """Read records as (partition, offset, key, value, headers, ms)."""
        frame = (
            self._spark.read.format("kafka")
            .options(**self._broker, subscribe=topic, includeHeaders="true", **options)
            .load()
        )
        return _rows(frame)

    def copy(self, *, forever: bool = False) -> list[int]:
        """Copy ``source`` from its checkpoint; return the sizes of the batches."""
        source = (
            self._spark.readStream.format("kafka")
            .options(**self._broker, subscribe="source", includeHeaders="true")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(BATCH))
            .load()
        )
        writer = (
            source.select("key", "value", "headers")
            .writeStream.format("kafka")
            .options(**self._broker, topic="copied")
            .option("checkpointLocation", str(self._directory / "checkpoint"))
        )
        if forever:
            query = writer.trigger(processingTime="100 milliseconds").start()
            query.processAllAvailable()
            query.stop()
        else:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        sizes = [int(each["numInputRows"]) for each in query.recentProgress]
        return [size for size in sizes if size]

    def run(self) -> dict[str, Any]:
        """Return the results of each step."""
        self.write("source", range(ROWS))
        seen: dict[str, Any] = {
            "everything": self.read("source", startingOffsets="earliest"),
            "a part": self.read(
                "source",
                startingOffsets=json.dumps({"source": {"0": 3, "1": -2}}),
                endingOffsets=json.dumps({"source": {"0": 7, "1": 5}}),
            ),
            "from a time": self.read("timed", startingTimestamp=str(_ms(4))),
            "between times": self.read(
                "timed",
                startingOffsetsByTimestamp=json.dumps({"timed": {"0": _ms(2)}}),
                endingOffsetsByTimestamp=json.dumps({"timed": {"0": _ms(5)}}),
            ),
            "first": self.copy(),
        }
        self.write("source", range(ROWS, ROWS + 30))
        seen["nothing was lost"] = self.copy(forever=True)
        seen["nothing new"] = self.copy()
        return seen


def _ms(minute: int) -> int:
    return START_MS + minute * STEP_MS


def _rows(frame: DataFrame) -> list[list[Any]]:
    found = []
    for row in frame.collect():
        headers = [(each.key, each.value.decode()) for each in row.headers or []]
        key = None if row.key is None else row.key.decode()
        ms = round(row.timestamp.timestamp() * 1000)
        found.append([row.partition, row.offset, key, row.value.decode(), headers, ms])
    return sorted(found, key=lambda row: row[:2])


def main() -> None:
    """Run all steps."""
    from pyspark.sql import SparkSession

    bootstrap, directory, *jars = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    print(json.dumps(Program(spark, bootstrap, Path(directory)).run()))
    spark.stop()


if __name__ == "__main__":
    main()
