"""Registered predictions: their intervals, coverage by hand, and refusals."""

from __future__ import annotations

import math
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from experiments.design.config import parse
from experiments.running.launching import run_experiment
from spark_analysis import out_of_sample
from spark_analysis.judging.registered_predictions import (
    Condition,
    Judged,
    Prediction,
    Predictions,
    content_sha256,
    judge,
    predictions_of,
)
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.report.findings import render
from spark_analysis.report.paper import build
from spark_analysis.report.predictions import (
    JUDGEMENT,
    OutOfSample,
    judgement_of,
    read_predictions,
    written_judgement,
    written_predictions,
)
from spark_analysis.report.writing import write_report
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.prediction import prediction_interval
from tests.experiments.unwatched import Unwatched
from tests.spark_analysis.made_results import BETTER, made
from tests.spark_analysis.world_studies import CALM, study_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = {
    "experiment": {"name": "made", "seed": 1, "baseline": "fifo"},
    "sessions": {"count": 8, "rounds": 1},
    "arms": [{"name": "fifo", "set": {"queue": 10}}],
}
# The recorded config, with its defaults.
RECORDED: dict[str, Any] = {
    **CONFIG,
    "experiment": {**CONFIG["experiment"], "world": "live", "title": ""},
    "machine": {"source": "here"},
}
SIMULATED: dict[str, Any] = {
    **RECORDED,
    "experiment": {**RECORDED["experiment"], "world": "virtual", "seed": 2},
    "sessions": {"count": 10, "rounds": 1},
}
NOISE = (1.0, 1.2, 0.9, 1.1, 0.8, 1.0, 1.3, 0.7, 1.0, 1.1)
EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def study(
    world: str, ratios: dict[str, float], config: dict[str, Any], **changes: Any
) -> Study:
    found = study_in(world, ratios, NOISE if world == "virtual" else CALM)
    about = {"config": config, "created": LATER, "seed": config["experiment"]["seed"]}
    manifest = replace(found.manifest, **{**about, **changes})
    return replace(found, manifest=manifest)


def live(ratios: dict[str, float], **changes: Any) -> Study:
    return study("live", ratios, RECORDED, **changes)


def predictions(**intervals: tuple[float, float, float]) -> Predictions:
    """Return predictions of control's ratio under each arm."""
    return Predictions(
        name="made",
        config_sha256=content_sha256(CONFIG),
        written=EARLIER,
        sessions=8,
        baseline="fifo",
        primary="control",
        metric="p99_ms",
        confidence=0.95,
        worlds={"virtual": 10},
        found=tuple(
            Prediction(
                world="virtual",
                condition=Condition("", "control", arm),
                ratio=Estimate(*interval),
            )
            for arm, interval in intervals.items()
        ),
    )


def judged() -> tuple[Predictions, tuple[Judged, ...], Study]:
    """Two of three measured ratios are inside; the fourth arm was not measured."""
    measured = live({"a": 0.1, "b": 0.2, "c": 0.5})
    made_by_hand = predictions(
        a=(0.1, 0.08, 0.12), b=(0.25, 0.19, 0.3), c=(0.4, 0.35, 0.45), d=(1, 0.9, 1.1)
    )
    return made_by_hand, judge(CONFIG, made_by_hand, measured), measured


# ---- intervals ----


def test_a_prediction_is_students_interval_for_the_sessions_to_be_measured() -> None:
    simulated = study("virtual", {"wfq": 0.5}, SIMULATED)
    (comparison,) = simulated.comparisons
    rules = replace(comparison.rules, calibration_error=0.1)
    simulated = replace(simulated, comparisons=(replace(comparison, rules=rules),))
    found = predictions_of(CONFIG, [simulated], EARLIER)
    assert (found.sessions, found.worlds) == (8, {"virtual": 10})
    control = next(it for it in found.found if it.condition.class_name == "control")
    logs = math.log(0.5) + np.log(NOISE) - np.log(CALM)
    spread = np.var(logs, ddof=1) * (1 / 10 + 1 / 8) + 0.1**2
    half = stats.t.ppf(0.975, 9) * math.sqrt(spread)
    middle = float(np.mean(logs))
    assert np.log(control.ratio) == pytest.approx(
        [middle, middle - half, middle + half]
    )


@pytest.mark.parametrize("measured", [4, 12, 40])
def test_predictions_cover_as_often_as_they_say(measured: int) -> None:
    seed, experiments, covered = 23, 2000, 0
    generator = np.random.default_rng(seed)
    for _ in range(experiments):
        found = prediction_interval(
            generator.normal(0.3, 0.1, 12), 0.95, 0.0, measured=measured
        )
        middle = generator.normal(0.3, 0.1, measured).mean()
        covered += found.low <= middle <= found.high
    deviation = math.sqrt(0.95 * 0.05 / experiments)
    assert abs(covered / experiments - 0.95) < 3 * deviation, seed


# ---- verdicts ----


def test_coverage_and_errors_are_those_made_by_hand() -> None:
    _, found, _ = judged()
    assert [it.is_covered for it in found] == [True, True, False, False]
    assert [it.measured is None for it in found] == [False, False, False, True]
    errors = [it.error for it in found]
    assert errors[:3] == pytest.approx([0.0, math.log(0.8), math.log(1.25)])
    assert errors[3] is None


def test_the_table_counts_what_was_judged() -> None:
    made_by_hand, found, measured = judged()
    shown = OutOfSample(judgement_of(made_by_hand, found, measured))
    (row,) = shown.table.rows
    assert [row[it] for it in ("predicted", "judged", "covered")] == [4, 3, 2]
    # Clopper and Pearson's interval of 2 in 3, by the beta distribution.
    assert row["share_low"] == pytest.approx(stats.beta.ppf(0.025, 2, 2))
    assert row["share_high"] == pytest.approx(stats.beta.ppf(0.975, 3, 1))
    assert row["bias"] == pytest.approx(1.0)
    assert row["median"] == row["most"] == pytest.approx(1.25)
    assert "2 of 3 measured control p99 ratios" in shown.sentences
    assert "(1 more could not be measured)" in shown.sentences


def test_files_are_read_as_they_were_written() -> None:
    made_by_hand = predictions(a=(0.1, 0.08, 0.12), b=(0.5, 0.0, math.inf))
    assert read_predictions(written_predictions(made_by_hand)) == made_by_hand


# ---- refusals ----


def refused(words: str, config: dict[str, Any], measured: Study) -> None:
    with pytest.raises(RecordingError, match=words):
        judge(config, predictions(a=(0.1, 0.08, 0.12)), measured)


def test_predictions_that_are_newer_than_the_recording_are_refused() -> None:
    for created in (EARLIER, "2025-12-31T23:59:59Z"):
        words = f"{EARLIER} are newer than the recording, which began at {created}"
        refused(words, CONFIG, live({"a": 0.1}, created=created))


def test_predictions_of_another_config_are_refused() -> None:
    other = {**CONFIG, "sessions": {"count": 9, "rounds": 1}}
    refused("predictions were made for", other, live({"a": 0.1}))


@pytest.mark.parametrize(
    ("table", "changed", "path"),
    [
        ("arms", [{"name": "fifo", "set": {"queue": 11}}], r"arms\[0\].set.queue"),
        ("sessions", {"count": 9, "rounds": 1}, "sessions.count"),
        ("experiment", {"name": "made", "seed": 7, "baseline": "fifo"}, "seed"),
    ],
)
def test_a_recording_of_another_config_is_refused(
    table: str, changed: object, path: str
) -> None:
    recorded = {**RECORDED, table: changed}
    measured = replace(
        live({"a": 0.1}), manifest=replace(live({"a": 0.1}).manifest, config=recorded)
    )
    refused(f"{path} is recorded with another value", CONFIG, measured)


def test_a_simulated_world_measures_nothing() -> None:
    refused("virtual measures nothing", CONFIG, study("virtual", {}, RECORDED))


def test_a_measured_world_predicts_nothing() -> None:
    with pytest.raises(RecordingError, match="live is measured"):
        predictions_of(CONFIG, [live({"a": 0.1})], EARLIER)


def test_predictions_on_the_measured_traces_are_refused() -> None:
    same = study("virtual", {"a": 0.1}, SIMULATED, seed=1)
    with pytest.raises(RecordingError, match="predict on other traces"):
        predictions_of(CONFIG, [same], EARLIER)


# ---- page and paper ----

_PAGE = (
    "{% if prediction %}{{ prediction.sentences }} {{ prediction.source }}{% endif %}"
)


def test_page_and_paper_have_a_section_when_there_is_a_judgement(
    tmp_path: Path,
) -> None:
    kept, template = tmp_path / "kept", tmp_path / "page.md.j2"
    template.write_text(_PAGE)
    write_report(made({("control", "wfq"): BETTER}), (), tmp_path / "report")
    kept.mkdir()
    (kept / "one.json").write_bytes((tmp_path / "report/results.json").read_bytes())
    build(kept, tmp_path / "without.pdf")
    assert render(template, kept) == ""
    file = kept / JUDGEMENT
    file.parent.mkdir()
    file.write_text(written_judgement(judgement_of(*judged())))
    build(kept, tmp_path / "with.pdf")
    sizes = [(tmp_path / f"{it}.pdf").stat().st_size for it in ("without", "with")]
    assert sizes[1] > sizes[0]
    assert "2 of 3 measured control p99 ratios" in render(template, kept)
    file.write_text("{}")
    with pytest.raises(RecordingError, match=r"judgement.json: damaged or edited"):
        render(template, kept)


# ---- end to end, in computed worlds ----


@pytest.mark.spark
def test_two_points_are_predicted_and_judged_by_the_program(
    tmp_path: Path,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model replaces the machine: it predicts its own other traces."""
    # A session of the program's own would stop the shared session of all tests.
    monkeypatch.setattr(
        out_of_sample, "spark_session", lambda *_, **__: nullcontext(spark)
    )
    shipped = ROOT / "experiments/configs/out-of-sample.toml"
    file, config = tmp_path / "predictions/made.json", tmp_path / "small.toml"
    text, points = shipped.read_text().split("[[sweep.points]]", 1)
    first, second, *_ = points.split("[[sweep.points]]")
    nominal = points[points.index("[nominal]") :]
    config.write_text(
        "[[sweep.points]]".join([text, first, f"{second}\n{nominal}"])
        .replace("count = 8", "count = 3")
        .replace("rounds = 4", "rounds = 8")
    )
    experiment = parse(tomllib.loads(config.read_text()))
    for name, seed in (("predicted/model", 5), ("measured", None)):
        planned = experiment.with_world("model").with_traces(seed, None)
        missing = run_experiment(
            planned, tmp_path / name, Unwatched(), resume=False, executor="sequential"
        )
        assert not missing
    run = [str(config), str(tmp_path / "predicted"), str(file)]
    assert out_of_sample.main(["predict", *run]) == 0
    found = read_predictions(file.read_text())
    control = [it for it in found.found if it.condition.class_name == "control"]
    assert len(control) == 2 * 3
    assert len({it.condition.point for it in control}) == 2
    assert out_of_sample.main(["predict", *run]) == 1
    assert "predictions are not made twice" in capsys.readouterr().err
    run[1] = str(tmp_path / "measured")
    assert out_of_sample.main(["judge", *run]) == 1
    assert "newer than the recording" in capsys.readouterr().err
    manifest = tmp_path / "measured/manifest.json"
    lines = manifest.read_text().splitlines()
    (created,) = (it for it in lines if it.startswith(' "created"'))
    manifest.write_text(
        manifest.read_text().replace(created, ' "created": "2999-01-01T00:00:00Z",')
    )
    assert out_of_sample.main(["judge", *run]) == 1
    assert "model measures nothing" in capsys.readouterr().err
