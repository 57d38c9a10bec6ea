"""A local analysis on a machine with unsuitable settings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark_analysis.recordings.java import java_home, version_of
from spark_analysis.report.content.schema import Results

HOST = ("unshare", "--uts", "--map-root-user", "--user", "sh", "-c")
# Sets a host name that does not resolve, for the command only.
UNRESOLVED = 'hostname nowhere.invalid && exec "$@"'


def renames_hosts() -> bool:
    """Return whether this kernel lets a user change a process's host name."""
    command = [*HOST, "hostname nowhere.invalid"]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def shim_of(java: Path, folder: Path) -> Path:
    """Make a version manager's shim: a program elsewhere that starts a runtime."""
    folder.mkdir()
    shim = folder / "java"
    shim.write_text(f'#!/bin/sh\nexec "{java}" "$@"\n')
    shim.chmod(0o755)
    return folder


def test_a_shim_is_asked_where_its_runtime_lies(tmp_path: Path) -> None:
    java = java_home(os.environ) / "bin" / "java"
    shims = shim_of(java, tmp_path / "shims")
    found = java_home({"PATH": f"{shims}:/usr/bin:/bin"})
    assert found != tmp_path
    assert version_of(found / "bin" / "java") >= 17


@pytest.mark.spark
def test_strangers_variables_names_and_locales_change_nothing(
    small_run: Path, small_results: Results, tmp_path: Path
) -> None:
    """All settings in one test, since Spark starts slowly; each failed alone."""
    odd = tmp_path / "[x]{a,b} ü*"
    shutil.copytree(small_run, odd)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.master yarn\n")
    (conf / "spark-env.sh").write_text("exit 3\n")
    shims = shim_of(java_home(os.environ) / "bin" / "java", tmp_path / "shims")
    hostile = {
        **{name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ},
        "PATH": f"{shims}:{os.environ['PATH']}",
        "SPARK_HOME": "/nonexistent",
        "SPARK_CONF_DIR": str(conf),
        "SPARK_REMOTE": "sc://nowhere.invalid",
        "SPARK_LOCAL_DIRS": "/nonexistent/here",
        "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell",
        "PYSPARK_GATEWAY_PORT": "1",
        "PYSPARK_GATEWAY_SECRET": "x",
        "HADOOP_CONF_DIR": "/nonexistent",
        "MPLBACKEND": "module://nowhere",
        "LC_ALL": "POSIX",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    command = [sys.executable, "-m", "doorkeeper", "analyze", str(odd)]
    if renames_hosts():
        command = [*HOST, UNRESOLVED, "sh", *command]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        env=hostile,
        cwd=Path(__file__).parents[2],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = (odd / "report" / "results.json").read_bytes()
    assert json.loads(found) == small_results
    (odd / "report" / "index.html").read_text(encoding="utf-8")
