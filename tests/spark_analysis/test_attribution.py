"""Where an effect comes from: told from made values whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.design_effects import attribute, designs_of
from spark_analysis.statistics.difference import difference_p
from tests.spark_analysis.studies import (
    CUBE,
    P99,
    comparison_of,
    cube_arms,
    manifest_of,
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


def test_arms_without_spread_have_exact_effects() -> None:
    """Zero-width data: a deterministic world with one trace in every block."""
    comparison = cube({"q": 0.1}, spread=0.0)
    found = comparison.attribution_told(comparison.designs[0], "control")
    assert found is not None
    assert found.whole.ratio == pytest.approx((0.1, 0.1, 0.1))
    assert found.whole.found
    assert found.of("share")[0].ratio == pytest.approx((1, 1, 1))
    assert not found.of("share")[0].found


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
