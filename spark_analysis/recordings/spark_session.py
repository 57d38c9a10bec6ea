"""One Spark session: on this machine, on a cluster, or at a Spark Connect server.

Spark's defaults are for terabytes; on one machine 200 shuffle partitions cost more than
all the arithmetic. On ``spark://`` and ``sc://`` the same queries run with Spark's own
number of partitions. Recordings must be readable by every worker.

Java's output is held back and printed only if the analysis fails, because its start-up
messages are no part of a report, but a stack trace is.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from spark_analysis.recordings.contract import DamagedFile
from spark_analysis.recordings.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
CONNECT: Final = "sc://"
_LACKING: Final = re.compile(
    "No space left on device|File too large|Disk quota exceeded|OutOfMemoryError"
)
# Variables that configure another Spark; a local analysis has its own settings.
_OF_OTHERS: Final = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # More groups than the 128 at which Spark changes from hashing to sorting.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Refuse a damaged page of a recording instead of misreading it.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
}
# A running server has set all other keys at its start.
_CONNECT: Final = {"spark.sql.session.timeZone": "UTC"}
# With fewer rows Java's optimising compiler takes longer than it saves (measured: a
# third of the whole analysis).
ROWS_SMALL: Final = 5_000_000
_LOCAL: Final = {
    # More partitions cost more than all the arithmetic. A cluster has more cores and
    # Spark's default number, and adaptive execution merges small partitions.
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class SparkFailed(Exception):
    """Spark does not start, or lacks a requirement; the message names it."""


@contextlib.contextmanager
def spark_session(
    master: str = LOCAL, packages: Sequence[Path] = (), *, rows: int = 0
) -> Iterator[SparkSession]:
    """Start a session, and stop it at the end; a process has one at a time.

    ``packages`` are the directories of packages for the workers of a cluster, which
    receive them; workers on this machine share its packages. ``rows`` is the number of
    requests that the session will read, if known.

    :raises spark_analysis.recordings.java.NoJava: if nothing can run Spark.
    :raises SparkFailed: if it does not start.
    :raises DamagedFile: if Spark could not read a file of a recording.
    """
    local, remote = master.startswith("local"), master.startswith(CONNECT)
    with tempfile.TemporaryFile() as chatter, _environment(master):
        try:
            with _standard_error_to(chatter.fileno()):
                session = _start(master, rows)
        except Exception as error:
            chatter.seek(0)
            line = _error_line(chatter.read().decode(errors="replace")) or _error_line(
                str(error)
            )
            raise SparkFailed(f"Spark at {master} does not start: {line}") from error
        try:
            idle = local or remote or not packages
            sent = contextlib.nullcontext() if idle else _sent(packages, session)
            with sent, reading():
                yield session
        except DamagedFile:
            raise
        except Exception as error:
            if (lacking := _LACKING.search(str(error))) is not None:
                raise SparkFailed(
                    f"Spark cannot go on: {lacking[0]} (its files are in "
                    f"{tempfile.gettempdir()})"
                ) from error
            # Spark's output, held back so far, may contain the reason.
            chatter.seek(0)
            sys.stderr.write(chatter.read().decode(errors="replace"))
            raise
        finally:
            session.stop()


def settings(master: str, rows: int = 0) -> dict[str, str]:
    """Return the settings of a session on this machine, a cluster, or a server."""
    if master.startswith(CONNECT):
        return dict(_CONNECT)
    if not master.startswith("local"):
        return dict(_SETTINGS)
    found = _SETTINGS | _LOCAL | {"spark.local.dir": tempfile.gettempdir()}
    if rows > ROWS_SMALL:
        del found["spark.driver.extraJavaOptions"]
    return found


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Convert Spark's error about a file of a recording into one that names the file.

    :raises DamagedFile: if Spark could not read it.
    """
    try:
        yield
    except Exception as error:
        unreadable = _unreadable(error)
        if unreadable is None:
            raise
        raise unreadable from error


@contextlib.contextmanager
def _environment(master: str) -> Iterator[None]:
    """Set the environment of Spark's launcher until the session ends.

    A Spark Connect server needs neither Java nor workers here. Without
    ``PYSPARK_PYTHON`` the workers of other sessions would run the ``python3`` on PATH.
    A cluster uses the variables of the machine's own Spark.

    A local session ignores them: another Spark's home and settings are no part of this
    analysis. The driver binds to the loopback address, because Java otherwise looks up
    the machine's host name, which may not resolve. File names are bytes to Java in a
    locale without an encoding, so the locale is set to one with UTF-8.
    """
    before = dict(os.environ)
    if master.startswith(CONNECT):
        wanted = {}
    else:
        wanted = _of_launcher(before, local=master.startswith("local"))
    if master.startswith(("local", CONNECT)):
        for name in before:
            if name.startswith(_OF_OTHERS):
                del os.environ[name]
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _of_launcher(before: Mapping[str, str], *, local: bool) -> dict[str, str]:
    wanted = {"JAVA_HOME": str(java_home(before)), "PYSPARK_PYTHON": sys.executable}
    if local:
        wanted |= {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "LC_ALL": "C.UTF-8",
        }
    else:
        wanted |= {"PYSPARK_PYTHON": before.get("PYSPARK_PYTHON", sys.executable)}
    return wanted


def _error_line(text: str) -> str:
    """Return the line with the error from Java's and Spark's output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    faults = [it for it in lines if re.search(r"(Error|Exception|^\[[A-Z_.]+\])", it)]
    return (faults or lines or [""])[0]


def _unreadable(error: BaseException) -> DamagedFile | None:
    """Convert Spark's error into that of a recording, if it names one of its files."""
    text = str(error)
    file = re.search(r"\b([a-z][a-z0-9+.-]*:/[^\n]*?\.parquet)", text)
    if file is None or not re.search(r"FAILED_READ_FILE|PATH_NOT_FOUND|parquet", text):
        return None
    path = re.sub("^file:/*", "/", unquote(file[1]))
    causes = re.findall(r"Caused by: (.*)", text)
    why = causes[-1] if causes else _error_line(text)
    return DamagedFile(path, f"damaged, or no Parquet file: {why}")


def _start(master: str, rows: int) -> SparkSession:
    with _old_pandas_preferred():
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("doorkeeper")
        if master.startswith(CONNECT):
            builder = builder.remote(master)
        else:
            builder = builder.master(master)
        for key, value in settings(master, rows).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


@contextlib.contextmanager
def _old_pandas_preferred() -> Iterator[None]:
    """Ignore Spark's preference for pandas 2: only Arrow data is exchanged here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        yield


@contextlib.contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    """Redirect standard error of this process and its new children."""
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
