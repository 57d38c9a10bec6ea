"""A real Spark cluster on the loopback interface: one master, some workers.

The daemons start through the ``spark-class`` of the installed pyspark, as in Spark's
own scripts, on ports that the system chooses. Each daemon leads a process group, so
that it and its children are always killed at the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from spark_analysis.recordings.java import java_home

_DEPLOY = "org.apache.spark.deploy"
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_START_TIMEOUT_S = 60.0


@contextlib.contextmanager
def cluster(scratch: Path, workers: int, environ: Mapping[str, str]) -> Iterator[str]:
    """Start a master and its workers with one core each; yield the master's URL."""
    web = ["--webui-port", "0"]
    host = ["--host", "127.0.0.1", "--port", "0"]
    with contextlib.ExitStack() as daemons:
        master = daemons.enter_context(
            _daemon(scratch / "master", "master.Master", [*host, *web], environ)
        )
        url = _said(master, r"Starting Spark master at (spark://\S+)")
        size = ["--cores", "1", "--memory", "512m"]
        logs = []
        for number in range(workers):
            here = scratch / f"worker-{number}"
            arguments = [*host, *web, *size, "--work-dir", str(here), url]
            logs.append(
                daemons.enter_context(
                    _daemon(here, "worker.Worker", arguments, environ)
                )
            )
        for log in logs:
            _said(log, r"Successfully registered with master (\S+)")
        yield url


@contextlib.contextmanager
def _daemon(
    directory: Path, name: str, arguments: list[str], environ: Mapping[str, str]
) -> Iterator[Path]:
    """Run one daemon; yield its log file."""
    directory.mkdir()
    log = directory / "log"
    environment = {
        **environ,
        "JAVA_HOME": str(java_home(environ)),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [_CLASS, f"{_DEPLOY}.{name}", *arguments],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _said(log: Path, pattern: str) -> str:
    """Wait until a daemon's log matches a pattern; return the match."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"no {pattern!r} in\n{log.read_text(errors='replace')}")
