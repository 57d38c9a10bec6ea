"""Calibration against brokers with known costs, and its interval over sessions."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy.stats import t as student

from doorkeeper import cli
from experiments.design import calibration
from experiments.design.calibration import Calibration, Cost
from experiments.design.capacity import nominal_us
from experiments.design.config import parse
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.running.calibrate import SESSIONS, calibrate
from experiments.worlds.episodic_world import Conditions, Episode
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import RunFiles, RunResult, Trial, WorldError
from tests.experiments.test_capacity import CONTENT, NOMINAL_US
from tests.experiments.unwatched import Unwatched

BILLED_US = {"control": 150.0, "bulk": 800.0}
PRIOR_US = 40.0
REST_US = 50.0
SETTLING = 2
SESSIONS_OF_CONTENT = {
    **CONTENT,
    "experiment": {k: v for k, v in CONTENT["experiment"].items() if k != "blocks"},
    "sessions": {"count": 2, "rounds": 2, "primary": "control"},
}
INCIDENT = Path("experiments/configs/kafka-4453.toml")


@dataclass
class Broker:
    """A broker with known billed costs, plus ``REST_US`` per request outside all bills.

    ``effects`` multiply all costs of successive sessions. ``waits_us`` is each
    request's wait for a CPU used by other processes. All requests of class ``refused``
    are refused and cost nothing. ``rows`` says whether costs are recorded.
    """

    name: str = "live"
    effects: Sequence[float] = (1.0,)
    waits_us: float = 0.0
    refused: str = ""
    rows: bool = True
    clock: bool = True
    valid: bool = True
    fails: bool = False
    stretches: list[float] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    sessions: list[list[tuple[Trial, Trace]]] = field(default_factory=list)

    def environment(self) -> dict[str, Any]:
        return {}

    def estimate_s(self, experiment: Any) -> float:
        return 1.0

    def run(self, trial: Trial, replayed: Trace, out: RunFiles) -> RunResult:
        result, rows = self._played(trial, replayed, len(self.stretches))
        pq.write_table(rows, out.requests)
        return result

    def session(self, experiment: Any) -> AbstractContextManager[Broker]:
        self.sessions.append([])
        return nullcontext(self)

    def run_unrecorded(self, trial: Trial, replayed: Trace) -> None:
        assert not self.sessions[-1]

    def run_episode(self, trial: Trial, replayed: Trace) -> Conditions:
        if self.fails:
            raise RunFailed("broker ended with status 9")
        self.sessions[-1].append((trial, replayed))
        return Conditions()

    def finish(self) -> Iterator[Episode]:
        for trial, replayed in self.sessions[-1]:
            result, rows = self._played(trial, replayed, len(self.sessions) - 1)
            yield Episode(
                trial=trial,
                requests=rows,
                samples=rows.slice(0, 0),
                result=result,
                started="",
                seconds=0.1,
            )

    def _played(
        self, trial: Trial, replayed: Trace, session: int
    ) -> tuple[RunResult, pa.Table]:
        self.stretches.append(trial.stretch)
        self.traces.append(replayed)
        names = np.array(replayed.column("traffic"))
        answered = names != self.refused
        effect = self.effects[session % len(self.effects)]
        billed_us = np.array([BILLED_US.get(name, 0.0) for name in names]) * effect
        cpu_us = float((billed_us + REST_US * effect)[answered].sum())
        prior_us = np.full(len(names), PRIOR_US * effect)
        service_us = billed_us - prior_us + self.waits_us
        bills_ns = {
            name: pa.array(np.rint(us * 1000).astype(np.int64), mask=~answered)
            if self.rows
            else pa.nulls(len(names), pa.int64())
            for name, us in (("prior_ns", prior_us), ("service_ns", service_us))
        }
        rows = pa.table(
            {
                "request_id": np.arange(len(names)),
                "outcome": np.where(answered, "ok", "error"),
                **bills_ns,
            }
        )
        result = RunResult(
            valid=self.valid,
            reason="" if self.valid else "the broker died",
            broker_cpu_s=cpu_us / 1e6 if self.clock else None,
            loop_us=20.0 + session,
        )
        return result, rows


def calibrated(broker: Broker, content: dict[str, Any] | None = None) -> Calibration:
    experiment = parse(content or CONTENT)
    return calibrate(experiment, cast(Any, broker), Unwatched(), "a test")


def interval(cost: Cost) -> tuple[float | None, float, float | None]:
    return cost.low_us, cost.mean_us, cost.high_us


@pytest.fixture(scope="module")
def in_sessions() -> tuple[Calibration, Broker]:
    """Return a calibration by sessions, and its broker afterwards."""
    broker = Broker()
    return calibrated(broker, SESSIONS_OF_CONTENT), broker


@pytest.mark.parametrize("by_sessions", [False, True])
def test_a_request_costs_its_bill_and_an_equal_share_of_the_rest(
    in_sessions: tuple[Calibration, Broker], by_sessions: bool
) -> None:
    found, broker = in_sessions
    if not by_sessions:
        broker = Broker()
        found = calibrated(broker)
    for name, billed_us in BILLED_US.items():
        expected_us = billed_us + REST_US
        assert interval(found.costs[name]) == pytest.approx((expected_us,) * 3)
    assert found.read is not None
    assert interval(found.read) == pytest.approx((PRIOR_US,) * 3)
    # The final stretch follows from these costs and the configured load of both
    # classes.
    expected = (0.1 * 200 / 200 + 0.39 * 850 / 1000) / 0.49
    assert broker.stretches[-1] == pytest.approx(expected, rel=1e-3)
    assert broker.stretches[0] == 1.0


def test_the_loops_time_is_the_mean_over_the_sessions_that_count(
    in_sessions: tuple[Calibration, Broker],
) -> None:
    """The mean covers sessions 2 to 5; sessions 0 and 1 settle the stretch."""
    assert in_sessions[0].loop_us == 23.5


def test_waits_for_a_cpu_that_others_had_are_no_cost() -> None:
    """CPU time is divided in proportion to the bills."""
    broker = Broker(waits_us=5000.0)
    found = calibrated(broker)
    names = broker.traces[-1].column("traffic")
    cost_us = sum(found.costs[name].mean_us for name in names)
    used_us = sum(BILLED_US[it] + REST_US for it in names)
    assert cost_us == pytest.approx(used_us, rel=0.01)
    assert found.read is not None
    bills_us = sum(BILLED_US[it] + 5000.0 for it in names)
    assert found.read.mean_us == pytest.approx(PRIOR_US * used_us / bills_us, rel=0.01)


def test_intervals_are_students_over_sessions() -> None:
    """Each session is one value, whatever its number of rounds."""
    effects = (1.0, 1.0, 0.9, 1.0, 1.1, 1.2)
    broker = Broker(effects=effects)
    found = calibrated(broker, SESSIONS_OF_CONTENT)
    assert len(broker.sessions) == SETTLING + SESSIONS
    assert {len(session) for session in broker.sessions} == {6}
    counted = np.array(effects[SETTLING:])
    error = float(np.std(counted, ddof=1)) / SESSIONS**0.5
    half = float(student.ppf(0.975, SESSIONS - 1)) * error
    for name, billed_us in BILLED_US.items():
        factors = np.array([1.05 - half, 1.05, 1.05 + half])
        expected_us = (billed_us + REST_US) * factors
        assert interval(found.costs[name]) == pytest.approx(expected_us, rel=1e-4)


def test_no_round_of_the_experiment_is_played_beforehand(
    in_sessions: tuple[Calibration, Broker],
) -> None:
    _, broker = in_sessions
    played = [trial for session in broker.sessions for trial, _ in session]
    seeds = {trial.experiment.experiment.seed for trial in played}
    assert CONTENT["experiment"]["seed"] not in seeds
    assert {trial.arm.name for trial in played} == {"fifo"}
    assert len({replayed.sha256 for replayed in broker.traces}) == len(played)


def test_short_rounds_are_played_more_often() -> None:
    broker = Broker()
    short = {**CONTENT["workload"], "duration_s": 0.1, "warmup_s": 0.0}
    calibrated(broker, {**SESSIONS_OF_CONTENT, "workload": short})
    assert {len(session) for session in broker.sessions} == {15}


def test_without_bills_entries_keep_the_proportions_of_their_stated_costs() -> None:
    """Also for unanswered requests: current Kafka refuses controller requests."""
    found = calibrated(Broker(name="kafka", rows=False, refused="control"))
    factor = (BILLED_US["bulk"] + REST_US) / NOMINAL_US["bulk"]
    for name, stated_us in NOMINAL_US.items():
        expected_us = stated_us * factor
        assert interval(found.costs[name]) == pytest.approx((expected_us,) * 3)
    assert found.read is None


def test_a_cluster_keeps_proportions_and_nothing_happens_to_it_but_its_load() -> None:
    """Calibration runs have no faults, since a replaced leader does less work."""
    broker = Led()
    content = tomllib.loads(INCIDENT.read_text(encoding="utf-8"))
    found = calibrated(broker, content)
    assert {name: cost.mean_us for name, cost in found.costs.items()} == {
        "produce": pytest.approx(1000.0),
        "produce-acks-1": pytest.approx(1000.0),
        "metadata": pytest.approx(150.0),
    }
    assert broker.stretches == pytest.approx([1.0, *[0.25] * 5])


class Led(Broker):
    """A cluster whose leader needs a quarter of the configured cost per request."""

    def run(self, trial: Trial, replayed: Trace, out: RunFiles) -> RunResult:
        assert [fault.kind for fault in trial.experiment.faults] == ["scale-load"]
        assert out.attempts is not None
        result = super().run(trial, replayed, out)
        costs_us = nominal_us(trial.experiment)
        work_us = sum(costs_us[name] for name in replayed.column("traffic"))
        return replace(result, broker_cpu_s=0.25 * work_us * 1e-6)


def test_costs_that_no_config_states_are_found_where_bills_are_known() -> None:
    found = calibrated(Broker(), {**CONTENT, "nominal": None})
    for name, billed_us in BILLED_US.items():
        assert found.costs[name].mean_us == pytest.approx(billed_us + REST_US)


@pytest.mark.parametrize(
    ("broker", "changes", "words"),
    [
        (Broker(valid=False), {}, "calibration: the broker died"),
        (Broker(clock=False), {}, "no CPU time is known"),
        (Broker(fails=True), SESSIONS_OF_CONTENT, "broker ended with status 9"),
        (
            Broker(name="kafka", rows=False),
            {"nominal": None},
            "'control' must be stated in",
        ),
    ],
)
def test_a_calibration_that_measures_nothing_ends_with_its_reason(
    broker: Broker, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(WorldError, match=words):
        calibrated(broker, {**CONTENT, **changes})


def test_the_virtual_world_costs_what_is_stated() -> None:
    read = {"mean_us": 25.0}
    stated = parse({**CONTENT, "nominal": {**CONTENT["nominal"], "read": read}})
    found = calibrate(stated, Virtual(), Unwatched(), "a test")
    for name, cost in found.costs.items():
        assert interval(cost) == pytest.approx((NOMINAL_US[name],) * 3)
    assert found.read == Cost(mean_us=25, low_us=25, high_us=25)


CONFIG = """
[experiment]
name = "loads"
seed = 1
blocks = 1
baseline = "fifo"
again = false
world = "virtual"

[workload]
duration_s = 0.2

[[workload.traffic]]
name = "meta"
arrivals = { kind = "poisson", load = 0.2 }
request = { api = "metadata" }

[[arms]]
name = "fifo"
scheduler = "fifo"
"""


def test_a_config_without_costs_runs_with_a_calibration_alone(tmp_path: Path) -> None:
    config, directory = tmp_path / "loads.toml", tmp_path / "run"
    config.write_text(CONFIG)
    run = ["experiment", "run", str(config), "--out", str(directory)]
    refused = CliRunner().invoke(cli.main, run)
    assert refused.exit_code == 2
    assert "workload.traffic['meta'].arrivals: a load is no rate" in refused.output
    assert not directory.exists()
    cost = Cost(mean_us=200.0, low_us=190.0, high_us=210.0)
    written = Calibration(source="a test", costs={"meta": cost}, read=Cost(mean_us=20))
    calibration.write(written, tmp_path / "costs.json")
    run += ["--calibration", str(tmp_path / "costs.json")]
    found = CliRunner().invoke(cli.main, run)
    assert found.exit_code == 0, found.output
    manifest = json.loads((directory / "manifest.json").read_text())
    (point,) = manifest["points"]
    assert point["costs"]["mean_request_ns"] == 200_000
    assert point["costs"]["load"] == pytest.approx({"meta": 0.2})
    # The intervals are stored, so that a prediction can propagate their uncertainty.
    assert Calibration.model_validate(manifest["calibration"]) == written


def test_calibrate_prints_costs_and_the_stretch(tmp_path: Path) -> None:
    config, out = tmp_path / "loads.toml", tmp_path / "costs.json"
    nominal = '[nominal]\nsource = "a test"\ncosts.meta.mean_us = 25.0\n'
    config.write_text(CONFIG + nominal)
    command = ["calibrate", str(config), "--world", "virtual", "--out", str(out)]
    command += ["--sessions", "2"]
    found = CliRunner().invoke(cli.main, command)
    assert found.exit_code == 0, found.output
    assert "The mean request costs 25 us, and traces are stretched by 1.000" in (
        " ".join(found.output.split())
    )
    assert calibration.read(out).costs["meta"].mean_us == 25.0
    source = calibration.read(out).source
    assert source.startswith(
        "doorkeeper calibrate loads.toml --sessions 2 --world virtual"
    )
