"""The runner: order, identity, retries, and resuming after a kill."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from broker.observation.recording.recording import MEASURES, SampleRow
from experiments.design.config import Experiment, ExperimentError, parse
from experiments.design.points import planned_points
from experiments.load.trace import Trace
from experiments.records import recording
from experiments.records.recording import STAMPS, Results
from experiments.running import runner
from experiments.running.executors.sequential import Sequential
from experiments.running.progress import ProgressBar, Watcher
from experiments.worlds.world import RunFiles, RunResult, Trial, WorldError
from tests.experiments.unwatched import Unwatched

UNWATCHED = Unwatched()


def experiment(**header: Any) -> Experiment:
    return parse(
        {
            "experiment": {
                "name": "small",
                "seed": 3,
                "blocks": 3,
                "baseline": "fifo",
                **header,
            },
            "workload": {
                "duration_s": 0.1,
                "traffic": [
                    {
                        "name": "meta",
                        "arrivals": {"kind": "poisson", "rate_per_s": 200},
                        "request": {"api": "metadata"},
                    }
                ],
            },
            "arms": [
                {"name": "fifo", "scheduler": "fifo"},
                {"name": "wfq", "scheduler": "wfq"},
                {"name": "priority", "scheduler": "priority"},
            ],
            "limits": {"retries": 1},
        }
    )


class Killed(BaseException):
    """Represents the end of the process; no handler catches it."""


def good(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
    """Answer every request after a millisecond."""
    intended = trace.table["intended_ns"].to_numpy()
    results = Results(
        columns=dict.fromkeys(STAMPS, intended + 1000000)
        | {name: np.zeros(len(trace), np.int64) for name in MEASURES},
        error_code=np.zeros(len(trace), np.int16),
        ended_ns=10**9,
    )
    labels = trial.labels("fake")
    table = recording.requests_table(labels, trace, results, timeout_ns=10**10)
    recording.write(table, out.requests)
    samples = {name: [] for name in SampleRow._fields}
    recording.write(recording.samples_table(labels, samples), out.samples)
    return RunResult(
        valid=True,
        trace_sha256=trace.sha256,
        counts=recording.counts(table, len(trace)),
        lateness_ns={"p50": 1, "p99": 2, "max": 3},
    )


Play = Callable[[Trial, Trace, RunFiles], RunResult]


@dataclass
class FakeWorld:
    """Returns scripted results, and records the trials."""

    play: Play = good
    name: str = "fake"
    ran: list[str] = field(default_factory=list)
    traces: list[tuple[int, str]] = field(default_factory=list)

    def environment(self) -> Mapping[str, Any]:
        return {"pinned": False}

    def estimate_s(self, experiment: Experiment) -> float:
        return 0.01

    def run(self, trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        self.ran.append(trial.run_id)
        self.traces.append((trial.block, trace.sha256))
        return self.play(trial, trace, out)


def run(
    directory: Path,
    world: FakeWorld,
    *,
    resume: bool = False,
    watcher: Watcher = UNWATCHED,
    **header: Any,
) -> Any:
    return runner.run(
        experiment(**header),
        directory,
        world,
        Sequential(world),
        watcher,
        resume=resume,
    )


def manifest(directory: Path) -> Any:
    return json.loads((directory / "manifest.json").read_text())


def test_every_block_runs_every_arm_once_and_the_baseline_again() -> None:
    trials = list(runner.plan(planned_points(experiment())))
    for block in range(3):
        arms = [trial.arm.name for trial in trials if trial.block == block]
        assert sorted(arms) == ["fifo", "fifo-again", "priority", "wfq"]
        orders = [trial.order for trial in trials if trial.block == block]
        assert orders == [0, 1, 2, 3]


def test_the_order_of_arms_is_shuffled_by_the_seed_alone() -> None:
    def orders(seed: int) -> list[str]:
        return [
            trial.arm.name
            for trial in runner.plan(planned_points(experiment(seed=seed, blocks=20)))
        ]

    assert orders(3) == orders(3)
    assert orders(3) != orders(4)


def test_every_arm_stands_in_every_place_about_equally_often() -> None:
    blocks = 400
    trials = runner.plan(planned_points(experiment(blocks=blocks)))
    places = Counter((trial.arm.name, trial.order) for trial in trials)
    # Binomial(400, 1/4): mean 100, standard deviation 8.7; the tolerance is five.
    assert len(places) == 16
    assert all(abs(count - blocks / 4) < 44 for count in places.values()), places


def test_all_arms_of_a_block_replay_the_same_trace_and_record_its_hash(
    tmp_path: Path,
) -> None:
    world = FakeWorld()
    assert run(tmp_path, world) == []
    found = manifest(tmp_path)
    stored = {entry["block"]: entry["sha256"] for entry in found["traces"]}
    assert len(set(stored.values())) == 3
    assert Counter(world.traces) == dict.fromkeys(stored.items(), 4)
    assert all(each["trace_sha256"] == stored[each["block"]] for each in found["runs"])


def test_a_finished_experiment_lists_files_that_are_there(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld())
    found = manifest(tmp_path)
    assert found["finished"] is not None
    for each in found["runs"]:
        table = pq.read_table(tmp_path / each["requests"])
        assert table.schema.metadata[b"doorkeeper.schema"] == b"1"
        assert set(table["run_id"].to_pylist()) == {each["run_id"]}
        assert table.num_rows == each["counts"]["sent"] == each["counts"]["ok"]
        assert (tmp_path / each["samples"]).exists()
    assert not list(tmp_path.rglob("*.partial"))


def test_a_directory_in_use_is_refused_without_resume(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld())
    with pytest.raises(ExperimentError, match="holds an experiment; give --resume"):
        run(tmp_path, FakeWorld())
    with pytest.raises(ExperimentError, match="holds the experiment 'small'"):
        run(tmp_path, FakeWorld(), resume=True, name="other")


# Runs of three blocks of four. Quick: the first, inner ones, the last of a block.
@pytest.mark.parametrize(
    "when",
    [
        pytest.param(when, marks=() if when in {0, 3, 4, 6, 11} else pytest.mark.slow)
        for when in range(12)
    ],
)
@pytest.mark.parametrize("half_written", [False, True])
def test_killed_in_any_run_it_goes_on_without_repeating_a_done_block(
    tmp_path: Path, when: int, half_written: bool
) -> None:
    calls = iter(range(99))

    def killed(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        if next(calls) == when:
            if half_written:
                out.requests.write_bytes(b"PAR1 torn")
            raise Killed
        return good(trial, trace, out)

    first = FakeWorld(killed)
    with pytest.raises(Killed):
        run(tmp_path, first)
    assert manifest(tmp_path)["finished"] is None
    second = FakeWorld()
    assert run(tmp_path, second, resume=True) == []
    assert [*first.ran[: when // 4 * 4], *second.ran] == [
        trial.run_id for trial in runner.plan(planned_points(experiment()))
    ]
    found = manifest(tmp_path)
    assert len(found["runs"]) == 12
    assert all(each["valid"] for each in found["runs"])
    assert not list(tmp_path.rglob("*.partial"))


def test_resuming_a_finished_experiment_runs_nothing(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld())
    again = FakeWorld()
    assert run(tmp_path, again, resume=True) == []
    assert again.ran == []


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(it): it.read_bytes() for it in sorted(directory.rglob("*")) if it.is_file()
    }


def test_an_edited_config_is_refused_with_the_difference(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld())
    before, again = files(tmp_path), FakeWorld()
    with pytest.raises(ExperimentError, match=r"experiment.seed: \d recorded, 4 now"):
        run(tmp_path, again, resume=True, seed=4)
    assert again.ran == []
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"schema": 1, "na',
        bytes(64),
        b"[1, 2]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"name": "t", "created": "", "config": {}, "traces": [], "runs": [1]}',
    ],
)
def test_a_damaged_manifest_stops_a_resumption(tmp_path: Path, content: bytes) -> None:
    run(tmp_path, FakeWorld())
    (tmp_path / "manifest.json").write_bytes(content)
    before = files(tmp_path)
    with pytest.raises(ExperimentError, match="damaged, no manifest") as fault:
        run(tmp_path, FakeWorld(), resume=True)
    assert len(str(fault.value).splitlines()) == 1
    assert files(tmp_path) == before


def test_changed_code_repeats_every_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, FakeWorld())
    again = FakeWorld()
    monkeypatch.setattr(runner, "code_sha256", lambda: "other")
    said = io.StringIO()
    with ProgressBar(Console(file=said)) as bar:
        assert run(tmp_path, again, resume=True, watcher=bar) == []
    assert "\n12 recorded runs no longer count: other code" in said.getvalue()
    assert len(again.ran) == 12
    found = manifest(tmp_path)
    stale = [each for each in found["runs"] if not each["valid"]]
    assert {each["reason"] for each in stale} == {
        "superseded: code, experiment or calibration changed"
    }
    valid = [(each["block"], each["arm"]) for each in found["runs"] if each["valid"]]
    assert len(valid) == len(set(valid)) == 12


def test_more_blocks_add_cells_and_repeat_none(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld(), blocks=2)
    more = FakeWorld()
    run(tmp_path, more, resume=True, blocks=3)
    assert len(more.ran) == 4
    assert all(run_id.startswith("b002-") for run_id in more.ran)


def late(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
    """Return a late first attempt of each wfq trial, and no valid run of priority."""
    result = good(trial, trace, out)
    if trial.arm.name == "wfq" and trial.attempt == 0:
        late_ns = {"p50": 1, "p99": 3_000_000, "max": 3_000_000}
        return replace(
            result, valid=False, reason="generator late", lateness_ns=late_ns
        )
    if trial.arm.name == "priority":
        return RunResult(valid=False, reason="broker ended with 3", recorded=False)
    return result


def test_a_late_run_is_kept_discarded_and_repeated(tmp_path: Path) -> None:
    missing = run(tmp_path, FakeWorld(late))
    runs = manifest(tmp_path)["runs"]
    of_block = [each for each in runs if each["block"] == 1]
    wfq = [each for each in of_block if each["arm"] == "wfq"]
    assert [(each["run_id"], each["valid"]) for each in wfq] == [
        ("b001-wfq-t0", False),
        ("b001-wfq-t1", True),
    ]
    why = "discarded: generator late: p99 3.00 ms > 1 ms (arm wfq)"
    assert {each["reason"] for each in of_block if not each["valid"]} <= {
        why,
        "broker ended with 3",
    }
    assert wfq[0]["reason"] == why
    assert (tmp_path / wfq[0]["requests"]).exists()
    assert sorted(each["arm"] for each in of_block if each["valid"]) == [
        "fifo",
        "fifo-again",
        "wfq",
    ]
    assert {each.arm for each in missing} == {"priority"}


def test_a_run_without_rows_is_repeated_alone_up_to_its_retries(tmp_path: Path) -> None:
    def broken(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        if trial.arm.name == "priority":
            return RunResult(valid=False, reason="broker ended with 3", recorded=False)
        return good(trial, trace, out)

    missing = run(tmp_path, FakeWorld(broken))
    assert missing[0].reason == "broker ended with 3"
    runs = [each for each in manifest(tmp_path)["runs"] if each["block"] == 0]
    tries = [each for each in runs if each["arm"] == "priority"]
    assert [each["attempt"] for each in tries] == [0, 1]
    assert [each["requests"] for each in tries] == [None, None]
    assert len(runs) == 3 + 2


def test_a_world_in_which_nothing_can_run_ends_the_experiment_at_once(
    tmp_path: Path,
) -> None:
    def refused(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        raise WorldError("arm 'wfq' cannot start: no such option")

    world = FakeWorld(refused)
    with pytest.raises(WorldError, match="no such option"):
        run(tmp_path, world)
    assert len(world.ran) == 1
    assert manifest(tmp_path)["runs"] == []
    assert run(tmp_path, FakeWorld(), resume=True) == []


def test_a_failed_cell_is_not_done_and_is_tried_again_on_resume(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld(late))
    again = FakeWorld()
    assert run(tmp_path, again, resume=True) == []
    assert {it.partition("-t")[0] for it in again.ran} == {
        f"b00{block}-priority" for block in range(3)
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sent": -1}, "counts do not add up"),
        ({"ok": -1}, "counts do not add up"),
        ({"unfinished": 1}, "counts do not add up"),
    ],
)
def test_a_run_whose_counts_do_not_add_up_does_not_count(
    tmp_path: Path, change: dict[str, int], reason: str
) -> None:
    def leaking(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        result = good(trial, trace, out)
        counts = Counter(result.counts)
        counts.update(change)
        return replace(result, counts=dict(counts))

    missing = run(tmp_path, FakeWorld(leaking), blocks=1)
    assert len(missing) == 4
    assert all(each.reason.startswith(reason) for each in missing)


def test_a_run_of_another_trace_does_not_count(tmp_path: Path) -> None:
    def confused(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        return replace(good(trial, trace, out), trace_sha256="other")

    missing = run(tmp_path, FakeWorld(confused), blocks=1)
    assert missing[0].reason.startswith("replayed the trace other, not ")
