"""Measured over calibrated cost: recorded if both are known."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from experiments.design.calibration import Calibration
from experiments.design.config import Experiment, parse
from experiments.records.cost_ratio import cost_ratio
from tests.experiments.test_capacity import CONTENT

COSTS = {"control": {"mean_us": 200.0}, "bulk": {"mean_us": 1000.0}}
INCIDENT = Path("experiments/configs/kafka-4453.toml")
TRAFFIC = ["control", "bulk"] * 20


def calibrated() -> Experiment:
    content = {"source": "a test", "costs": COSTS}
    return parse(CONTENT).with_machine(Calibration.model_validate(content))


def rows() -> pa.Table:
    """Return requests, of which every fifth failed."""
    number = np.arange(len(TRAFFIC))
    outcome = np.where(number % 5 == 0, "error", "ok")
    return pa.table({"request_id": number, "outcome": outcome})


def test_the_cpu_of_all_that_was_answered_is_divided() -> None:
    there, table = calibrated(), rows()
    answered = [TRAFFIC[it] for it in range(40) if it % 5]
    calibrated_s = sum(COSTS[entry]["mean_us"] for entry in answered) / 1e6
    found = cost_ratio("kafka", there, table, TRAFFIC, 1.5 * calibrated_s)
    assert found == pytest.approx(1.5)
    assert cost_ratio("kafka", there, table, TRAFFIC, None) is None


def test_nothing_is_reported_where_nothing_was_measured() -> None:
    assert cost_ratio("live", parse(CONTENT), rows(), TRAFFIC, 1.0) is None
    assert cost_ratio("virtual", calibrated(), rows(), TRAFFIC, 1.0) is None


def test_one_broker_of_a_cluster_is_not_held_against_all_of_its_requests() -> None:
    content = tomllib.loads(INCIDENT.read_text(encoding="utf-8"))
    content["machine"] = {
        "source": "a test",
        "costs": {
            entry["name"]: {"mean_us": 1} for entry in content["workload"]["traffic"]
        },
    }
    assert cost_ratio("live", parse(content), rows(), TRAFFIC, 1.0) is None
