"""Console output while an experiment runs."""

from __future__ import annotations

import io

from rich.console import Console

from experiments.design.config import Experiment, parse
from experiments.design.points import PlannedPoint
from experiments.running.progress import ProgressBar
from experiments.worlds.world import RunResult, Trial
from tests.experiments.test_sessions import content

LATE = "discarded: generator late: p99 9.00 ms > 1 ms (arm wfq)"


def watched(experiment: Experiment, reasons: list[list[str]]) -> list[str]:
    """Return the output for runs of one arm, given the reasons of each block."""
    said = io.StringIO()
    with ProgressBar(Console(file=said, width=120)) as bar:
        bar.planned(len(reasons), 0.1, lanes=1, stale=0)
        for block, of_block in enumerate(reasons):
            for attempt, reason in enumerate(of_block):
                trial = Trial(
                    point=PlannedPoint(experiment=experiment),
                    block=block,
                    arm=experiment.arms[0],
                    order=0,
                    attempt=attempt,
                )
                bar.started(trial)
                bar.ended(trial, RunResult(valid=not reason, reason=reason))
    return said.getvalue().splitlines()[1:]


def test_a_run_that_does_not_count_has_a_line() -> None:
    data = content()
    del data["sessions"]
    data["experiment"]["blocks"] = 6
    found = watched(parse(data), [["generator late: p99 9 ms", ""]])
    assert found[0].startswith("block 1/6, ")
    assert found[1:] == ["b000-fifo-t0 does not count: generator late: p99 9 ms"]


def test_runs_that_do_not_count_have_a_line_for_a_session() -> None:
    """Each session has two rounds."""
    reasons = [[LATE, LATE, ""], [LATE, "broker died", ""], [LATE]]
    found = watched(parse(content()), reasons)
    assert [line.partition(", ")[0] for line in found] == [
        "session 1/3",
        "runs that do not count: 3 (discarded: generator late)",
        "runs that do not count: 1 (broker died)",
        "session 2/3",
        "runs that do not count: 1 (discarded: generator late)",
    ]
