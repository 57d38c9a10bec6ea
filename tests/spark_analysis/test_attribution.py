"""Where an effect comes from: told from made values whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.design_effects import attribute, designs_of
from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.factorial import lines, part_of_whole
from spark_analysis.telling.figures.factor_effects import effects
from spark_analysis.telling.results import results
from spark_analysis.telling.sentences.attribution_sentences import (
    attribution_sentences,
)
from spark_analysis.telling.sentences.lead import lead
from spark_analysis.telling.sentences.verdict_sentences import (
    headline,
    sentence,
    story,
)
from spark_analysis.telling.tables.attribution_table import attribution_table
from spark_analysis.telling.tables.table import as_csv, as_latex
from tests.spark_analysis.studies import (
    CUBE,
    P99,
    comparison_of,
    cube_arms,
    manifest_of,
    study_of,
)


def cube(
    factors: dict[str, float], blocks: int = 8, spread: float = 0.05, seed: int = 1
) -> Comparison:
    """Make control's p99 of every arm: 100 ms times the factors that the arm has.

    A key of several letters is a factor that only their combination brings.
    """
    rng = np.random.default_rng(seed)
    block = np.exp(rng.normal(0, 0.3, size=blocks))
    values = {}
    for name in CUBE:
        mean = 100.0 * math.prod(
            size for key, size in factors.items() if set(key) <= set(name)
        )
        noise = np.exp(rng.normal(0, spread, size=blocks))
        values["control", name or "none"] = list(mean * block * noise)
    manifest = manifest_of(cube_arms(), ["control"], blocks)
    return comparison_of(manifest, values)


def parts(comparison: Comparison, kind: str) -> dict[str, float]:
    found = comparison.attribution_told(comparison.designs[0], "control")
    assert found is not None
    return {
        effect.factors[0]: effect.part.value
        for effect in found.effects
        if effect.kind == kind and effect.part is not None
    }


def test_a_single_source_is_named() -> None:
    comparison = cube({"q": 0.1})
    (said,) = attribution_sentences(comparison)
    assert "times lower under rqw than under none" in said.plain
    assert "Nearly all of the benefit comes from the queue, 1" in said.plain
    assert parts(comparison, "share") == pytest.approx(
        {"reader": 0, "queue": 1, "worker": 0}, abs=0.05
    )


def test_two_that_only_work_together_are_named_together() -> None:
    comparison = cube({"rq": 0.02})
    (said,) = attribution_sentences(comparison)
    assert "comes from reader and queue together, " in said.plain
    (said,) = attribution_sentences(cube({"rqw": 0.02}))
    assert said.plain.endswith(
        "comes from reader, queue and worker together: by their estimates, fewer bring "
        "less than 90\u202f% of it."
    )
    assert parts(comparison, "alone")["reader"] == pytest.approx(0, abs=0.05)
    shares = parts(comparison, "share")
    assert shares["reader"] == pytest.approx(0.5, abs=0.05)
    assert shares["worker"] == pytest.approx(0.0, abs=0.05)


def test_either_way_is_named_with_what_both_need() -> None:
    """The reader with the queue or with the worker: as in the ablation of KIP-291."""
    comparison = cube({"rq": 0.02, "rw": 0.02, "rqw": 50.0})
    (said,) = attribution_sentences(comparison)
    assert "reader and queue together, " in said.plain
    assert ", or from reader and worker together, " in said.plain
    assert "; the reader in any case." in said.plain


def test_a_price_is_called_a_price_and_what_undoes_a_gain_is_named() -> None:
    (said,) = attribution_sentences(cube({"w": 1.5}, spread=0.01))
    assert "Nearly all of the price comes from the worker" in said.plain
    (said,) = attribution_sentences(cube({"q": 0.05, "w": 1.5}))
    assert "it is undone in part by worker (ratio 1." in said.detail


def test_a_source_that_may_well_be_less_is_told_as_an_estimate() -> None:
    comparison = cube({"q": 0.3}, spread=0.2)
    found = comparison.attribution_told(comparison.designs[0], "control")
    assert found is not None
    assert found.reach is not None
    queue = found.reach[frozenset({"queue"})]
    assert queue.low < 0.9 < queue.value
    (said,) = attribution_sentences(comparison)
    assert (
        "Nearly all of the benefit comes, by the estimates, from the qu" in said.plain
    )


def test_a_combination_that_is_picked_has_an_interval_for_all_of_them() -> None:
    """By hand: Fieller at 5 % over the seven combinations of three factors."""
    comparison = cube({"q": 0.1})
    found = comparison.attribution_told(comparison.designs[0], "control")
    assert found is not None
    assert found.reach is not None
    logs = {
        arm: np.log([r.values[P99.name] for r in comparison.run_values if r.arm == arm])
        for arm in ("none", "q", "rqw")
    }
    expected = part_of_whole(
        logs["q"] - logs["none"], logs["rqw"] - logs["none"], 1 - 0.05 / 7
    )
    assert found.reach[frozenset({"queue"})] == pytest.approx(expected)
    (said,) = attribution_sentences(comparison)
    assert said.plain.endswith("), intervals for all combinations at once.")


def test_without_an_effect_there_is_nothing_to_attribute() -> None:
    (said,) = attribution_sentences(cube({}))
    assert "is not told apart under rqw and none" in said.plain
    assert said.plain.endswith("there is nothing to attribute.")


def test_three_blocks_find_nothing() -> None:
    (said,) = attribution_sentences(cube({"q": 0.1}, blocks=3))
    assert said.plain.endswith("there is nothing to attribute.")


@pytest.mark.parametrize("blocks", [1, 2])
def test_one_or_two_blocks_are_shown_without_a_finding(blocks: int) -> None:
    comparison = cube({"q": 0.1}, blocks=blocks)
    found = comparison.attribution_told(comparison.designs[0], "control")
    assert found is not None
    assert not any(effect.found for effect in found.effects)
    assert as_latex(attribution_table(comparison)).count("inconclusive") == 2 * 17
    effects(comparison)


def test_arms_without_spread_have_exact_effects() -> None:
    """Zero-width data: a deterministic world with one trace in every block."""
    comparison = cube({"q": 0.1}, spread=0.0)
    found = comparison.attribution_told(comparison.designs[0], "control")
    assert found is not None
    assert found.whole.ratio == pytest.approx((0.1, 0.1, 0.1))
    assert found.whole.found
    assert found.of("share")[0].ratio == pytest.approx((1, 1, 1))
    assert not found.of("share")[0].found


def test_parts_are_told_with_intervals_for_all_lines_at_once() -> None:
    """Each line by itself misses in 5 %; by hand: Fieller at 5 % over all lines."""
    comparison = crossed()
    priority, _ = comparison.designs
    found = comparison.attribution_told(priority, "control")
    assert found is not None
    logs = {
        key: np.log(
            [
                r.values[P99.name]
                for r in comparison.run_values
                if r.arm == "-".join(key)
            ]
        )
        for key in P99_MS
    }
    none, aware = logs["fifo", "blind"], logs["fifo", "aware"]
    blind, full = logs["priority", "blind"], logs["priority", "aware"]
    share = ((blind - none) + (full - aware)) / 2
    level = 1 - 0.05 / (2 * len(lines(("policy", "reading"))))
    expected = part_of_whole(share, full - none, level)
    assert found.of("share")[0].part == pytest.approx(expected)
    assert "split, with intervals for all lines of the class at once" in " ".join(
        lead(comparison)
    )


def test_a_class_that_is_not_in_every_block_stays_paired_with_the_others() -> None:
    """Produce has no request in the first block: p is that of the aligned table."""
    rng = np.random.default_rng(21)
    arms = {"none": {"q": "shared"}, "own": {"q": "own"}}
    noise = rng.normal(0, 0.1, size=(8, 2))
    values = {
        (name, arm): list(10 * np.exp(noise[:, place] * (arm == "own")))
        for place, name in enumerate(("control", "produce"))
        for arm in arms
    }
    made = comparison_of(manifest_of(arms, ["control", "produce"], 8), values)
    runs = [r for r in made.run_values if (r.class_name, r.block) != ("produce", 0)]
    gone = replace(made, run_values=tuple(runs), attributions=())
    found = {
        of.class_name: of for of in attribute(gone) if of.metric == P99 and not of.why
    }
    logs = noise.copy()
    logs[0, 1] = np.nan
    count = len(found["control"].effects)
    table = np.repeat(logs, count, axis=1)
    # A share and all else of one factor are the same line.
    names = [name for name in found for _ in range(count)]
    expected = difference_p(table, names, gone.manifest.seed)
    told = [effect.p for of in found.values() for effect in of.effects]
    assert told == pytest.approx(list(expected))


# ---- what cannot be told ----


def changed(comparison: Comparison, arm: str, p99: float) -> Comparison:
    values = {
        ("control", name): [
            p99 if name == arm else run.values[P99.name]
            for run in comparison.run_values
            if run.arm == name
        ]
        for name in cube_arms()
    }
    return comparison_of(comparison.manifest, values)


def test_an_infinite_quantile_is_kept_with_its_reason_and_told_by_goodput() -> None:
    comparison = changed(cube({"q": 0.1}), "none", math.inf)
    found = {of.metric.name: of for of in comparison.attributions}
    assert found["p99_ms"].why == (
        "under none too many got no answer, so there is no p99 to divide by"
    )
    assert found["goodput_per_s"].why == ""
    (said,) = attribution_sentences(comparison)
    assert said.plain.startswith("The goodput of control is not told apart")
    assert "(Not by a higher quantile: under none too many got no answer" in said.plain
    assert "refused: under none too many" in as_csv(attribution_table(comparison))
    effects(comparison)


def values_of(comparison: Comparison) -> dict[tuple[str, str], list[float]]:
    """Return the p99 of every class and arm, block by block."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in comparison.run_values:
        found.setdefault((run.class_name, run.arm), []).append(run.values[P99.name])
    return found


def test_runs_too_short_under_any_arm_refuse_the_effects() -> None:
    whole = cube({"q": 0.1})
    key = ("control", "rw")
    comparison = comparison_of(whole.manifest, values_of(whole), short=[key])
    why = {of.metric.name: of.why for of in comparison.attributions}
    assert why["p99_ms"].startswith("a run has 1 of its requests beyond p99 on ")


def test_a_thin_tail_does_not_veto_effects_that_all_blocks_show() -> None:
    whole = cube({"q": 0.1})
    key = ("control", "rw")
    comparison = comparison_of(whole.manifest, values_of(whole), thin=[key])
    found = comparison.attribution_told(comparison.designs[0], "control")
    assert found is not None
    assert (found.metric, found.whole.found) == (P99, True)


def test_arms_that_are_no_full_design_are_refused_by_name() -> None:
    arms = cube_arms()
    del arms["qw"]
    manifest = manifest_of(arms, ["control"], 8)
    why = "no arm with a valid run has reader shared, queue own, worker own"
    assert designs_of(manifest) == ((), why)
    comparison = replace(cube({}), designs=(), design_why=why, attributions=())
    (said,) = attribution_sentences(comparison)
    assert said.plain == f"The arms are no full design: {why}."


def test_arms_beside_the_design_do_not_disturb_it() -> None:
    arms = {**cube_arms(), "priority": dict[str, str]()}
    (design,), why = designs_of(manifest_of(arms, ["control"], 8))
    assert why == ""
    assert (design.none, design.full) == ("none", "rqw")
    assert "priority" not in design.arms.values()
    assert designs_of(manifest_of({"fifo": {}}, ["control"], 8)) == ((), "")


# ---- policies, each with each reader ----

P99_MS = {
    ("fifo", "blind"): 10.0,
    ("fifo", "aware"): 8.0,
    ("priority", "blind"): 5.0,
    ("priority", "aware"): 0.5,
    ("wfq", "blind"): 10.0,
    ("wfq", "aware"): 2.0,
}


def crossed(*, without: str = "") -> Comparison:
    """Make two policies and FIFO under two readers, and planes beside them."""
    rng = np.random.default_rng(11)
    arms: dict[str, dict[str, str]] = {}
    values = {}
    for (policy, reading), p99 in P99_MS.items():
        name = f"{policy}-{reading}"
        if name != without:
            arms[name] = {"policy": policy, "reading": reading}
            noise = np.exp(rng.normal(0, 0.02, size=8))
            values["control", name] = list(p99 * noise)
    arms["planes"] = {}
    values["control", "planes"] = list(0.5 * np.exp(rng.normal(0, 0.02, size=8)))
    return comparison_of(manifest_of(arms, ["control"], 8), values)


def test_a_factor_of_three_levels_makes_a_design_with_each() -> None:
    comparison = crossed()
    assert [(d.none, d.full) for d in comparison.designs] == [
        ("fifo-blind", "priority-aware"),
        ("fifo-blind", "wfq-aware"),
    ]
    priority, wfq = comparison.designs
    found = comparison.attribution_told(priority, "control")
    assert found is not None
    # The factors by hand: 10 / 8 by the reader alone, 10 / 5 by the policy alone, and
    # in the whole of log 20 each has the mean of what it adds first and last.
    (policy, reading) = found.of("alone")
    assert policy.ratio.value == pytest.approx(0.5, rel=0.05)
    assert reading.ratio.value == pytest.approx(0.8, rel=0.05)
    (policy, reading) = found.of("share")
    assert policy.part is not None
    added = (math.log(10 / 5) + math.log(8 / 0.5)) / 2 / math.log(20)
    assert policy.part.value == pytest.approx(added, abs=0.02)
    assert comparison.attribution_told(wfq, "control") != found


def test_a_design_that_lacks_an_arm_does_not_take_the_others_away() -> None:
    comparison = crossed(without="wfq-blind")
    assert [design.full for design in comparison.designs] == ["priority-aware"]
    said = attribution_sentences(comparison)
    assert said[0].plain == (
        "Some arms make no full design: no arm with a valid run has policy wfq, "
        "reading blind."
    )
    assert "under priority-aware than under fifo-blind" in said[1].plain


def test_the_answer_splits_the_gain_and_names_the_best() -> None:
    text = " ".join(lead(crossed()))
    assert "Best for it is " in text
    best = text[text.index("Best for it is ") :]
    assert "priority-aware" in best.split(". ")[0]
    assert "planes" in best.split(". ")[0]
    assert "all others are shown to be worse than some arm" in text
    assert (
        "What priority-aware does for the p99 of control (20 times lower, " in text
        or "What priority-aware does for the p99 of control (21 times lower, " in text
    )
    assert "policy priority alone is 2.0 times lower, " in text
    assert "reading aware alone is 20 % lower, " in text
    assert "policy wfq alone is not told from no change, " in text


def test_a_verdict_names_the_factor_that_it_is_about() -> None:
    comparison = crossed()
    told = headline(comparison, story(comparison, "fifo-aware"))
    assert told.startswith("fifo-aware (reading aware): ")
    told = headline(comparison, story(comparison, "priority-aware"))
    assert told.startswith("priority-aware (policy priority and reading aware): ")
    cell = comparison.cell("control", "priority-blind", "p99_ms")
    assert "what differs is policy priority)" in sentence(comparison, cell)
    assert headline(comparison, story(comparison, "planes")).startswith("planes: ")
    factors = {
        row["arm"]: row["factors"] for row in results(study_of([comparison]))["rows"]
    }
    assert factors["wfq-blind"] == {"policy": "wfq"}
    assert factors["planes"] == factors["fifo-blind"] == {}
