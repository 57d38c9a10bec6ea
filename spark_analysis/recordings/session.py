"""One Spark session, set up for small data on one machine or for a cluster by address.

Spark's defaults are meant for terabytes, and on one machine 200 shuffle partitions cost
more than all the arithmetic. On ``spark://`` the same code runs, with Spark's own
partitions; the package travels along, and the recordings must lie where every worker
can read them.

What Java prints is kept back, and shown only if the analysis fails: five lines of
start-up chatter are no part of a report, and a stack trace is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_analysis.recordings.java import java_home

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOCAL: Final = "local[*]"
_PACKAGE: Final = Path(__file__).parents[1]

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Groups are few but more than the 128 at which Spark would sort instead of hash.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
}
# On one machine, and for minutes at most: Java's optimising compiler takes longer than
# what it saves (measured: a third of the whole analysis).
_LOCAL: Final = {
    # More partitions cost more than all the arithmetic. A cluster has cores to use:
    # there it is Spark's default, and adaptive execution joins the small ones.
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@contextlib.contextmanager
def spark_session(
    master: str = LOCAL, packages: Sequence[Path] = (_PACKAGE,)
) -> Iterator[SparkSession]:
    """Start a session, and stop it at the end; there is one in a process at a time.

    ``packages`` are the directories of those that the workers of a cluster need, and
    that are sent to them; workers on this machine have what this process has.

    Sets ``JAVA_HOME`` and ``PYSPARK_PYTHON`` in this process's environment, where
    Spark's launcher looks for them: without the latter, Spark's workers would be
    whatever ``python3`` means on PATH. A cluster may have its Python elsewhere: there a
    ``PYSPARK_PYTHON`` that is set is left alone.

    :raises spark_analysis.recordings.java.NoJava: if nothing can run Spark.
    """
    local = master.startswith("local")
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    if local or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryFile() as chatter:
        try:
            with _standard_error_to(chatter.fileno()):
                session = _start(master)
            try:
                with contextlib.nullcontext() if local else _sent(packages, session):
                    yield session
            finally:
                session.stop()
        except BaseException:
            # What Spark said, kept back so far, may say why.
            chatter.seek(0)
            sys.stderr.write(chatter.read().decode(errors="replace"))
            raise


def apply_to_groups(
    frame: DataFrame,
    keys: list[str],
    function: Callable[[pa.Table], pa.Table],
    schema: str,
) -> DataFrame:
    """Call ``function`` once per group, each group one Arrow table in no order."""
    with _old_pandas_preferred():
        # Spark inspects what it is given: a partial object would confuse it.
        return frame.groupBy(*keys).applyInArrow(lambda table: function(table), schema)


def settings(master: str) -> dict[str, str]:
    """Return what Spark is told, on this machine or on a cluster."""
    return _SETTINGS | (_LOCAL if master.startswith("local") else {})


def _start(master: str) -> SparkSession:
    with _old_pandas_preferred():
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("doorkeeper")
        for key, value in settings(master).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


@contextlib.contextmanager
def _old_pandas_preferred() -> Iterator[None]:
    """Ignore that Spark would rather meet pandas 2: only Arrow crosses over here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        yield


@contextlib.contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    """Send what this process and its new children write to standard error elsewhere."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _sent(packages: Sequence[Path], session: SparkSession) -> Iterator[None]:
    """Send packages to the workers; this process keeps its own."""
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory, "doorkeeper.zip")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for package in packages:
                for path in sorted(package.rglob("*")):
                    if path.is_file() and path.suffix != ".pyc":
                        file.write(path, path.relative_to(package.parent))
        session.sparkContext.addPyFile(str(archive))
        yield
