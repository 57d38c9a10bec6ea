"""Sweeps: their points, validation, and the runs that a resume repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError
from experiments.design.points import factors, planned_points, points
from experiments.running import runner
from tests.experiments.load_and_share import CONTROL, Content, content, listed


def rates(experiment: Experiment) -> list[float]:
    return [each.arrivals.mean_rate_per_s() for each in experiment.workload.traffic]


# ---- points ----


def test_a_full_factorial_design_crosses_the_levels_the_last_factor_fastest() -> None:
    found = points(parse(content()))
    assert [point.name for point in found] == [
        "load=0.5 share=few",
        "load=0.5 share=none",
        "load=0.8 share=few",
        "load=0.8 share=none",
    ]
    assert [rates(point.experiment) for point in found] == [
        pytest.approx([50, 450]),
        pytest.approx([0, 500]),
        pytest.approx([80, 720]),
        pytest.approx([0, 800]),
    ]
    assert factors(found) == {"load": ["0.5", "0.8"], "share": ["few", "none"]}
    assert all(point.experiment.sweep is None for point in found)


def test_a_listed_design_has_the_points_that_it_lists() -> None:
    found = points(
        parse(
            listed(
                {
                    "levels": {"bound": "low"},
                    "set": {"broker.set.queued.max.requests": 2},
                },
                {"levels": {"bound": "high"}},
            )
        )
    )
    assert [point.name for point in found] == ["bound=low", "bound=high"]
    assert [point.experiment.broker.set for point in found] == [
        {"queued.max.requests": 2},
        {"queued.max.requests": 50},
    ]


@pytest.mark.parametrize(
    ("key", "value", "found_in"),
    [
        ("broker.set.num.io.threads", 3, lambda e: e.broker.set["num.io.threads"]),
        (
            "arms.priority.x.set.doorkeeper.reader",
            "class-aware",
            lambda e: e.arms[1].set["doorkeeper.reader"],
        ),
        ("arms.priority.x.model.own", ["queue"], lambda e: list(e.arms[1].model.own)),
        ("virtual.slice_us.produce", 7.0, lambda e: e.virtual.slice_us["produce"]),
        (
            "workload.traffic.produce.service",
            {"kind": "constant", "mean_us": 3.0},
            lambda e: e.workload.traffic[1].service.model_dump(),
        ),
        ("limits.drain_s", 2.5, lambda e: e.limits.drain_s),
    ],
)
def test_a_level_sets_any_key_of_the_run(
    key: str, value: object, found_in: Callable[[Experiment], object]
) -> None:
    (point,) = points(parse(listed({"levels": {"it": "on"}, "set": {key: value}})))
    assert found_in(point.experiment) == value


def test_whole_numbers_stay_whole_when_they_are_scaled() -> None:
    key = "workload.traffic.produce.connections"
    (point,) = points(parse(listed({"levels": {"it": "on"}, "scale": {key: 2.5}})))
    assert point.experiment.workload.traffic[1].connections == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"set": {"workload.traffic.produce.arrivals.rate_per": 1}},
            r"sweep\.points\[0\]\.set: 'workload\.traffic\..*': "
            r"unknown key 'rate_per'; did you mean 'rate_per_s'\?",
        ),
        ({"set": {"workload.traffic.data.slo_ms": 1}}, "has only control, produce"),
        ({"set": {"workload.traffic.produce": {}}}, "is an entry of 'traffic'"),
        ({"set": {"experiment.seed": 4}}, "only keys of workload, arms, "),
        ({"set": {"analysis.alpha": 0.5}}, "only keys of workload, arms, "),
        ({"set": {"limits.drain_s.x": 1}}, "'drain_s' is no table in this file"),
        ({"scale": {"arms.fifo.scheduler": 2}}, "is 'fifo' in this file, no number"),
        (
            {"scale": {"broker.set.num.io.threads": 2}},
            "is None in this file, no number",
        ),
        ({"set": {CONTROL: "many"}}, r"sweep, point 'it=on': .*found 'many'"),
        ({"set": {CONTROL: -1}}, "found -1, expected greater than or equal to 0"),
        (
            {"set": {"arms.fifo.scheduler": "wfq"}},
            "changes the definition of an arm or a class",
        ),
        (
            {"set": {"workload.traffic.produce.class": "x"}},
            "changes the definition of an arm or a",
        ),
        ({"sets": {}}, r"sweep\.points\[0\]\.sets: unknown key; did you mean 'set'\?"),
    ],
)
def test_a_change_that_means_nothing_is_refused_by_its_key(
    change: Content, message: str
) -> None:
    with pytest.raises(ExperimentError, match=message):
        points(parse(listed({"levels": {"it": "on"}, **change})))


def with_sweep(edit: Callable[[Content], None]) -> Content:
    changed = content()
    edit(changed["sweep"])
    return changed


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s.update(design="random"), "'design' = 'random' is none of"),
        (lambda s: s.pop("design"), "sweep: needs the key 'design'"),
        (lambda s: s.update(factors=[]), "sweep.factors: found"),
        (
            lambda s: s["factors"][1].update(name="load"),
            "two factors have the name 'load'",
        ),
        (
            lambda s: s["factors"][0]["levels"][1].update(name="0.5"),
            r"factors\[0\]: two levels have the name '0.5'",
        ),
        (
            lambda s: s["factors"][0]["levels"][0].update(set={CONTROL: 1}),
            f"'load' sets '{CONTROL}', and 'share' sets '{CONTROL}'",
        ),
        (
            lambda s: s["factors"][0]["levels"][0].update(
                set={"workload.traffic.control.arrivals": {}}
            ),
            f"sets 'workload.traffic.control.arrivals', and 'share' sets '{CONTROL}'",
        ),
    ],
)
def test_a_design_that_is_none_is_refused(
    edit: Callable[[Content], None], message: str
) -> None:
    with pytest.raises(ExperimentError, match=message.replace(".", r"\.")):
        parse(with_sweep(edit))


def test_points_that_are_listed_twice_or_differ_in_factors_are_refused() -> None:
    with pytest.raises(ExperimentError, match="two points have the name 'a=1'"):
        parse(listed({"levels": {"a": "1"}}, {"levels": {"a": "1"}}))
    with pytest.raises(ExperimentError, match="has other factors than the first: a"):
        parse(listed({"levels": {"a": "1"}}, {"levels": {"b": "1"}}))


# ---- order ----


def test_every_block_at_every_point_has_every_arm_in_its_own_order() -> None:
    built = content()
    built["experiment"]["blocks"] = 40
    trials = list(runner.plan(planned_points(parse(built))))
    names = {(it.point.name, it.block, it.arm.name) for it in trials}
    assert len(trials) == len(names) == 4 * 80
    first = Counter(c.arm.name for c in trials if c.order == 0)
    # Binomial(160, 1/2): mean 80, standard deviation 6.3; the tolerance is five.
    assert abs(first["fifo"] - 80) < 32
    assert [c.block for c in trials] == sorted(c.block for c in trials)
    leading = Counter(
        next(c.point.name for c in trials if c.block == block) for block in range(40)
    )
    # Binomial(40, 1/4): mean 10, standard deviation 2.7; the tolerance is three.
    assert all(2 <= leading[point] <= 18 for point in {c.point.name for c in trials})
