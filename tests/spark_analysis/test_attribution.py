"""Effects of the factors of a design, from values with known effects."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.design_effects import DesignEffects, Effect, designs_of
from tests.spark_analysis.studies import (
    CUBE,
    P99,
    comparison_of,
    cube_arms,
    manifest_of,
)


def cube(
    factors: dict[str, float],
    *,
    spread: float = 0.05,
    world: str = "live",
    thin: tuple[tuple[str, str], ...] = (),
    lost: tuple[str, ...] = (),
) -> Comparison:
    """Make control's p99 of every arm: 100 ms times the factors of the arm.

    A key of several letters is a factor of their combination only.
    """
    rng = np.random.default_rng(1)
    session = np.exp(rng.normal(0, 0.3, size=12))
    values = {}
    for name in CUBE:
        mean = 100.0 * math.prod(
            size for key, size in factors.items() if set(key) <= set(name)
        )
        noise = np.exp(rng.normal(0, spread, size=12))
        values["control", name or "none"] = list(mean * session * noise)
    for arm in lost:
        values["control", arm] = [math.inf] * 12
    manifest = manifest_of(cube_arms(), ["control"], 12, world=world)
    return comparison_of(manifest, values, thin)


def effects_of(comparison: Comparison, full: str = "rqw") -> DesignEffects:
    (found,) = [
        it for it in comparison.effects if it.metric == P99 and it.design.full == full
    ]
    return found


def of_kind(found: DesignEffects, kind: str) -> dict[str, Effect]:
    return {it.factors[0]: it for it in found.effects if it.kind == kind}


def test_arms_without_spread_have_exact_effects() -> None:
    found = effects_of(cube({"q": 0.1}, spread=0.0))
    (whole,) = of_kind(found, "whole").values()
    assert whole.ratio == pytest.approx((0.1, 0.1, 0.1))
    assert whole.direction == "lower"
    shares = of_kind(found, "share")
    assert shares["reader"].ratio == pytest.approx((1, 1, 1))
    assert shares["reader"].direction == "not significant"
    assert shares["queue"].part == pytest.approx((1, 1, 1))


def test_a_line_that_compares_an_arm_with_the_baseline_has_its_p() -> None:
    comparison = cube({"q": 0.8, "rq": 0.5})
    found = effects_of(comparison)
    for kind, arms in (
        ("alone", {"reader": "r", "queue": "q"}),
        ("whole", {"reader": "rqw"}),
    ):
        for factor, arm in arms.items():
            effect = of_kind(found, kind)[factor]
            contrast = comparison.cell("control", arm, P99.name).contrast
            assert contrast is not None
            assert (effect.p, effect.ratio) == (contrast.p, contrast.ratio)


def test_a_deterministic_world_has_effects_without_p() -> None:
    found = effects_of(cube({"q": 0.1}, world="virtual"))
    assert {effect.p for effect in found.effects} == {None}
    assert of_kind(found, "whole")["reader"].direction == "lower"


@pytest.mark.parametrize(
    ("thin", "lost", "why"),
    [
        ((("control", "rw"),), (), "refused: rw"),
        ((), ("rw",), "no finite p99 in some session"),
    ],
)
def test_effects_need_every_arm(
    thin: tuple[tuple[str, str], ...], lost: tuple[str, ...], why: str
) -> None:
    found = effects_of(cube({"q": 0.1}, thin=thin, lost=lost))
    assert (found.why, found.effects) == (why, ())


def test_arms_beside_the_design_do_not_disturb_it() -> None:
    arms = {**cube_arms(), "priority": dict[str, str]()}
    (design,) = designs_of(manifest_of(arms, ["control"], 8))
    assert (design.none, design.full) == ("none", "rqw")
    assert "priority" not in design.arms.values()
    assert designs_of(manifest_of({"fifo": {}}, ["control"], 8)) == ()


# ---- policies crossed with readers ----

P99_MS = {
    ("fifo", "blind"): 10.0,
    ("fifo", "aware"): 8.0,
    ("priority", "blind"): 5.0,
    ("priority", "aware"): 0.5,
    ("wfq", "blind"): 10.0,
    ("wfq", "aware"): 2.0,
}


def crossed(*, without: str = "") -> Comparison:
    """Make two policies and FIFO under two readers, and planes."""
    rng = np.random.default_rng(11)
    arms: dict[str, dict[str, str]] = {}
    values = {}
    for (policy, reading), p99 in P99_MS.items():
        name = f"{policy}-{reading}"
        if name != without:
            arms[name] = {"policy": policy, "reading": reading}
            noise = np.exp(rng.normal(0, 0.02, size=12))
            values["control", name] = list(p99 * noise)
    arms["planes"] = {}
    values["control", "planes"] = list(0.5 * np.exp(rng.normal(0, 0.02, size=12)))
    return comparison_of(manifest_of(arms, ["control"], 12, world="live"), values)


def test_a_factor_of_three_levels_makes_a_design_with_each() -> None:
    comparison = crossed()
    designs = {it.design.full: it.design.none for it in comparison.effects}
    assert designs == {"priority-aware": "fifo-blind", "wfq-aware": "fifo-blind"}
    found = effects_of(comparison, "priority-aware")
    # The factors by hand: 10 / 8 by the reader alone, 10 / 5 by the policy alone. Each
    # share of log 20 is the mean of the effects added first and last.
    alone = of_kind(found, "alone")
    assert alone["policy"].ratio.value == pytest.approx(0.5, rel=0.05)
    assert alone["reading"].ratio.value == pytest.approx(0.8, rel=0.05)
    part = of_kind(found, "share")["policy"].part
    assert part is not None
    added = (math.log(10 / 5) + math.log(8 / 0.5)) / 2 / math.log(20)
    assert part.value == pytest.approx(added, abs=0.02)


def test_a_design_that_lacks_an_arm_is_left_out() -> None:
    comparison = crossed(without="wfq-blind")
    assert {it.design.full for it in comparison.effects} == {"priority-aware"}
