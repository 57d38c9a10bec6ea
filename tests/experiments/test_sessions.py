"""Sessions of rounds: stored together, discarded as a whole, and planned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from broker.observation.recording.recording import MEASURES, SampleRow
from experiments.design.config import Experiment, ExperimentError, parse
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.records import recording
from experiments.records.recording import STAMPS, Results
from experiments.running import runner
from experiments.running.executors.sequential import Sequential
from experiments.worlds.episodic_world import Conditions, Episode
from experiments.worlds.world import RunFiles, RunResult, Trial
from tests.experiments.unwatched import Unwatched

ARMS = ("fifo", "wfq", "fifo-again")
MS = 1_000_000


def experiment(**sessions: Any) -> Experiment:
    return parse(content(**sessions))


def content(**sessions: Any) -> dict[str, Any]:
    return {
        "experiment": {"name": "small", "seed": 3, "baseline": "fifo"},
        "workload": {
            "duration_s": 0.1,
            "warmup_s": 0.02,
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
        ],
        "limits": {"retries": 1},
        "sessions": {"count": 3, "rounds": 2, "primary": "metadata", **sessions},
    }


@dataclass
class FakeSession:
    """Answers every request after ``latency_ns``, under the scripted conditions."""

    world: FakeWorld
    played: list[Episode] = field(default_factory=list)
    rehearsed: list[str] = field(default_factory=list)

    def run_unrecorded(self, trial: Trial, replayed: Trace) -> None:
        self.rehearsed.append(trial.arm.name)

    def run_episode(self, trial: Trial, replayed: Trace) -> Conditions:
        self.world.order.append(trial.run_id)
        if trial.run_id == self.world.dies_at:
            raise RunFailed("broker ended with status 9")
        intended = replayed.table["intended_ns"].to_numpy()
        results = Results(
            columns=dict.fromkeys(STAMPS, intended + self.world.latency_ns)
            | {name: np.zeros(len(replayed), np.int64) for name in MEASURES},
            error_code=np.zeros(len(replayed), np.int16),
            ended_ns=10**9,
        )
        labels = trial.labels("live")
        rows = recording.requests_table(labels, replayed, results, timeout_ns=10**10)
        samples = {name: [] for name in SampleRow._fields}
        self.played.append(
            Episode(
                trial=trial,
                requests=rows,
                samples=recording.samples_table(labels, samples),
                result=RunResult(
                    valid=True,
                    trace_sha256=replayed.sha256,
                    counts=recording.counts(rows, len(replayed)),
                    loop_us=20.5,
                    machine={"load_average": 1.0},
                ),
                started="2026-01-01T00:00:00Z",
                seconds=0.1,
            )
        )
        return self.world.conditions.get(trial.run_id, Conditions())

    def finish(self) -> Iterator[Episode]:
        yield from self.played


@dataclass
class FakeWorld:
    """A world that offers sessions only."""

    latency_ns: int = MS
    conditions: Mapping[str, Conditions] = field(default_factory=dict)
    dies_at: str = ""
    order: list[str] = field(default_factory=list)
    sessions: list[FakeSession] = field(default_factory=list)
    name: str = "live"

    def environment(self) -> dict[str, Any]:
        return {"pinned": False}

    def estimate_s(self, experiment: Experiment) -> float:
        return 0.01

    def session(self, experiment: Experiment) -> AbstractContextManager[FakeSession]:
        self.sessions.append(FakeSession(self))
        return nullcontext(self.sessions[-1])

    def run(self, trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        raise AssertionError("rounds are played in sessions")


def run(
    directory: Path, world: FakeWorld, *, resume: bool = False, **sessions: Any
) -> tuple[dict[str, Any], list[int]]:
    """Return the manifest, and the sessions without a valid round."""
    small = experiment(**sessions)
    missing = runner.run(
        small, directory, world, Sequential(world), Unwatched(), resume=resume
    )
    found: dict[str, Any] = json.loads((directory / "manifest.json").read_text())
    return found, [small.session_of(it.block) for it in missing]


def of_round(manifest: Mapping[str, Any], block: int) -> list[dict[str, Any]]:
    return [it for it in manifest["runs"] if it["block"] == block]


def test_a_round_replays_one_trace_to_every_arm_in_an_order_of_its_own(
    tmp_path: Path,
) -> None:
    world = FakeWorld()
    manifest, missing = run(tmp_path, world)
    assert missing == []
    assert [each[:4] for each in world.order] == [f"b{n // 3:03d}" for n in range(18)]
    orders = [tuple(world.order[n : n + 3]) for n in range(0, 18, 3)]
    assert {frozenset(it.split("-", 1)[1] for it in each) for each in orders} == {
        frozenset(f"{arm}-t0" for arm in ARMS)
    }
    assert len({tuple(it.split("-", 1)[1] for it in each) for each in orders}) > 1
    for block in range(6):
        runs = of_round(manifest, block)
        assert len({it["trace_sha256"] for it in runs}) == 1
        assert {it["session"] for it in runs} == {block // 2}
        assert {it["loop_us"] for it in runs} == {20.5}
    assert len({it["trace_sha256"] for it in manifest["runs"]}) == 6
    assert [each.rehearsed for each in world.sessions] == [
        [it.split("-", 1)[1].removesuffix("-t0") for it in world.order[n : n + 3]]
        for n in (0, 6, 12)
    ]


def test_the_manifest_states_the_plan(tmp_path: Path) -> None:
    manifest, _ = run(tmp_path, FakeWorld(), quantile=0.95)
    assert manifest["blocks"] == 6
    assert manifest["sessions"] == {
        "planned": 3,
        "rounds": 2,
        "primary": "metadata",
        "quantile": 0.95,
    }
    assert manifest["exploratory"] is False


def test_an_arm_has_one_file_for_each_session_and_a_column_for_it(
    tmp_path: Path,
) -> None:
    manifest, _ = run(tmp_path, FakeWorld())
    files = {it["requests"] for it in manifest["runs"]}
    assert len(files) == 3 * len(ARMS) == len(list((tmp_path / "requests").iterdir()))
    for file in files:
        mine = [it for it in manifest["runs"] if it["requests"] == file]
        rows = pq.read_table(tmp_path / file)
        assert sorted(set(rows["run_id"].to_pylist())) == sorted(
            it["run_id"] for it in mine
        )
        assert rows.num_rows == sum(it["counts"]["sent"] for it in mine)
        assert set(rows["session"].to_pylist()) == {it["session"] for it in mine}


@pytest.mark.parametrize(
    ("met", "why"),
    [
        (Conditions(off_cpu_ns=1_500_000), "generator without its CPU: 1.50 ms > 1 ms"),
        (Conditions(late_p99_ns=2 * MS), "generator late: p99 2.00 ms > 1 ms"),
    ],
)
def test_a_run_whose_generator_was_disturbed_is_discarded_and_repeated_at_once(
    met: Conditions, why: str, tmp_path: Path
) -> None:
    world = FakeWorld(conditions={"b001-wfq-t0": met})
    manifest, missing = run(tmp_path, world)
    assert missing == []
    runs = of_round(manifest, 1)
    discarded = [it for it in runs if not it["valid"]]
    assert [(it["run_id"], it["reason"]) for it in discarded] == [
        ("b001-wfq-t0", f"discarded: {why} (arm wfq)")
    ]
    # The broker's rows of a discarded run are kept.
    for it in runs:
        rows = pq.read_table(tmp_path / it["requests"])
        mine = rows.filter(pc.equal(rows["run_id"], it["run_id"]))
        assert mine.num_rows == it["counts"]["sent"] > 0
    counted = [it for it in runs if it["valid"]]
    assert sorted(it["arm"] for it in counted) == sorted(ARMS)
    place = world.order.index("b001-wfq-t0")
    assert world.order[place + 1] == "b001-wfq-t1"


@pytest.mark.parametrize("disturbed", ARMS)
def test_a_round_with_an_arm_that_is_always_disturbed_is_given_up(
    disturbed: str, tmp_path: Path
) -> None:
    away = Conditions(off_cpu_ns=9 * MS)
    stalls = {f"b001-{disturbed}-t{n}": away for n in range(6)}
    manifest, missing = run(tmp_path, FakeWorld(conditions=stalls))
    assert missing == [], "another round of its session counts"
    runs = of_round(manifest, 1)
    assert not any(it["valid"] for it in runs)
    tries = Counter(it["arm"] for it in runs)
    assert tries.pop(disturbed) == 2, "there was one retry"
    assert set(tries.values()) <= {1}


def test_no_latency_decides_what_counts(tmp_path: Path) -> None:
    """Latencies a thousand times longer leave the same rounds valid."""
    conditions = {
        "b001-wfq-t0": Conditions(off_cpu_ns=3 * MS),
        "b004-fifo-t0": Conditions(late_p99_ns=3 * MS),
    }
    found = []
    for latency_ns in (MS, 1000 * MS):
        world = FakeWorld(latency_ns=latency_ns, conditions=conditions)
        manifest, _ = run(tmp_path / str(latency_ns), world)
        found.append([(it["run_id"], it["valid"]) for it in manifest["runs"]])
    assert found[0] == found[1]
    assert not all(valid for _, valid in found[0])


def test_a_session_whose_broker_dies_is_missing_and_played_again_on_resume(
    tmp_path: Path,
) -> None:
    manifest, missing = run(tmp_path, FakeWorld(dies_at="b003-fifo-t0"))
    assert missing == [1]
    failed = [it for it in manifest["runs"] if not it["valid"]]
    assert {it["block"] for it in failed} == {2, 3}
    assert {it["reason"] for it in failed} == {"broker ended with status 9"}
    assert {it["requests"] for it in failed} == {None}
    again = FakeWorld()
    manifest, missing = run(tmp_path, again, resume=True)
    assert missing == []
    assert {it[:4] for it in again.order} == {"b002", "b003"}
    assert {it[-2:] for it in again.order} == {"t1"}
    done = FakeWorld()
    run(tmp_path, done, resume=True)
    assert done.order == []


class Killed(BaseException):
    """Represents the end of the process; no handler catches it."""


def test_a_session_that_was_interrupted_is_played_whole(tmp_path: Path) -> None:
    """A resumed session would have other processes, so it is repeated."""

    class Dying(FakeSession):
        def run_episode(self, trial: Trial, replayed: Trace) -> Conditions:
            if trial.run_id.startswith("b003"):
                raise Killed
            return super().run_episode(trial, replayed)

    class Ending(FakeWorld):
        def session(self, experiment: Experiment) -> AbstractContextManager[Dying]:
            return nullcontext(Dying(self))

    with pytest.raises(Killed):
        run(tmp_path, Ending())
    world = FakeWorld()
    manifest, missing = run(tmp_path, world, resume=True)
    assert missing == []
    assert {it[:4] for it in world.order} == {"b002", "b003", "b004", "b005"}
    assert valid_runs(manifest) == {
        (block, arm): 1 for block in range(6) for arm in ARMS
    }


def valid_runs(manifest: Mapping[str, Any]) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for it in manifest["runs"]:
        if it["valid"]:
            place = it["block"], it["arm"]
            found[place] = found.get(place, 0) + 1
    return found


def test_more_sessions_than_planned_are_exploratory_from_then_on(
    tmp_path: Path,
) -> None:
    run(tmp_path, FakeWorld(), count=2)
    world = FakeWorld()
    manifest, _ = run(tmp_path, world, resume=True, count=3)
    assert {it[:4] for it in world.order} == {"b004", "b005"}
    assert manifest["exploratory"] is True
    assert (manifest["sessions"]["planned"], manifest["blocks"]) == (2, 6)
    manifest, _ = run(tmp_path, FakeWorld(), resume=True, count=3)
    assert manifest["exploratory"] is True


def test_the_same_sessions_resumed_are_not_exploratory(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld())
    manifest, _ = run(tmp_path, FakeWorld(), resume=True)
    assert manifest["exploratory"] is False


def test_the_primary_class_of_sessions_is_one_that_there_is() -> None:
    with pytest.raises(
        ExperimentError, match="'control' is none of the classes metadata"
    ):
        experiment(primary="control")


def test_each_point_of_a_sweep_has_sessions_of_its_own(tmp_path: Path) -> None:
    key = "broker.set.queued.max.requests"
    points = [{"levels": {"n": str(n)}, "set": {key: n}} for n in (10, 20)]
    swept = parse({**content(), "sweep": {"design": "listed", "points": points}})
    world = FakeWorld()
    assert not runner.run(
        swept, tmp_path, world, Sequential(world), Unwatched(), resume=False
    )
    assert len(world.sessions) == 2 * 3
    assert len(world.order) == 2 * 3 * 2 * len(ARMS)
    # Names are p000-b003-fifo-t0; each session has two rounds, of one point.
    for number, session in enumerate(world.sessions):
        mine = world.order[number * 6 : number * 6 + 6]
        assert [it.trial.run_id for it in session.played] == mine
        assert len({it[:4] for it in mine}) == 1
        assert {int(it[6:9]) // 2 for it in mine} == {number // 2}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    files = {it["requests"] for it in manifest["runs"]}
    assert len(files) == 2 * 3 * len(ARMS)
    done = FakeWorld()
    runner.run(swept, tmp_path, done, Sequential(done), Unwatched(), resume=True)
    assert done.order == []


def test_other_traces_and_sessions_leave_the_rest_as_it_is() -> None:
    small = experiment()
    found = small.with_traces(9, 5)
    assert (found.experiment.seed, found.blocks) == (9, 10)
    assert found.with_traces(3, 3) == small == small.with_traces(None, None)
    alone = content()
    del alone["sessions"]
    alone["experiment"]["blocks"] = 6
    assert parse(alone).with_traces(None, 5).blocks == 5


def test_blocks_are_stated_once() -> None:
    twice = content()
    twice["experiment"]["blocks"] = 6
    with pytest.raises(ExperimentError, match=r"\[sessions\] states the number"):
        parse(twice)
    never = content()
    del never["sessions"]
    with pytest.raises(ExperimentError, match=r"experiment.blocks: missing"):
        parse(never)
    with pytest.raises(ExperimentError, match="1200 rounds in all, at most 999"):
        experiment(count=200, rounds=6)


@pytest.mark.parametrize("key", ["speed_band", "cost_band", "broker_wait_share"])
def test_a_limit_that_discarded_by_speed_is_refused(key: str) -> None:
    old = content()
    old["limits"][key] = 2.0
    with pytest.raises(ExperimentError, match=f"limits.{key}: unknown key"):
        parse(old)
