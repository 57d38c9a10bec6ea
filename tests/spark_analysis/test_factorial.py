"""Effects of a two-level design against least squares, permutations and simulation."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest

from spark_analysis.statistics.factorial import (
    Combination,
    Line,
    by_session,
    combinations_of,
    lines,
    part_of_whole,
)
from spark_analysis.statistics.intervals import mean_interval

THREE = ("reader", "queue", "worker")
CELLS = combinations_of(THREE)
Floats = npt.NDArray[np.float64]


def drawn(seed: int, blocks: int = 1) -> dict[Combination, Floats]:
    rng = np.random.default_rng(seed)
    return {cell: rng.normal(size=blocks) for cell in CELLS}


def of_kind(kind: str) -> dict[tuple[str, ...], Line]:
    return {line.factors: line for line in lines(THREE) if line.kind == kind}


def test_two_factors_by_hand() -> None:
    """Responses 10 (none), 8 (a), 9 (b), 2 (both): a adds -2 or -7, b adds -1 or -6."""
    a, b = frozenset("a"), frozenset("b")
    values = {frozenset[str](): 10.0, a: 8.0, b: 9.0, a | b: 2.0}
    responses = {cell: np.array([value]) for cell, value in values.items()}
    found = {
        (line.kind, line.factors): float(by_session(line, responses)[0])
        for line in lines(("a", "b"))
    }
    assert found == {
        ("effect", ("a",)): -4.5,
        ("effect", ("b",)): -3.5,
        ("effect", ("a", "b")): -2.5,
        ("alone", ("a",)): -2,
        ("alone", ("b",)): -1,
        ("last", ("a",)): -7,
        ("last", ("b",)): -6,
        ("share", ("a",)): -4.5,
        ("share", ("b",)): -3.5,
        ("whole", ("a", "b")): -8,
    }


def test_effects_are_twice_the_coefficients_of_least_squares() -> None:
    responses = drawn(3)
    codes = np.array([[1.0 if f in cell else -1.0 for f in THREE] for cell in CELLS])
    columns = {
        tuple(f for f in THREE if f in chosen): np.prod(
            codes[:, [THREE.index(f) for f in chosen]], axis=1
        )
        for chosen in CELLS[1:]
    }
    matrix = np.column_stack([np.ones(8), *columns.values()])
    values = np.array([responses[cell][0] for cell in CELLS])
    fitted = np.linalg.lstsq(matrix, values, rcond=None)[0][1:]
    effects = of_kind("effect")
    assert list(effects) == list(columns)
    for line, coefficient in zip(effects.values(), fitted, strict=True):
        assert by_session(line, responses)[0] == pytest.approx(2 * coefficient)


def test_a_share_is_the_mean_over_all_orders_of_adding() -> None:
    responses = drawn(4)
    added: dict[str, list[float]] = {name: [] for name in THREE}
    for order in permutations(THREE):
        for place, name in enumerate(order):
            before, after = frozenset(order[:place]), frozenset(order[: place + 1])
            added[name].append(float(responses[after][0] - responses[before][0]))
    for (name,), line in of_kind("share").items():
        assert by_session(line, responses)[0] == pytest.approx(np.mean(added[name]))


def test_shares_sum_to_the_whole_in_every_block() -> None:
    responses = drawn(5, blocks=7)
    total = sum(by_session(line, responses) for line in of_kind("share").values())
    (whole,) = of_kind("whole").values()
    assert total == pytest.approx(by_session(whole, responses))
    assert by_session(whole, responses) == pytest.approx(
        responses[frozenset(THREE)] - responses[frozenset()]
    )


def test_a_factor_that_changes_nothing_gets_nothing() -> None:
    responses = drawn(6)
    for cell in CELLS:
        responses[cell] = responses[cell - {"worker"}]
    for line in lines(THREE):
        if line.factors == ("worker",):
            assert by_session(line, responses)[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_line_is_a_contrast(count: int) -> None:
    """Weights sum to zero, so effects common to all arms of a block cancel."""
    names = tuple("abcd"[:count])
    found = lines(names)
    assert len(found) == 2**count - 1 + 3 * count + 1
    for line in found:
        assert math.fsum(line.weights.values()) == pytest.approx(0.0, abs=1e-12)


# ---- share of the whole effect ----


def test_fieller_by_hand() -> None:
    """Means 2 and 4, variances of means 1 and 1/4, uncorrelated, t^2 = 1: x = 1/2.

    (2 - 4 x)^2 <= 1 + x^2 / 4, that is 15.75 x^2 - 16 x + 3 <= 0.
    """
    part = np.array([2 + math.sqrt(2), 2 - math.sqrt(2), 2, 2]) * 1.0
    part = 2 + (part - 2) * math.sqrt(3 * 4 / 4)
    whole = 4 + np.array([0.0, 0.0, 1, -1]) * math.sqrt(3 / 2)
    assert np.var(part, ddof=1) / 4 == pytest.approx(1)
    assert np.var(whole, ddof=1) / 4 == pytest.approx(0.25)
    # The confidence level at which Student's t with three degrees of freedom is 1.
    level = 1 / 3 + math.sqrt(3) / (2 * math.pi)
    found = part_of_whole(part, whole, level)
    roots = np.sort(np.roots([15.75, -16, 3]))
    assert found == pytest.approx((0.5, *roots), rel=1e-6)


def test_a_part_of_an_unknown_whole_is_unbounded() -> None:
    rng = np.random.default_rng(7)
    part, whole = rng.normal(1, 1, size=8), rng.normal(0, 1, size=8)
    nothing = part_of_whole(part, whole - whole.mean(), 0.95)
    assert (nothing.low, nothing.high) == (-math.inf, math.inf)
    assert part_of_whole(np.ones(1), np.full(1, 2.0), 0.95) == (
        0.5,
        -math.inf,
        math.inf,
    )


def test_the_whole_is_all_of_itself() -> None:
    whole = np.random.default_rng(8).normal(3, 1, size=9)
    assert part_of_whole(whole, whole, 0.95) == pytest.approx((1, 1, 1))
    # Two blocks suffice if they agree.
    assert part_of_whole(whole[:2] / 2, whole[:2], 0.5) == pytest.approx((0.5,) * 3)


# ---- coverage ----


def test_intervals_cover_all_effects_at_once_and_parts_one_by_one() -> None:
    """400 experiments of ten blocks, in which reader and queue gain only together.

    Each block has its own factor, and each arm noise that grows with its latency. All
    17 lines must hold simultaneously in 95 % of the experiments, and each share in 95 %
    of them. A binomial share of 400 has standard deviation 0.011.
    """
    truth = {
        cell: -0.3 * ("reader" in cell)
        - 0.4 * ("queue" in cell)
        - 2.0 * ({"reader", "queue"} <= cell)
        + 0.2 * ("worker" in cell)
        for cell in CELLS
    }
    means = {cell: np.array([value]) for cell, value in truth.items()}
    drawn_lines = lines(THREE)
    true = np.array([float(by_session(line, means)[0]) for line in drawn_lines])
    shares = [n for n, line in enumerate(drawn_lines) if line.kind == "share"]
    generator = np.random.default_rng(41)
    together = inside = 0
    for _ in range(400):
        shared = generator.normal(0, 0.5, size=10)
        responses = {
            cell: value + shared + generator.normal(0, 0.1 - 0.03 * value, size=10)
            for cell, value in truth.items()
        }
        measured = [by_session(line, responses) for line in drawn_lines]
        found = [mean_interval(v, 1 - 0.05 / len(drawn_lines)) for v in measured]
        together += all(e.low <= t <= e.high for e, t in zip(found, true, strict=True))
        for place in shares:
            part = part_of_whole(measured[place], measured[-1], 0.95)
            inside += part.low <= true[place] / true[-1] <= part.high
    assert 0.94 <= together / 400 <= 0.995
    assert 0.93 <= inside / (3 * 400) <= 0.97
