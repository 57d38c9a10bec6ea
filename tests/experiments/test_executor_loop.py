"""Behaviour common to all executors: order of runs, errors, refused runs."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from doorkeeper import cli
from experiments.design.points import planned_points
from experiments.running import runner
from experiments.running.executors.spark import Spark, stream
from experiments.running.trials import Failure, Outcome, TrialFailed, Work
from experiments.worlds.world import RunResult, Trial, WorldError
from tests.experiments.small_sweep import built, config_file


@dataclass
class Twice:
    """Yields each trial, and repeats it after its first outcome, before the others."""

    waiting: deque[Work]
    handed: list[str] = field(default_factory=list)

    def next(self) -> Work | None:
        if not self.waiting:
            return None
        work = self.waiting.popleft()
        self.handed.append(work.trials[0].run_id)
        return work

    def started(self, trial: Trial) -> None:
        assert trial.run_id == self.handed[-1]

    def take(self, outcome: Outcome) -> None:
        if outcome.trial.attempt == 0:
            again = replace(outcome.trial, attempt=1)
            self.waiting.appendleft(Work(rounds=((again,),)))


def outcomes_of(work: Work) -> tuple[Outcome, ...]:
    (trial,) = work.trials
    outcome = Outcome(
        trial=trial,
        result=RunResult(valid=True),
        requests=None,
        samples=None,
        trace=None,
        trace_sha256="",
        trace_requests=0,
        started="",
        seconds=0.0,
        load_average=0.0,
    )
    return (outcome,)


@pytest.mark.parametrize("room", [1, 2, 5])
def test_repetitions_come_next_and_even_after_the_last_trial(room: int) -> None:
    trials = list(runner.plan(planned_points(built())))[:4]
    todo = Twice(deque(Work(rounds=((trial,),)) for trial in trials))
    with ThreadPoolExecutor(room) as threads:
        for (outcome,) in stream(
            lambda work: threads.submit(outcomes_of, work), todo, lambda: room
        ):
            todo.take(outcome)
    expected = {f"{trial.stem}{attempt}" for trial in trials for attempt in (0, 1)}
    assert len(todo.handed) == 8
    assert set(todo.handed) == expected
    first = [f"{trials[0].stem}0", f"{trials[0].stem}1"]
    assert room > 1 or todo.handed[:2] == first


def test_a_world_that_cannot_run_is_distinguished_from_a_cell_that_raises() -> None:
    with ThreadPoolExecutor(1) as threads:
        todo = Twice(deque([Work(rounds=((first_trial(),),))]))
        failure = Failure(message="no broker", ours=False)
        with pytest.raises(WorldError, match="no broker"):
            next(stream(lambda _: threads.submit(lambda: failure), todo, lambda: 1))


def first_trial() -> Any:
    return next(runner.plan(planned_points(built())))


def test_a_cluster_that_cannot_be_reached_is_said_so() -> None:
    def connect() -> Any:
        raise RuntimeError(
            "An error occurred while calling o1.it.\n: java.io.IOException: no route\n"
        )

    todo = Twice(deque([Work(rounds=((first_trial(),),))]))
    with pytest.raises(
        TrialFailed, match=r"^no session: java\.io\.IOException: no route$"
    ):
        next(Spark("model", connect).outcomes(todo))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--world", "live", "--executor", "local"], "runs of the live world measure"),
        (["--executor", "spark"], "--executor spark and --master URL belong together"),
        (["--master", "spark://x:1"], "--executor spark and --master URL belong"),
        (
            ["--executor", "spark", "--master", "local[1]", "--workers", "2"],
            "--workers is for --executor local",
        ),
    ],
)
def test_an_executor_that_does_not_fit_is_refused(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    config = config_file(tmp_path)
    out = ["--out", str(tmp_path / "run")]
    found = CliRunner().invoke(
        cli.main, ["experiment", "run", str(config), *out, *arguments]
    )
    assert found.exit_code == 2
    assert message in found.output
    assert not (tmp_path / "run").exists()
