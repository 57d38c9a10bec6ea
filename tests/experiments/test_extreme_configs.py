"""Configs with extreme values: correct, or refused with the key.

Means are compared with the textbook formulas in 80 digits. They are also compared with
SciPy, whose truncated Pareto is unstable at the extremes.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from doorkeeper.cli import main
from experiments.design.config import parse
from experiments.design.config_errors import ExperimentError
from experiments.design.config_file import load
from experiments.design.workload import ParetoService, Service
from experiments.load import trace
from experiments.load.arrivals import demands
from experiments.load.size import expected, refuse_oversize

SERVICES: TypeAdapter[Service] = TypeAdapter(Service)
GB = 10**9
EXTREMES = (
    *(0.0, 5e-324, 1e-300, 1e-12, 1e-9, 1e-6, 1e-3, 0.5, 1.0, 1 + 1e-15, 1.000001),
    *(1.5, 2.0, 100.0, 1e3, 1e6, 1e7, 1e9, 1e12, 1e200, 1e300, 1.7e308),
)
# Drawn from the whole range of floats, and from the poles of the formulas.
values = st.sampled_from(EXTREMES) | st.floats(min_value=0, allow_infinity=False)
services = st.one_of(
    st.fixed_dictionaries({"kind": st.just("constant"), "mean_us": values}),
    st.fixed_dictionaries({"kind": st.just("exponential"), "mean_us": values}),
    st.fixed_dictionaries(
        {"kind": st.just("lognormal"), "mean_us": values, "cv": values}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("pareto"),
            **dict.fromkeys(("alpha", "low_us", "high_us"), values),
        }
    ),
    st.lists(st.tuples(values, values), min_size=1, max_size=3).map(
        lambda rows: {
            "kind": "choice",
            "values_us": [row[0] for row in rows],
            "weights": [row[1] for row in rows],
        }
    ),
)


def content(service: Any = None, arrivals: Any = None, **workload: Any) -> Any:
    return {
        "experiment": {"name": "t", "seed": 7, "blocks": 1, "baseline": "fifo"},
        "workload": {
            "duration_s": 1.0,
            **workload,
            "traffic": [
                {
                    "name": "load",
                    "arrivals": arrivals or {"kind": "poisson", "rate_per_s": 50.0},
                    "request": {"api": "produce"},
                    "service": service,
                }
            ],
        },
        "arms": [{"name": "fifo", "scheduler": "fifo"}],
    }


def exact_mean(service: Mapping[str, Any]) -> float:
    """Return the mean of a service by its textbook formula, in 80 digits."""
    with localcontext() as context:
        context.prec = 80
        if service["kind"] == "choice":
            weights = [Decimal(each) for each in service["weights"]]
            pairs = zip(map(Decimal, service["values_us"]), weights, strict=True)
            return float(sum(value * weight for value, weight in pairs) / sum(weights))
        if service["kind"] != "pareto":
            return float(service["mean_us"])
        alpha, low, high = bounded_pareto(service)
        mass = 1 - (low / high) ** alpha
        if alpha == 1:
            return float(low * (high / low).ln() / mass)
        return float(moment(1, alpha, low, high))


def bounded_pareto(service: Mapping[str, Any]) -> tuple[Decimal, Decimal, Decimal]:
    alpha, low, high = (Decimal(service[it]) for it in ("alpha", "low_us", "high_us"))
    return alpha, low, high


def moment(k: int, alpha: Decimal, low: Decimal, high: Decimal) -> Decimal:
    """Return the k-th moment of the bounded Pareto distribution, k other than alpha."""
    mass = 1 - (low / high) ** alpha
    ratio = (1 - (low / high) ** (alpha - k)) / mass
    return alpha / (alpha - k) * low**k * ratio


@given(service=services)
def test_a_service_has_its_mean_or_is_refused_with_the_key(
    service: dict[str, Any],
) -> None:
    try:
        made = SERVICES.validate_python(service)
    except ValidationError:
        with pytest.raises(ExperimentError) as fault:
            parse(content(service))
        assert fault.value.path.startswith("workload.traffic[0].service")
        return
    assert made.mean() == pytest.approx(exact_mean(service), rel=1e-9)
    draw = demands(made, random.Random(1))
    drawn = [draw() for _ in range(20)]
    assert all(1 <= each < 2**63 for each in drawn)


@pytest.mark.parametrize(
    ("alpha", "low_us", "high_us"),
    [
        *((1 + 1e-9, 100.0, 1e5), (1 - 1e-9, 100.0, 1e5), (1.0, 100.0, 1e5)),
        *((1e-6, 100.0, 1e5), (0.1, 1.0, 1e7), (1e6, 100.0, 1e5)),
        *((1.5, 100.0, 100.0000001), (1e-3, 0.001, 1e7), (3.0, 5.0, 1e7)),
    ],
)
def test_pareto_draws_have_the_mean_at_the_poles_of_its_formula(
    alpha: float, low_us: float, high_us: float
) -> None:
    """The tolerance is five standard errors of the exact moments; the seed is fixed."""
    service = {"alpha": alpha, "low_us": low_us, "high_us": high_us, "kind": "pareto"}
    made = ParetoService.model_validate(service)
    draw, n = demands(made, random.Random(3)), 40_000
    found = statistics.fmean(draw() for _ in range(n)) / 1000
    mean = exact_mean(service)
    with localcontext() as context:
        context.prec = 80
        second = moment(2, *bounded_pareto(service))
        error = float(max(second - Decimal(mean) ** 2, Decimal(0)) / n) ** 0.5
    assert made.mean() == pytest.approx(mean, rel=1e-12)
    # Rounding adds at most half a nanosecond.
    assert abs(found - mean) <= 5 * error + 0.0005


def test_pareto_agrees_with_scipy_where_scipy_is_stable() -> None:
    made = ParetoService(kind="pareto", alpha=1.7, low_us=200.0, high_us=20_000.0)
    theirs = stats.truncpareto(b=1.7, c=100.0, scale=200.0).mean()
    assert made.mean() == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(
    ("service", "key"),
    [
        ({"kind": "exponential", "mean_us": 1e300}, "service.mean_us"),
        ({"kind": "lognormal", "mean_us": 100.0, "cv": 1e200}, "service.cv"),
        ({"kind": "constant", "mean_us": 1e-9}, "service.mean_us"),
        (
            {"kind": "pareto", "alpha": 5e-324, "low_us": 1.0, "high_us": 2.0},
            "service.alpha",
        ),
        ({"kind": "published", "mix": "tpc-c", "scale": 1e300}, "service.scale"),
    ],
)
def test_an_impossible_distribution_is_refused_with_its_key(
    service: dict[str, Any], key: str
) -> None:
    with pytest.raises(ExperimentError) as fault:
        parse(content(service))
    assert fault.value.path == f"workload.traffic[0].{key}"


ARRIVALS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("poisson"), "rate_per_s": values}),
    st.fixed_dictionaries({"kind": st.just("constant"), "rate_per_s": values}),
    st.fixed_dictionaries(
        {
            "kind": st.just("bursts"),
            **dict.fromkeys(
                ("rate_per_s", "every_s", "on_s", "idle_rate_per_s"), values
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("mmpp"),
            "rates_per_s": st.lists(values, min_size=2, max_size=2),
            "dwell_s": st.lists(values, min_size=2, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("on-off"),
            **dict.fromkeys(("rate_per_s", "on_s", "off_s"), values),
        }
    ),
)


@given(arrivals=ARRIVALS, duration_s=values)
def test_a_trace_is_drawn_in_bounded_memory_or_refused_with_the_key(
    arrivals: dict[str, Any], duration_s: float
) -> None:
    """A limit of 10 MB allows a trace of some thousand requests."""
    try:
        made = parse(content(None, arrivals, duration_s=duration_s))
        refuse_oversize(made, GB // 100)
    except ExperimentError as fault:
        assert fault.path.startswith("workload")  # noqa: PT017
        return
    drawn = trace.generate(made, 0)
    (entry,) = made.workload.traffic
    mean = expected(made, entry)
    # Poisson counts of modulated rates: a state may last for the whole run.
    most = max(arrivals.get("rates_per_s") or [arrivals["rate_per_s"]]) * duration_s
    assert len(drawn) <= mean + most + 8 * (mean + most) ** 0.5 + 8


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
def test_a_rate_of_a_billion_is_refused_with_its_requests_and_memory(
    tmp_path: Path, command: str
) -> None:
    config = tmp_path / "huge.toml"
    config.write_text(TOML.replace("RATE", "1e9").replace("SCHEDULER", "fifo"))
    found = CliRunner().invoke(main, ["experiment", command, str(config)])
    assert found.exit_code == 2
    assert "workload.traffic['load'].arrivals: means 20,000,000,000 requests" in (
        found.output
    )
    assert "14,000.0 GB of memory" in found.output


TOML = """
[experiment]
name = "t"
seed = 7
blocks = 1
baseline = "fifo"
world = "model"

[workload]
duration_s = 20.0

[[workload.traffic]]
name = "load"
arrivals = { kind = "poisson", rate_per_s = RATE }
request = { api = "produce" }

[[arms]]
name = "fifo"
scheduler = "SCHEDULER"
"""


def test_an_unknown_scheduler_is_refused_with_the_nearest(tmp_path: Path) -> None:
    config = tmp_path / "t.toml"
    config.write_text(TOML.replace("RATE", "10.0").replace("SCHEDULER", "priorty"))
    found = CliRunner().invoke(main, ["experiment", "validate", str(config)])
    assert found.exit_code == 2
    assert "arms['fifo']: doorkeeper.scheduler: found 'priorty'" in found.output
    assert "did you mean 'priority'?" in found.output


def test_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    config = tmp_path / "t.toml"
    text = TOML.replace("RATE", "10.0").replace("SCHEDULER", "fifo")
    config.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load(config).name == "t"


@pytest.mark.parametrize(
    "names", ["", ",", "fifo,", ":x", "../x:y", "fifo=1", "\udcff"]
)
def test_a_scheduler_that_is_no_name_is_refused(tmp_path: Path, names: str) -> None:
    config = tmp_path / "t.toml"
    config.write_text(TOML.replace("RATE", "10.0").replace("SCHEDULER", "fifo"))
    command = ["experiment", "plan", str(config), "--schedulers", names]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == 2
    assert "Error: " in found.output


def test_the_plan_of_a_load_whose_cost_is_unknown_has_no_duration(
    tmp_path: Path,
) -> None:
    config = tmp_path / "t.toml"
    text = TOML.replace("rate_per_s = RATE", "load = 0.5")
    config.write_text(text.replace("SCHEDULER", "fifo"))
    found = CliRunner().invoke(main, ["experiment", "plan", str(config)])
    assert found.exit_code == 0, found.output
    assert "duration unknown, as is the cost of a request of 'load'" in found.output


@pytest.mark.parametrize("content", [b"", b"\xff\xfe{}", b"[1, 2]", b"{}"])
def test_a_calibration_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    config, given = tmp_path / "t.toml", tmp_path / "costs.json"
    config.write_text(TOML.replace("RATE", "10.0").replace("SCHEDULER", "fifo"))
    given.write_bytes(content)
    command = ["experiment", "run", str(config), "--calibration", str(given)]
    found = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "out")])
    assert found.exit_code == 2
    assert f"Error: {given}" in found.output
