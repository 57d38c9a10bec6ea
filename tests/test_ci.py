"""Tests that `.ci/run` skips when time is short, and its message."""

import os
import subprocess
from pathlib import Path

import pytest

CI = Path(__file__).parents[1] / ".ci" / "run"
ALWAYS = ["check", "kafka-tools", "browser", "test", "test-kafka"]


def _run(directory: Path, gone_s: int, failing: str = "") -> tuple[int, list[str], str]:
    """Run `.ci/run` with a fake `make`; return status, targets, stderr."""
    make = directory / "make"
    make.write_text(f'#!/bin/sh\necho "$1"\ntest "$1" != "{failing}"\n')
    make.chmod(0o755)
    # Bash continues to count from a given SECONDS.
    environment = {
        "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
        "SECONDS": str(gone_s),
    }
    ran = subprocess.run(
        ["bash", str(CI)], env=environment, capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stdout.split(), ran.stderr


def test_slow_tests_run_while_half_of_the_time_is_left(tmp_path: Path) -> None:
    assert _run(tmp_path, 0) == (0, [*ALWAYS, "test-slow"], "")
    assert _run(tmp_path, 44 * 60) == (0, [*ALWAYS, "test-slow"], "")


def test_slow_tests_are_left_out_with_a_word_where_they_might_not_end(
    tmp_path: Path,
) -> None:
    status, targets, errors = _run(tmp_path, 46 * 60)
    assert (status, targets) == (0, ALWAYS)
    assert "make test-slow is left out: 46 minutes are gone" in errors


@pytest.mark.parametrize("failing", [*ALWAYS, "test-slow"])
def test_a_failing_step_fails_the_run(tmp_path: Path, failing: str) -> None:
    targets = [*ALWAYS, "test-slow"]
    status, ran, _ = _run(tmp_path, 0, failing)
    assert (status != 0, ran) == (True, targets[: targets.index(failing) + 1])
