"""Executors: identical bytes from each, and a clean end after a failure."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from doorkeeper.cli import main
from experiments.design.config import Experiment
from experiments.design.points import planned_points
from experiments.running import runner
from experiments.running.executor import Executor
from experiments.running.executors.local import Local
from experiments.running.executors.sequential import Sequential
from experiments.running.executors.spark import attempt_there
from experiments.running.trials import Failure, Outcome, TrialFailed, Work
from experiments.running.unit_runner import attempt
from experiments.worlds.model.model_world import Model
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import World
from tests.experiments.small_sweep import built, config_file
from tests.experiments.spark_cluster import cluster
from tests.experiments.unwatched import Unwatched

ROOT = Path(__file__).parent.parent.parent


def run(
    experiment: Experiment, directory: Path, executor: Executor, *, resume: bool = False
) -> None:
    world = Model(lambda: None)
    assert not runner.run(
        experiment, directory, world, executor, Unwatched(), resume=resume
    )


def rows(directory: Path) -> dict[str, bytes]:
    """Return the content of every file of a run directory except the manifest."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*.parquet"))
    }


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("sequential")
    run(built(), directory, Sequential(Model(lambda: None)))
    found = rows(directory)
    # 4 points x 2 blocks x 3 arms, with requests and samples; traces of two loads and
    # two blocks.
    assert len(found) == 2 * 24 + 4
    return found


# ---- processes ----


def spawned() -> list[psutil.Process]:
    """Return the running pool processes of this process."""
    found = []
    for child in psutil.Process().children():
        # A process that has just been killed has no command line.
        with contextlib.suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_several_processes_record_the_same_bytes(
    tmp_path: Path, one_by_one: dict[str, bytes]
) -> None:
    run(built(), tmp_path, Local("model", 3))
    assert rows(tmp_path) == one_by_one
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert found["executor"] == "local"
    assert [each["cell"] for each in found["runs"]] == [
        each["cell"] for each in found["plan"]
    ]


class Cut:
    """An executor whose process ends after a few outcomes."""

    name = "cut"
    lanes: int | None = 1

    def __init__(self, executor: Executor, outcomes: int) -> None:
        self._executor = executor
        self._outcomes = outcomes

    def outcomes(self, todo: Any) -> Iterator[tuple[Outcome, ...]]:
        with contextlib.closing(self._executor.outcomes(todo)) as outcomes:
            for _ in range(self._outcomes):
                yield next(outcomes)
        raise KeyboardInterrupt


def test_one_executor_finishes_the_work_of_another(
    tmp_path: Path, one_by_one: dict[str, bytes]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(built(), tmp_path, Cut(Local("model", 1), 5))
    begun = rows(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(built(), tmp_path, Cut(Sequential(Model(lambda: None)), 6), resume=True)
    run(built(), tmp_path, Local("model", 2), resume=True)
    assert len(begun) < len(one_by_one)
    assert rows(tmp_path) == one_by_one
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert [each["attempt"] for each in found["runs"]] == [0] * 24


def test_virtual_cells_are_the_same_in_a_process_of_their_own(tmp_path: Path) -> None:
    experiment = built(
        experiment={
            "name": "small",
            "seed": 3,
            "blocks": 1,
            "baseline": "fifo",
            "world": "virtual",
        },
        sweep=None,
    )
    for name, executor in (
        ("here", Sequential(Virtual())),
        ("there", Local("virtual", 1)),
    ):
        world: World = Virtual()
        runner.run(
            experiment, tmp_path / name, world, executor, Unwatched(), resume=False
        )
    assert len(rows(tmp_path / "here")) == 7
    assert rows(tmp_path / "here") == rows(tmp_path / "there")


def test_a_cell_that_raises_ends_the_experiment_with_its_name(tmp_path: Path) -> None:
    # The model asserts that one worker cannot be reserved for control.
    experiment = built(
        arms=[
            {"name": "fifo", "scheduler": "fifo"},
            {"name": "own", "scheduler": "fifo", "model": {"own": ["worker"]}},
        ]
    )
    with pytest.raises(TrialFailed, match=r"(?s)p00\d-b00\d-own-t0: .*above 1"):
        run(experiment, tmp_path, Local("model", 2))
    assert not list(tmp_path.rglob("*.partial"))
    assert spawned() == []


def test_a_process_that_is_killed_ends_the_experiment_with_a_guess(
    tmp_path: Path,
) -> None:
    class Killing(Unwatched):
        """Kills a worker after the first run."""

        def ended(self, trial: Any, result: Any) -> None:
            for process in spawned():
                process.kill()

    with pytest.raises(TrialFailed, match="a process that ran trials died; was it"):
        runner.run(
            built(),
            tmp_path,
            Model(lambda: None),
            Local("model", 1),
            Killing(),
            resume=False,
        )


# ---- the command line ----


def doorkeeper(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "doorkeeper", *map(str, arguments)]


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_by_a_signal_it_leaves_no_process_and_can_be_resumed(
    tmp_path: Path, number: int
) -> None:
    out = tmp_path / "run"
    config = config_file(tmp_path, duration_s=3.0)
    command = doorkeeper("experiment", "run", config, "--out", out, "--workers", "2")
    # As in a terminal, Ctrl-C signals the whole process group, and the processes must
    # not ignore the signal, as background jobs of a shell do.
    process = subprocess.Popen(
        command,
        start_new_session=True,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        deadline = time.monotonic() + 60
        while len(list(out.glob("requests/*.parquet"))) < 2:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        workers = psutil.Process(process.pid).children(recursive=True)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.kill()
        complaint = process.communicate(timeout=20)[1]
    expected = 1 if number == signal.SIGINT else -number
    assert process.returncode == expected, complaint
    assert "Traceback" not in complaint
    assert workers
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    before = len(list(out.glob("requests/*.parquet")))
    assert before < 24
    words = ["experiment", "run", config, "--out", out, "--resume"]
    resumed = CliRunner().invoke(main, [*map(str, words), "--executor", "sequential"])
    assert resumed.exit_code == 0, resumed.output
    found = json.loads((out / "manifest.json").read_text())
    assert [each["valid"] for each in found["runs"]] == [True] * 24
    assert not list(out.rglob("*.partial"))


# ---- Spark ----


def test_a_worker_with_other_code_refuses() -> None:
    trial = next(runner.plan(planned_points(built())))
    work = Work(rounds=((trial,),))
    refused = attempt_there("another hash", "model", work)
    assert isinstance(refused, Failure)
    assert "would run other code" in refused.message
    played = attempt("model", work)
    assert not isinstance(played, Failure)
    assert played[0].trial == trial


@pytest.mark.spark
def test_a_cluster_of_two_workers_records_the_same_bytes(
    tmp_path: Path, one_by_one: dict[str, bytes]
) -> None:
    quick = "-XX:TieredStopAtLevel=1"
    confs = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": quick,
        "spark.driver.extraJavaOptions": quick,
    }
    settings = " ".join(f"--conf {key}={value}" for key, value in confs.items())
    environ = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell",
    }
    with cluster(tmp_path, 2, environ) as master:
        out = tmp_path / "run"
        command = doorkeeper(
            *("experiment", "run", config_file(tmp_path), "--out", out),
            *("--executor", "spark", "--master", master),
        )
        subprocess.run(command, check=True, cwd=ROOT, env=environ, timeout=300)
        executors = [
            each for each in tmp_path.glob("worker-*/app-*/*") if each.is_dir()
        ]
    assert len(executors) == 2
    assert rows(out) == one_by_one
    found = json.loads((out / "manifest.json").read_text())
    assert found["executor"] == "spark"
    assert found["finished"] is not None
