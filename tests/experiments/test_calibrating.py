"""Calibration against worlds whose costs are known, to the nanosecond."""

from __future__ import annotations

import copy
import json
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from broker.observation.recording.recording import MEASURES, SampleRow
from doorkeeper import cli
from experiments.design import calibration
from experiments.design.capacity import nominal_us
from experiments.design.config import parse
from experiments.load import trace
from experiments.load.trace import Trace
from experiments.records import recording
from experiments.records.recording import STAMPS, Results
from experiments.running.calibrating import runs
from experiments.running.calibrating.by_light_bursts import calibrate_by_light_bursts
from experiments.running.calibrating.calibrate import calibrate
from experiments.running.calibrating.in_runs import ROUNDS
from experiments.worlds.virtual.world import Virtual
from experiments.worlds.world import RunFiles, RunResult, Trial, WorldError
from tests.experiments.test_capacity import CONTENT
from tests.experiments.unwatched import Unwatched

BILLED_NS = {"control": 150_000, "bulk": 800_000}
UNBILLED_NS = 50_000
TRAVEL_NS = 30_000
INCIDENT = Path("experiments/configs/kafka-4453.toml")


class Measured:
    """A broker whose requests cost what the table says, in a process that costs too.

    ``idle_ns`` is what the process uses without requests, ``valid`` says whether runs
    count. Of ``waits`` one request in ten waited 5 ms for a CPU that others had.
    """

    name = "live"
    idle_ns = 40_000_000

    def __init__(
        self, *, valid: bool = True, rows: bool = True, waits: bool = False
    ) -> None:
        self.valid = valid
        self.rows = rows
        self.waits = waits
        self.stretches: list[float] = []

    def environment(self) -> dict[str, Any]:
        return {}

    def estimate_s(self, experiment: Any) -> float:
        return 1.0

    def run(self, trial: Trial, replayed: Trace, out: RunFiles) -> RunResult:
        billed = np.array(
            [BILLED_NS.get(name, 0) for name in replayed.column("traffic")]
        )
        stamps = replayed.table["intended_ns"].to_numpy() + 1_000_000
        tenth = np.arange(len(replayed)) % 10 == 0
        waited = np.where(tenth & self.waits, 5_000_000, 0)
        self.stretches.append(trial.stretch)
        measures = {name: np.zeros(len(replayed), np.int64) for name in MEASURES}
        # A part of the bill is what came before the handler's turns.
        measures["prior_ns"] = billed // 3
        measures["service_ns"] = (
            billed - billed // 3 + waited if self.rows else np.full(len(replayed), -1)
        )
        queued = stamps + TRAVEL_NS + billed // 3
        way = {
            "enqueued_ns": queued,
            "response_dequeued_ns": queued,
            "response_sent_ns": queued,
            "client_done_ns": queued + TRAVEL_NS,
        }
        results = Results(
            columns=dict.fromkeys(STAMPS, stamps) | measures | way,
            error_code=np.zeros(len(replayed), np.int16),
            ended_ns=10**10,
        )
        labels = trial.labels("live")
        rows = recording.requests_table(labels, replayed, results, timeout_ns=10**10)
        recording.write(rows, out.requests)
        samples = {name: [] for name in SampleRow._fields}
        recording.write(recording.samples_table(labels, samples), out.samples)
        cpu_ns = self.idle_ns + int(billed.sum()) + UNBILLED_NS * len(replayed)
        return RunResult(
            valid=self.valid,
            reason="" if self.valid else "the broker died",
            trace_sha256=replayed.sha256,
            broker_cpu_s=cpu_ns / 1e9,
            accounts={"cpu_ns": cpu_ns, "requests_ns": 0, "housekeeping_ns": 0},
        )


def test_waits_for_a_cpu_are_no_cost_in_light_bursts() -> None:
    found = calibrate_by_light_bursts(
        parse(CONTENT), Measured(waits=True), Unwatched(), "a test", rounds=3
    )
    for name, billed_ns in BILLED_NS.items():
        cost = found.costs[name]
        assert cost.mean_us == pytest.approx((billed_ns + UNBILLED_NS) / 1000)
        assert cost.low_us == pytest.approx(cost.mean_us)
        assert cost.high_us == pytest.approx(cost.mean_us)
    assert found.unbilled_us == pytest.approx(UNBILLED_NS / 1000)
    # A third of the bills is reading.
    bill_us = sum(BILLED_NS.values()) / len(BILLED_NS) / 1000
    assert found.reading_us == pytest.approx(bill_us / 3, rel=1e-4)
    assert found.travel_us == pytest.approx(TRAVEL_NS / 1000)


def test_costs_are_those_of_the_experiments_own_runs() -> None:
    """What the process uses without requests is theirs that found it idle.

    This broker serves any number at once, so it does nothing between them.
    """
    broker = Measured()
    experiment = parse(CONTENT)
    found = calibrate(experiment, broker, Unwatched(), "a test")
    own = broker.stretches[-ROUNDS:]
    assert own == pytest.approx([own[0]] * ROUNDS)
    assert own[0] == pytest.approx(0.85, rel=0.1)
    drawn = trace.generate(runs.baseline_alone(experiment), 0)
    rest_us = UNBILLED_NS / 1000 + Measured.idle_ns / 1000 / len(drawn)
    entries = Counter(drawn.column("traffic"))
    total_us = sum(found.costs[name].mean_us * entries[name] for name in entries)
    billed_us = sum(BILLED_NS[name] * entries[name] for name in entries) / 1000
    assert total_us == pytest.approx(billed_us + rest_us * len(drawn), rel=0.01)
    assert found.unbilled_us == 0.0
    for name, billed_ns in BILLED_NS.items():
        cost = found.costs[name]
        assert cost.busy_us == pytest.approx(billed_ns / 1000, rel=0.01)
        assert cost.idle_us is not None
        assert cost.busy_us is not None
        assert found.settling_us == pytest.approx(cost.idle_us - cost.busy_us, rel=0.1)
        assert cost.spread == pytest.approx([1.0] * 50, abs=0.01)


def test_bills_are_no_more_than_the_cpu_that_was_used() -> None:
    """Waits for a CPU that others had are in the rows, and in no cost."""
    content = {**CONTENT, "workload": {**CONTENT["workload"], "warmup_s": 0.0}}
    found = calibrate(parse(content), Measured(waits=True), Unwatched(), "a test")
    drawn = trace.generate(runs.baseline_alone(parse(content)), 0)
    entries = drawn.column("traffic")
    cost_us = sum(found.costs[name].mean_us for name in entries)
    used_ns = sum(BILLED_NS[name] + UNBILLED_NS for name in entries)
    used_ns += Measured.idle_ns
    assert cost_us == pytest.approx(used_ns / 1000, rel=1e-3)
    assert found.unbilled_us == 0.0


def test_runs_that_do_not_count_end_it_with_their_reason() -> None:
    with pytest.raises(WorldError, match="3 runs did not count: the broker died"):
        calibrate(parse(CONTENT), Measured(valid=False), Unwatched(), "a test")


def test_rows_without_costs_end_it() -> None:
    with pytest.raises(WorldError, match="no row says what requests of 'control' cost"):
        calibrate(parse(CONTENT), Measured(rows=False), Unwatched(), "a test")


def test_a_cluster_is_calibrated_by_its_load_and_nothing_befalls_it() -> None:
    """Its clients' attempts need a file, and a leader that steps down does less.

    That the load is scaled is no fault of the cluster's.
    """
    content = tomllib.loads(INCIDENT.read_text(encoding="utf-8"))
    broker = Led()
    found = calibrate(parse(content), broker, Unwatched(), "a test")
    assert {name: cost.mean_us for name, cost in found.costs.items()} == {
        "produce": pytest.approx(1000.0),
        "produce-acks-1": pytest.approx(1000.0),
        "metadata": pytest.approx(150.0),
    }
    assert broker.stretches == pytest.approx([1.0, *[0.25] * 5])


class Led(Measured):
    """A cluster whose leader needs a quarter of what the file states for a request."""

    def run(self, trial: Trial, replayed: Trace, out: RunFiles) -> RunResult:
        assert [fault.kind for fault in trial.experiment.faults] == ["scale-load"]
        assert out.attempts is not None
        result = super().run(trial, replayed, out)
        costs_us = nominal_us(trial.experiment)
        work_us = sum(costs_us[name] for name in replayed.column("traffic"))
        return replace(result, broker_cpu_s=0.25 * work_us * 1e-6)


@pytest.mark.parametrize(
    ("reading_us", "writing_us", "travel_us"), [(0.0, 0.0, 0.0), (25.0, 15.0, 40.0)]
)
def test_the_virtual_world_costs_what_it_is_told(
    reading_us: float, writing_us: float, travel_us: float
) -> None:
    more = {
        "reading_us": reading_us,
        "unbilled_us": writing_us,
        "writing_us": writing_us,
        "travel_us": travel_us,
    }
    nominal = {**CONTENT["nominal"], **more}
    told = parse({**CONTENT, "nominal": nominal})
    found = calibrate(told, Virtual(), Unwatched(), "a test")
    for name, cost in found.costs.items():
        stated = CONTENT["nominal"]["costs"][name]["mean_us"]
        assert (cost.low_us, cost.mean_us, cost.high_us) == (stated,) * 3
    assert found.unbilled_us == found.writing_us == writing_us
    assert (found.reading_us, found.travel_us) == (reading_us, travel_us)


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
    costs = calibration.Calibration(
        source="a test", costs={"meta": calibration.Cost(mean_us=200.0)}
    )
    calibration.write(costs, tmp_path / "costs.json")
    run += ["--calibration", str(tmp_path / "costs.json")]
    found = CliRunner().invoke(cli.main, run)
    assert found.exit_code == 0, found.output
    manifest = json.loads((directory / "manifest.json").read_text())
    (point,) = manifest["points"]
    assert point["costs"]["mean_request_ns"] == 200_000
    assert point["costs"]["load"] == pytest.approx({"meta": 0.2})
    assert manifest["config"]["machine"]["source"] == "a test"


def test_calibrate_prints_costs_and_the_stretch(tmp_path: Path) -> None:
    config, out = tmp_path / "loads.toml", tmp_path / "costs.json"
    nominal = '[nominal]\nsource = "a test"\ncosts.meta.mean_us = 25.0\n'
    config.write_text(CONFIG + nominal)
    command = ["calibrate", str(config), "--world", "virtual", "--out", str(out)]
    command += ["--rounds", "2"]
    found = CliRunner().invoke(cli.main, command)
    assert found.exit_code == 0, found.output
    assert "The mean request costs 25 us, and traces are stretched by 1.000" in (
        " ".join(found.output.split())
    )
    assert calibration.read(out).costs["meta"].mean_us == 25.0
    source = calibration.read(out).source
    assert source.startswith(
        "doorkeeper calibrate loads.toml --rounds 2 --world virtual"
    )


def test_as_many_rounds_are_measured_as_asked() -> None:
    broker = Measured()
    calibrate(parse(CONTENT), broker, Unwatched(), "a test", 9)
    assert len(broker.stretches) == 2 + 9


def test_costs_of_a_file_are_those_of_the_machine(tmp_path: Path) -> None:
    twice = copy.deepcopy(CONTENT["nominal"]["costs"])
    for cost in twice.values():
        cost["mean_us"] *= 2
    machine = calibration.Calibration.model_validate({"source": "x", "costs": twice})
    there = parse(CONTENT).with_machine(machine)
    assert calibrate(there, Virtual(), Unwatched(), "x").costs["bulk"].mean_us == 1000.0
