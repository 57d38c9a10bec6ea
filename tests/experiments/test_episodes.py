"""Episodes: rounds in sessions, stored together, repeated by the probe, and stopped."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from broker.observation.recording.recording import MEASURES, SampleRow
from doorkeeper.at_work import experiments
from experiments.design.config import Experiment, ExperimentError, parse
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.records import recording
from experiments.records.recording import STAMPS, Results
from experiments.running import runner
from experiments.running.executors.episodes import InEpisodes
from experiments.worlds.episodes import Conditions, Episode
from experiments.worlds.world import RunFiles, RunResult, Trial
from tests.experiments.unwatched import Unwatched

Latencies = npt.NDArray[np.float64]
ARMS = ("fifo", "wfq", "fifo-again")
STEADY = (1_000_000, 1_000_000)


def experiment(**episodes: Any) -> Experiment:
    return parse(content(**episodes))


def content(**episodes: Any) -> dict[str, Any]:
    return {
        "experiment": {"name": "small", "seed": 3, "blocks": 6, "baseline": "fifo"},
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
        "episodes": {"session_rounds": 2, "rounds_min": 2, **episodes},
    }


@dataclass
class FakeSession:
    """Answers every request after ``latency_ns``; the loop takes what is listed."""

    world: FakeWorld
    played: list[Episode] = field(default_factory=list)
    rehearsed: list[str] = field(default_factory=list)

    def rehearse(self, trial: Trial, replayed: Trace) -> None:
        self.rehearsed.append(trial.arm.name)

    def play(self, trial: Trial, replayed: Trace) -> Conditions:
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
        probes = self.world.probes.get(trial.run_id, STEADY)
        self.played.append(
            Episode(
                trial=trial,
                requests=rows,
                samples=recording.samples_table(labels, samples),
                result=RunResult(
                    valid=True,
                    trace_sha256=replayed.sha256,
                    counts=recording.counts(rows, len(replayed)),
                    probes_ns=probes,
                    machine={"load_average": 1.0},
                ),
                started="2026-01-01T00:00:00Z",
                seconds=0.1,
            )
        )
        return Conditions(probes_ns=probes)

    def finish(self) -> Iterator[Episode]:
        yield from self.played


@dataclass
class FakeWorld:
    """A world of which only sessions are asked for."""

    latency_ns: int = 1_000_000
    probes: dict[str, tuple[int, int]] = field(default_factory=dict)
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
        raise AssertionError("episodes are played in sessions")


def narrow_after(rounds: int) -> Any:
    def half_width(
        arm: Sequence[Latencies],
        baseline: Sequence[Latencies],
        level: Fraction,
        confidence: float,
    ) -> float:
        assert (level, confidence) == (Fraction(99, 100), 0.95)
        return 0.01 if len(arm) >= rounds else 1.0

    return half_width


def run(
    directory: Path, world: FakeWorld, rounds: int = 99, **options: Any
) -> dict[str, Any]:
    resume = options.pop("resume", False)
    missing = runner.run(
        experiment(**options),
        directory,
        world,
        InEpisodes(world),
        Unwatched(),
        resume=resume,
        half_width=narrow_after(rounds),
    )
    assert missing == []
    found: dict[str, Any] = json.loads((directory / "manifest.json").read_text())
    return found


def test_a_round_deals_one_trace_to_every_arm_in_an_order_of_its_own(
    tmp_path: Path,
) -> None:
    world = FakeWorld()
    manifest = run(tmp_path, world)
    assert [each[:4] for each in world.order] == [f"b{n // 3:03d}" for n in range(18)]
    orders = [tuple(world.order[n : n + 3]) for n in range(0, 18, 3)]
    assert {frozenset(it.split("-", 1)[1] for it in each) for each in orders} == {
        frozenset(f"{arm}-t0" for arm in ARMS)
    }
    assert len({tuple(it.split("-", 1)[1] for it in each) for each in orders}) > 1
    for block in range(6):
        of_round = [it for it in manifest["runs"] if it["block"] == block]
        assert len({it["trace_sha256"] for it in of_round}) == 1
        assert {it["session"] for it in of_round} == {block // 2}
    assert len({it["trace_sha256"] for it in manifest["runs"]}) == 6
    assert [each.rehearsed for each in world.sessions] == [
        [it.split("-", 1)[1].removesuffix("-t0") for it in world.order[n : n + 3]]
        for n in (0, 6, 12)
    ]


def test_an_arm_has_one_file_for_each_session(tmp_path: Path) -> None:
    manifest = run(tmp_path, FakeWorld())
    files = {it["requests"] for it in manifest["runs"]}
    assert len(files) == 3 * len(ARMS) == len(list((tmp_path / "requests").iterdir()))
    for file in files:
        mine = [it for it in manifest["runs"] if it["requests"] == file]
        rows = pq.read_table(tmp_path / file)
        assert sorted(set(rows["run_id"].to_pylist())) == sorted(
            it["run_id"] for it in mine
        )
        assert rows.num_rows == sum(it["counts"]["sent"] for it in mine)


def test_rounds_end_when_intervals_are_narrow_enough(tmp_path: Path) -> None:
    manifest = run(tmp_path, FakeWorld(), rounds=4)
    assert [it["rounds"] for it in manifest["looks"]] == [2, 4]
    assert [it["decision"] for it in manifest["looks"]] == ["go on", "narrow enough"]
    assert manifest["looks"][-1]["half_widths"] == {"wfq": 0.01}
    assert {it["block"] for it in manifest["runs"]} == {0, 1, 2, 3}
    assert manifest["finished"]


def test_rounds_end_when_the_time_is_up_at_a_round(tmp_path: Path) -> None:
    world = FakeWorld()
    manifest = run(tmp_path, world, minutes=1e-9)
    assert len(world.order) == len(ARMS)
    assert [it["decision"] for it in manifest["looks"]] == ["time is up"]


@pytest.mark.parametrize(
    ("minutes", "dies_at", "sessions"),
    [(0.7, "", 1), (0.8, "", 2), (0.5, "b001-fifo-t0", 2)],
)
def test_no_session_begins_that_would_be_idle_for_longer_than_it_plays(
    minutes: float,
    dies_at: str,
    sessions: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten seconds go to beginning and five to ending; one that fails has no end."""
    now_s = [100.0]
    monkeypatch.setattr(
        "experiments.running.sessions.time", SimpleNamespace(monotonic=lambda: now_s[0])
    )

    class Slow(FakeSession):
        def play(self, trial: Trial, replayed: Trace) -> Conditions:
            now_s[0] += 0.1
            return super().play(trial, replayed)

        def finish(self) -> Iterator[Episode]:
            now_s[0] += 5
            return super().finish()

    class Starting(FakeWorld):
        def session(self, experiment: Experiment) -> AbstractContextManager[Slow]:
            now_s[0] += 10
            return nullcontext(Slow(self))

    manifest = run(tmp_path, Starting(dies_at=dies_at), minutes=minutes)
    decisions = [it["decision"] for it in manifest["looks"]]
    assert decisions == ["go on"] * (sessions - 1) + ["time is up"]


@pytest.mark.parametrize(("minutes", "told"), [(1e-9, True), (3, False)])
def test_who_ran_out_of_time_is_told_how_to_have_more(
    minutes: float, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "make_world", lambda *_: FakeWorld())
    out = io.StringIO()
    small = experiment(minutes=minutes)
    console = Console(file=out, width=120)
    assert experiments.run_experiment(small, tmp_path, console, resume=False)
    assert ("time was up; --resume adds rounds to these" in out.getvalue()) == told


def test_an_experiment_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    run(tmp_path, FakeWorld(), rounds=2)
    world = FakeWorld()
    manifest = run(tmp_path, world, rounds=4, resume=True)
    assert {it[:4] for it in world.order} == {"b002", "b003"}
    assert [it["rounds"] for it in manifest["looks"]] == [2, 4]
    done = FakeWorld()
    run(tmp_path, done, rounds=4, resume=True)
    assert done.order == []


def test_an_arm_that_met_another_machine_is_dealt_again(tmp_path: Path) -> None:
    """The others count as they were dealt; what did not count is kept with a reason."""
    world = FakeWorld(probes={"b001-wfq-t0": (3_000_000, 3_000_000)})
    manifest = run(tmp_path, world)
    of_round = [it for it in manifest["runs"] if it["block"] == 1]
    spoiled = [it for it in of_round if not it["valid"]]
    assert "b001-wfq-t0" in {it["run_id"] for it in spoiled}
    assert all("3.00 times as long" in it["reason"] for it in spoiled)
    assert sorted(it["arm"] for it in of_round if it["valid"]) == sorted(ARMS)
    assert len(of_round) <= len(ARMS) + 2
    assert manifest["looks"][0]["rounds"] == 2


def test_what_is_stored_of_a_mended_round_are_all_its_episodes(tmp_path: Path) -> None:
    slow = (3_000_000, 3_000_000)
    manifest = run(tmp_path, FakeWorld(probes={"b001-wfq-t0": slow}))
    for it in (it for it in manifest["runs"] if it["block"] == 1):
        rows = pq.read_table(tmp_path / it["requests"])
        mine = rows.filter(pc.equal(rows["run_id"], it["run_id"]))
        assert mine.num_rows == it["counts"]["sent"] > 0


def test_a_round_that_is_given_up_has_a_run_of_every_arm(tmp_path: Path) -> None:
    times = itertools.count()
    moving = {
        f"b001-{arm}-t{number}": (1_000_000 * 2 ** next(times),) * 2
        for number in range(4)
        for arm in ARMS
    }
    manifest = run(tmp_path, FakeWorld(probes=moving))
    of_round = [it for it in manifest["runs"] if it["block"] == 1]
    assert len(of_round) == 2 * len(ARMS), "there was one retry"
    assert {it["arm"] for it in of_round} == set(ARMS)
    assert not any(it["valid"] for it in of_round)


def test_a_machine_that_stays_unsteady_costs_the_round(tmp_path: Path) -> None:
    slow = (3_000_000, 3_000_000)
    world = FakeWorld(probes={f"b001-wfq-t{attempt}": slow for attempt in range(6)})
    manifest = run(tmp_path, world)
    assert not any(it["valid"] for it in manifest["runs"] if it["block"] == 1)
    assert [it["rounds"] for it in manifest["looks"]] == [1, 3, 5]


def test_no_latency_decides_what_counts(tmp_path: Path) -> None:
    """The same probes, latencies a thousand times longer: the same rounds count."""
    probes = {
        "b001-wfq-t0": (3_000_000, 3_000_000),
        "b004-fifo-t0": (1_000_000, 4_000_000),
    }
    found = []
    for latency_ns in (1_000_000, 1_000_000_000):
        world = FakeWorld(latency_ns=latency_ns, probes=probes)
        manifest = run(tmp_path / str(latency_ns), world)
        found.append([(it["run_id"], it["valid"]) for it in manifest["runs"]])
    assert found[0] == found[1]
    assert not all(valid for _, valid in found[0])


def test_a_session_whose_broker_dies_costs_its_rounds_and_no_others(
    tmp_path: Path,
) -> None:
    manifest = run(tmp_path, FakeWorld(dies_at="b001-fifo-t0"))
    failed = [it for it in manifest["runs"] if not it["valid"]]
    assert {it["block"] for it in failed} == {0, 1}
    assert {it["reason"] for it in failed} == {"broker ended with status 9"}
    assert {it["requests"] for it in failed} == {None}
    assert [it["rounds"] for it in manifest["looks"]] == [0, 2, 4]


def test_episodes_are_of_one_point_and_a_class_that_there_is() -> None:
    with pytest.raises(ExperimentError, match="'control' is none of the classes meta"):
        experiment(primary="control")
    sweep = {"design": "listed", "points": [{"levels": {"a": "b"}}]}
    with pytest.raises(ExperimentError, match="not to a sweep"):
        parse({**content(), "sweep": sweep})
