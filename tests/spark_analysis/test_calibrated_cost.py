"""What requests cost beside their calibration, as the report tells it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spark_analysis.recordings.calibrated_cost import calibrated_cost
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.telling.sentences.machine_sentences import (
    load_sentence,
    unsteadiness,
)
from tests.spark_analysis import synthetic

# The t quantile of 0.975 with two degrees of freedom, from a table.
T_2 = 4.303


def recorded(
    tmp_path: Path, ratios: Mapping[int, float], limits: Mapping[str, float]
) -> Manifest:
    """Return a manifest whose baseline cost so much in each block, other arms 9."""
    synthetic.write(tmp_path, blocks=3, seconds=0.05)
    whole = load_manifest(tmp_path)
    runs = tuple(
        replace(
            run, cost_ratio=ratios.get(run.block) if run.arm == whole.baseline else 9.0
        )
        for run in whole.runs
    )
    return replace(whole, runs=runs, config={**whole.config, "limits": limits})


def test_the_load_is_what_the_baseline_cost(tmp_path: Path) -> None:
    manifest = recorded(tmp_path, {0: 0.5, 1: 0.6, 2: 0.72}, {"cost_band": 2.0})
    found = calibrated_cost(manifest)
    assert found is not None
    assert found.value == pytest.approx(0.6)
    half = T_2 * math.log(1.2) / math.sqrt(3)
    assert found.low == pytest.approx(0.6 / math.exp(half), rel=1e-3)
    assert found.high == pytest.approx(0.6 * math.exp(half), rel=1e-3)
    assert load_sentence(manifest).startswith("Requests of the baseline cost 0.600 (")


def test_without_a_calibration_nothing_is_said(tmp_path: Path) -> None:
    manifest = recorded(tmp_path, {}, {})
    assert calibrated_cost(manifest) is None
    assert load_sentence(manifest) == unsteadiness(manifest) == ""


@pytest.mark.parametrize(
    ("ratios", "limits", "unsteady"),
    [
        ({0: 0.30, 1: 0.30, 2: 0.31}, {"cost_band": 2.0}, True),
        ({0: 2.50, 1: 2.51, 2: 2.52}, {"cost_band": 2.0}, True),
        # Whether it is beyond the band is open.
        ({0: 0.10, 1: 0.40, 2: 1.60}, {"cost_band": 2.0}, False),
        ({0: 0.70, 1: 0.70, 2: 0.71}, {"cost_band": 2.0}, False),
        # Recorded before there was a band.
        ({0: 0.30, 1: 0.30, 2: 0.31}, {}, False),
    ],
)
def test_another_load_is_a_machine_too_unsteady(
    tmp_path: Path,
    ratios: Mapping[int, float],
    limits: Mapping[str, float],
    unsteady: bool,
) -> None:
    said = unsteadiness(recorded(tmp_path, ratios, limits))
    assert said.startswith("requests cost") is unsteady
    assert (said == "") is not unsteady
