"""A full disk or an invalid output path: one error message, and no lost data."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from doorkeeper.cli import main

ROOT = Path(__file__).parents[2]
CONFIG = """
[experiment]
name = "small"
seed = 3
blocks = 3
baseline = "fifo"
world = "model"

[workload]
duration_s = 0.5

[[workload.traffic]]
name = "produce"
connections = 40
arrivals = { kind = "poisson", rate_per_s = RATE }
request = { api = "produce" }
service = { kind = "exponential", mean_us = 200.0 }

[[arms]]
name = "fifo"
scheduler = "fifo"
"""


def doorkeeper(
    *arguments: str | Path, file_bytes: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with a limit on file size, in place of a full disk."""

    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run(
        [sys.executable, "-m", "doorkeeper", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=limit,
        timeout=300,
    )


def here(*arguments: str | Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [*map(str, arguments)])


def sentence(status: int, printed: str) -> str:
    assert status in (1, 2), printed
    assert "Traceback" not in printed
    (line,) = [it for it in printed.splitlines() if it.startswith("Error: ")]
    return line


def config(at: Path, rate: float = 4000.0) -> Path:
    path = at / "config.toml"
    path.write_text(CONFIG.replace("RATE", str(rate)))
    return path


@pytest.mark.parametrize(
    ("executor", "file_bytes"),
    [
        ("sequential", 0),
        ("sequential", 60_000),
        ("local", 12_000),
    ],
)
def test_recording_stops_with_a_sentence_and_is_resumed(
    tmp_path: Path, executor: str, file_bytes: int
) -> None:
    out = tmp_path / "out"
    command = ("experiment", "run", config(tmp_path), "--out", out)
    command = (*command, "--executor", executor)
    done = doorkeeper(*command, file_bytes=file_bytes)
    assert "File too large" in sentence(done.returncode, done.stderr)
    assert "Traceback" not in done.stdout
    assert not list(tmp_path.rglob("*.partial"))
    kept = {}
    if (out / "manifest.json").exists():
        kept = {
            run["run_id"]: (out / run["requests"]).read_bytes()
            for run in json.loads((out / "manifest.json").read_text())["runs"]
        }
    resumed = (*command, "--resume", "--executor", "sequential")
    assert here(*resumed).exit_code == 0
    for run_id, content in kept.items():
        assert (out / "requests" / f"{run_id}.parquet").read_bytes() == content


@pytest.mark.parametrize("command", ["run", "analyze", "paper"])
@pytest.mark.parametrize("where", ["a file", "below a file", "too long"])
def test_a_place_where_nothing_can_be_written_is_refused_before_any_work(
    tmp_path: Path, command: str, where: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("mine")
    out = {
        "a file": tmp_path / ("taken" if command == "paper" else "file"),
        "below a file": tmp_path / "file" / "out",
        "too long": tmp_path / ("x" * 300),
    }[where]
    arguments = {
        "run": ("experiment", "run", config(tmp_path)),
        "analyze": ("analyze", tmp_path),
        "paper": ("paper", tmp_path),
    }[command]
    refused = here(*arguments, "--out", out)
    assert isinstance(refused.exception, SystemExit)
    said = sentence(refused.exit_code, refused.output)
    assert "--out" in said
    assert str(out)[:60] in said
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.spark
def test_an_analysis_without_room_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("experiment", "run", config(tmp_path), "--out", out)
    assert here(*command, "--executor", "sequential").exit_code == 0
    before = (out / "manifest.json").read_bytes()
    done = doorkeeper("analyze", out, file_bytes=20_000)
    assert "File too large" in sentence(done.returncode, done.stderr)
    assert "Traceback" not in done.stdout
    assert (out / "manifest.json").read_bytes() == before
