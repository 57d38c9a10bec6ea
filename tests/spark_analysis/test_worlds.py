"""Several worlds: where they agree, what is said where they do not, one report of all.

What a world found is made up, so the right word is known: the same ratios agree, a live
world that spreads over both sides of 1 has decided nothing.
"""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_analysis import analyze as analysis
from spark_analysis.judging.metrics import metrics_of
from spark_analysis.judging.study import Study
from spark_analysis.judging.verdict import Verdict
from spark_analysis.judging.worlds import Worlds, hold_together
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.quotient import quotient
from spark_analysis.telling import paper
from spark_analysis.telling.results import results_of_worlds
from spark_analysis.telling.sentences.agreement_sentences import (
    agreement_sentences,
    compared,
)
from spark_analysis.telling.sentences.answer_of_worlds import worlds_lead
from spark_analysis.telling.sentences.world_sentences import (
    worlds_found,
    worlds_notes,
)
from spark_analysis.telling.tables.worlds_table import headline_table
from tests.spark_analysis import synthetic
from tests.spark_analysis.studies import OPTIONS, P99
from tests.spark_analysis.world_studies import BLOCKS, WILD, study_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def together(virtual: Study, *others: Study, **silent: str) -> Worlds:
    return hold_together([*others, virtual], silent)


def agreement(worlds: Worlds, arm: str, class_name: str = "control") -> str:
    metric = worlds.witness.headline
    (found,) = [
        it for it in worlds.told("live", class_name, metric) if it.witness.arm == arm
    ]
    return found.agreement


def test_worlds_with_the_same_ratios_agree() -> None:
    virtual = study_in("virtual", {"planes": 0.2, "wfq": 0.5})
    live = study_in("live", {"planes": 0.2, "wfq": 0.5}, base_ms=20.0)
    worlds = together(virtual, live)
    assert worlds.witness is virtual
    assert {agreement(worlds, arm) for arm in ("planes", "wfq")} == {"agrees"}
    assert worlds_found(worlds) == (
        "The virtual and the live world agree: the p99 latency of control is 5.0 times "
        "lower under planes (live: 5.0) and 2.0 times lower under wfq (live: 2.0).",
    )
    first, *_, last = worlds_lead(worlds)
    assert first.startswith(
        "In the virtual world: Best for the p99 latency of control is planes: 5.0 times"
    )
    assert last == (
        "On the p99 latency of control the live world, with 10 complete blocks, agrees "
        "to within 25\u202f% under every arm."
    )


def test_the_same_direction_with_other_sizes_is_no_agreement() -> None:
    worlds = together(
        study_in("virtual", {"planes": 0.2}), study_in("live", {"planes": 0.6})
    )
    assert agreement(worlds, "planes") == "size differs"
    assert worlds_found(worlds)[0].startswith(
        "The virtual and the live world agree in direction, not in size: the p99"
    )
    assert worlds_lead(worlds)[-1].endswith(
        "agrees in direction, and not in size, under planes (live: 40 % lower, "
        "virtual: 5.0 times lower)."
    )


def test_intervals_that_overlap_are_no_agreement_in_size() -> None:
    """Half widths of some 30 %: neither within a quarter nor beyond it."""
    noise = [1.5, 0.7, 1.3, 0.6, 1.1, 0.9, 1.6, 0.8, 1.2, 0.75]
    live = study_in("live", {"planes": 0.22}, noise)
    worlds = together(study_in("virtual", {"planes": 0.2}), live)
    assert agreement(worlds, "planes") == "size open"
    assert worlds_found(worlds)[0].startswith(
        "The virtual and the live world agree in direction; whether in size, to within "
        "25\u202f%, is open: the p99 latency of control is 5.0 times lower under planes"
    )
    assert "agrees in direction (in size, to within" in worlds_lead(worlds)[-1]
    (cell,) = [it for it in compared(worlds) if it.witness.class_name == "control"]
    assert cell.ratios is not None
    assert cell.ratios.low < 1.25 < cell.ratios.high
    assert agreement_sentences(worlds) == (
        "Of 2 ratios of p99 to fifo asked of two worlds, 1 is the same to within "
        "25\u202f%, 0 are not, and 1 is open.",
    )


def test_a_world_with_too_few_requests_is_not_called_undecided() -> None:
    """Its run is too short for a p99 of its own, on whatever machine."""
    live = study_in("live", {"planes": 0.2, "wfq": 0.5})
    (calm,) = live.comparisons
    why = "a run has 2 of its requests beyond p99 on average, too few for its own"
    thin = Verdict(word="refused", why=why, compared=False)
    cells = tuple(
        replace(cell, verdict=thin) if cell.arm == "planes" else cell
        for cell in calm.cells
    )
    live = replace(live, comparisons=(replace(calm, cells=cells),))
    worlds = together(study_in("virtual", {"planes": 0.2, "wfq": 0.5}), live)
    assert agreement(worlds, "planes") == "undecided"
    agreed, mute = worlds_found(worlds)
    assert "under wfq (live: 2.0)" in agreed
    assert mute == (
        "The live world, with 10 complete blocks, says nothing of the p99 latency of "
        f"control under planes ({why}): there the answer stands on the virtual world."
    )
    assert "could not decide" not in " ".join(worlds_found(worlds))
    assert worlds_lead(worlds)[-1].endswith(
        "agrees to within 25\u202f% under wfq and says nothing under planes (too few "
        "requests beyond it): there the answer stands on the virtual world."
    )


def test_a_world_without_a_p99_is_told_by_the_quantile_below_it() -> None:
    """Eighteen rounds had no p99, and a p95 that all decided: it was not told."""
    quantiles = (Fraction(1, 2), Fraction(99, 100))
    p50, *_ = metrics_of(replace(OPTIONS, quantiles=quantiles))

    def with_p50(study: Study, p99: Verdict | None = None) -> Study:
        (made,) = study.comparisons
        cells = [
            *(replace(c, metric=p50) for c in made.cells if c.metric == P99),
            *(
                replace(c, verdict=p99 or c.verdict)
                if c.metric == P99 and c.contrast
                else c
                for c in made.cells
            ),
        ]
        return replace(
            study,
            comparisons=(
                replace(made, metrics=(p50, *made.metrics), cells=tuple(cells)),
            ),
        )

    few = Verdict(
        word="refused", why="4 of the requests can lie beyond p99", compared=False
    )
    worlds = together(
        with_p50(study_in("virtual", {"planes": 0.2})),
        with_p50(study_in("live", {"planes": 0.2}), few),
    )
    mute, agreed = worlds_found(worlds)
    assert mute.startswith("The live world, with 10 complete blocks, says nothing of")
    assert agreed == (
        "The virtual and the live world agree: the p50 latency of control is 5.0 times "
        "lower under planes (live: 5.0)."
    )
    assert worlds_lead(worlds)[-1] == (
        "By the p50 the live world agrees to within 25\u202f% under planes."
    )


def test_opposite_findings_contradict_each_other() -> None:
    worlds = together(
        study_in("virtual", {"planes": 0.2}), study_in("live", {"planes": 3.0})
    )
    assert agreement(worlds, "planes") == "contradicts"
    assert worlds_found(worlds) == (
        "The virtual and the live world contradict each other: the p99 latency of "
        "control is 5.0 times lower under planes (live: 3.0 times higher).",
    )


def test_a_change_in_one_world_and_sameness_in_the_other_have_no_direction() -> None:
    """A fifth lower beside the same within 5 %: neither opposite nor alike."""
    tenths = [0.1, -0.12, 0.08, -0.1, 0.12, -0.08, 0.1, -0.1, 0.06, -0.06]
    virtual = study_in("virtual", {"planes": 0.8})
    live = study_in("live", {"planes": 1.0}, [1 + it / 10 for it in tenths])
    worlds = together(virtual, live)
    (cell,) = [it for it in compared(worlds) if it.witness.class_name == "control"]
    words = cell.witness.verdict.word, cell.other.verdict.word
    assert (*words, cell.agreement) == ("better", "equivalent", "size open")
    said = " ".join((*worlds_found(worlds), worlds_lead(worlds)[-1]))
    assert "world do not contradict each other; whether they agree, to within" in said
    assert "is neither shown to agree, to within 25\u202f%, nor to differ under" in said
    assert "direction" not in said


def test_a_wild_live_world_decides_nothing_and_the_answer_stands_on_the_virtual() -> (
    None
):
    live = study_in("live", {"planes": 0.9}, WILD)
    runs = live.manifest.runs
    lost = tuple(replace(run, valid=False, reason="late") for run in runs[:3])
    live = replace(live, manifest=replace(live.manifest, runs=(*runs, *lost)))
    worlds = together(study_in("virtual", {"planes": 0.2}), live)
    assert agreement(worlds, "planes") == "undecided"
    lost = f"(3 of {len(runs) + 3} runs did not count)"
    assert worlds_found(worlds) == (
        f"The live world, with {len(WILD)} complete blocks, could not decide the p99 "
        f"latency of control under any arm {lost}: there the answer stands on the "
        "virtual world.",
    )
    assert worlds_lead(worlds)[-1] == (
        f"On the p99 latency of control the live world, with {len(WILD)} complete "
        f"blocks, could not decide under planes {lost}: there the answer stands on the "
        "virtual world."
    )


def test_a_world_that_cannot_be_compared_is_said_to_be_silent() -> None:
    worlds = together(study_in("virtual", {"planes": 0.2}), live="no complete block")
    first, *_, last = worlds_lead(worlds)
    assert first.startswith("In the virtual world: Best for the p99 latency of control")
    assert last == (
        "The live world cannot be compared (no complete block): the answer stands on "
        "the virtual world."
    )


def test_values_are_held_together_in_units_of_the_mean_request() -> None:
    # Twice as slow a machine, on which all takes twice as long: the same behaviour.
    virtual = study_in("virtual", {"planes": 0.2}, base_ms=10.0, request_ms=0.5)
    live = study_in("live", {"planes": 0.2}, base_ms=20.0, request_ms=1.0)
    for cell in together(virtual, live).cells:
        if cell.witness.class_name == "control" and cell.witness.metric.quantile:
            assert cell.between is not None
            assert cell.between.value == pytest.approx(1.0)
    rows = results_of_worlds(together(virtual, live))["rows"]
    found = {
        row["world"]: row["in_requests"]
        for row in rows
        if (row["class"], row["arm"], row["metric"]) == ("control", "fifo", "p99_ms")
    }
    assert found["virtual"] == pytest.approx(found["live"]) == pytest.approx(20.0)


def test_the_table_has_a_row_for_each_class_and_arm() -> None:
    worlds = together(
        study_in("virtual", {"planes": 0.2}), study_in("live", {"planes": 0.2})
    )
    table = headline_table(worlds, "live")
    assert [row[:2] for row in table.rows] == [
        ("control", "fifo"),
        ("control", "planes"),
        ("produce", "fifo"),
        ("produce", "planes"),
    ]
    assert [row[-1] for row in table.rows] == ["baseline", "agrees"] * 2


def test_whether_the_requests_were_the_same_is_told_by_hash() -> None:
    virtual, live = (
        study_in("virtual", {"planes": 0.2}),
        study_in("live", {"planes": 1}),
    )
    assert worlds_notes(together(virtual, live))[0].endswith(
        f"the same requests in the {BLOCKS} blocks that both have, by their traces' "
        "hashes."
    )
    runs = tuple(replace(run, trace_sha256="other") for run in live.manifest.runs)
    live = replace(live, manifest=replace(live.manifest, runs=runs))
    assert (
        "the same requests in 0: in the others"
        in worlds_notes(together(virtual, live))[0]
    )


def test_worlds_without_a_common_block_have_not_replayed_the_same() -> None:
    virtual, live = (study_in(world, {"planes": 0.2}) for world in ("virtual", "live"))
    runs = tuple(replace(run, block=run.block + BLOCKS) for run in live.manifest.runs)
    live = replace(live, manifest=replace(live.manifest, runs=runs))
    note, *_ = worlds_notes(together(virtual, live))
    assert note == "The virtual and the live world share no block."


def test_worlds_of_different_experiments_are_refused() -> None:
    virtual, live = (
        study_in("virtual", {"planes": 0.2}),
        study_in("live", {"planes": 1}),
    )
    live = replace(live, manifest=replace(live.manifest, name="another"))
    with pytest.raises(RecordingError, match="worlds of different experiments"):
        together(virtual, live)


# ---- the quotient ----


def test_of_normal_logarithms_the_quotient_has_the_classical_interval() -> None:
    # Half widths 0.3 and 0.4 add in squares: 0.5.
    over = Estimate(2.0, 2.0 * math.exp(-0.3), 2.0 * math.exp(0.3))
    under = Estimate(4.0, 4.0 * math.exp(-0.4), 4.0 * math.exp(0.4))
    found = quotient(over, under)
    assert found is not None
    expected = (0.5, 0.5 * math.exp(-0.5), 0.5 * math.exp(0.5))
    assert found == pytest.approx(expected)


def test_the_interval_of_a_quotient_covers_as_often_as_it_says() -> None:
    # Means of eight normal logarithms, t intervals of 95 %; 2000 pairs, so the bound is
    # four standard errors below.
    rng = np.random.default_rng(7)
    logs = rng.normal(0.0, [[[0.2]], [[0.4]]], (2, 2000, 8))
    half = 2.3646 * logs.std(axis=2, ddof=1) / math.sqrt(8)
    means = logs.mean(axis=2)
    covered = 0
    for number in range(2000):
        one, two = (
            Estimate(*np.exp(means[k, number] + half[k, number] * np.array([0, -1, 1])))
            for k in (0, 1)
        )
        found = quotient(one, two)
        assert found is not None
        covered += found.low <= 1.0 <= found.high
    assert covered / 2000 > 0.93


def test_what_is_not_bounded_stays_so_and_what_is_lost_has_no_quotient() -> None:
    open_above = Estimate(2.0, 1.0, math.inf)
    found = quotient(open_above, Estimate(1.0, 0.9, 1.1))
    assert found is not None
    assert found.high == math.inf
    assert 0 < found.low < 2.0
    assert quotient(Estimate(math.inf, 1.0, math.inf), open_above) is None
    assert quotient(open_above, Estimate(0.0, 0.0, 0.0)) is None


# ---- from recordings to one report ----


@pytest.mark.spark
def test_a_directory_of_worlds_has_one_report(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # There is one session in a process, and other tests go on with it.
    monkeypatch.setattr(analysis, "spark_session", lambda _: nullcontext(spark))
    # More than the tails need: a gate of a few exceedances lets p99 be told.
    options = {"exceedances_shown": 2, "exceedances_headline": 3}
    for world in ("virtual", "live"):
        directory = tmp_path / world
        manifest = synthetic.write(
            directory, seconds=0.3, arms=("fifo", "planes"), analysis=options
        )
        manifest["world"] = world
        costs = {"mean_request_ns": 500_000, "stretch": 1.25, "load": {}}
        window, classes = manifest["window_ns"], manifest["classes"]
        whole = {"point": "", "levels": {}, "window_ns": window, "classes": classes}
        manifest["points"] = [{**whole, "costs": costs}]
        synthetic.save(directory, manifest)
    broken = tmp_path / "kafka"
    broken.mkdir()
    (broken / "manifest.json").write_text("{}")
    analysis.analyze(tmp_path)
    report = tmp_path / "report"
    found = json.loads((report / "results.json").read_text())
    assert {row["world"] for row in found["rows"]} == {"virtual", "live"}
    assert found["witness"] == "virtual"
    assert "schema None found" in found["silent"]["kafka"]
    # The same rows in both: they agree wherever something is decided.
    words = {row["agreement"] for row in found["worlds"]}
    assert "agrees" in words
    assert words <= {None, "agrees", "size open", "open"}
    for name in ("index.html", "words.json", "tables/worlds-live.csv"):
        assert (report / name).stat().st_size > 0
    for world in ("virtual", "live"):
        assert (report / world / "index.html").is_file()
        assert (report / "figures" / "worlds-live.svg").is_file()
    page = (report / "index.html").read_text()
    said = json.loads((report / "words.json").read_text())
    assert said["lead"][0].startswith("In the virtual world: ")
    assert "The kafka world cannot be compared" in " ".join(said["lead"])
    assert "The virtual and the live world agree" in " ".join(said["found"])
    assert page.index("the live world") < page.index("Where they agree</h2>")
    assert page.index("world agree") < page.index("Side by side</h2>")
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.index("In the virtual world: ") < printed.index("the live world")
    paper.build(tmp_path, tmp_path / "paper.pdf")
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")
