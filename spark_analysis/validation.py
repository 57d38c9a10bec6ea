"""Simulated level, coverage and power of the verdicts.

``make validate-statistics`` writes the table in docs/method.md. Experiments with known
ratios are simulated, request by request, and judged like recorded ones: sessions of
rounds, two baselines, one process per arm and session with its own random factor.

Arms of a round get the same requests. A latency is a product: the request's own
latency, the arm's noise, the factor of its process, and the arm's ratio, which is
therefore exact for every quantile. Own latencies are lognormal, or Pareto with tail
index 1.5 and a factor shared by a round's requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np

from spark_analysis.judging.cell_sessions import CellSessions, quantile_sessions
from spark_analysis.judging.cells import Cell, judge_cells
from spark_analysis.judging.metrics import Metric, metrics_of
from spark_analysis.judging.rules import Rules
from spark_analysis.recordings.contract import Options
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.paired import t_p

SESSIONS: Final = 14
ROUNDS: Final = 6
MARGIN: Final = 0.05
ALPHA: Final = 0.05
EXPERIMENTS: Final = 1000
# The rivals' true ratios: three without an effect, two with one, one at the margin.
RATIOS: Final[Mapping[str, float]] = {
    "null-1": 1.0,
    "null-2": 1.0,
    "null-3": 1.0,
    "small": 0.9,
    "large": 0.6,
    "margin": 1 + MARGIN,
}
NULLS: Final = ("null-1", "null-2", "null-3")
# Equal to the baseline in all sessions but the first, and far from it there.
DEGENERATE: Final = "degenerate"
_OPTIONS: Final = Options(
    quantiles=(Fraction(95, 100), Fraction(99, 100)),
    alpha=ALPHA,
    margin_latency=MARGIN,
    margin_goodput=MARGIN,
    exceedances_shown=10,
)
_BEGIN, _END = "<!-- table: make validate-statistics -->", "<!-- end of table -->"
_PAGE: Final = Path(__file__).parent.parent / "docs/method.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A machine and a load: distributions of latencies and of process effects.

    ``process`` is the standard deviation of the logarithm of a process's factor.
    """

    heavy: bool
    process: float
    requests_per_round: int = 100


SCENARIOS: Final = (
    *(
        Scenario(heavy=heavy, process=sd)
        for heavy in (False, True)
        for sd in (0, 0.02, 0.05)
    ),
    Scenario(heavy=False, process=0.02, requests_per_round=20),
    Scenario(heavy=True, process=0.02, requests_per_round=20),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares over the experiments of a scenario, in one quantile.

    ``refused`` and ``coverage`` are shares of the contrasts without an effect;
    ``level`` and ``pooled`` (judged by the jackknife) of the A/A contrasts; the others
    of experiments. ``family`` is the level over all contrasts without an effect, with
    the noise floor.
    """

    scenario: Scenario
    metric: Metric
    refused: float
    pooled: float
    level: float
    family: float
    coverage: float
    power_small: float
    power_large: float
    power_large_degenerate: float
    false_equivalent: float
    level_of_rounds: float


def simulate(scenario: Scenario, experiments: int, seed: int) -> list[Rates]:
    """Return the rates of a scenario, one for each quantile."""
    generator = np.random.default_rng(seed)
    metrics = metrics_of(_OPTIONS)[:-1]
    counts = {metric.name: Counter[str]() for metric in metrics}
    for _ in range(experiments):
        latencies = draw(scenario, generator)
        for metric in metrics:
            counts[metric.name].update(_judge(latencies, metric))
    return [
        _rates(scenario, metric, counts[metric.name], experiments) for metric in metrics
    ]


def draw(scenario: Scenario, generator: np.random.Generator) -> dict[str, FloatArray]:
    """Return the latencies of one experiment by arm: (sessions, rounds, requests)."""
    shape = (SESSIONS, ROUNDS, scenario.requests_per_round)
    rounds = (SESSIONS, ROUNDS, 1)
    if scenario.heavy:
        shared = generator.lognormal(0, 0.5, rounds)
        trace = shared * (1 + generator.pareto(1.5, shape))
    else:
        trace = generator.lognormal(0, 0.5, shape)
    found = {}
    for arm, ratio in {"fifo": 1.0, "fifo-again": 1.0, **RATIOS}.items():
        own = generator.lognormal(0, 0.2, shape)
        if scenario.heavy:
            own = own * generator.lognormal(0, 0.2, rounds)
        process = generator.lognormal(0, scenario.process, (SESSIONS, 1, 1))
        found[arm] = ratio * process * own * trace
    found[DEGENERATE] = found["fifo"].copy()
    found[DEGENERATE][0] *= 20
    return found


def cells_of(
    latencies: Mapping[str, FloatArray], metric: Metric, arms: Sequence[str]
) -> list[CellSessions]:
    """Return the sessions of arms in a quantile."""
    assert metric.quantile is not None
    return [
        quantile_sessions(
            {session: each.ravel() for session, each in enumerate(latencies[arm])},
            metric.quantile,
            arm=arm,
            metric=metric.name,
        )
        for arm in arms
    ]


def judge(cells: Sequence[CellSessions], metric: Metric) -> dict[str, Cell]:
    """Return the verdicts by arm."""
    rules = Rules(
        baseline="fifo",
        again="fifo-again",
        primary=("control", metric.name),
        options=_OPTIONS,
    )
    return {cell.arm: cell for cell in judge_cells(cells, [metric], rules)}


def _judge(latencies: Mapping[str, FloatArray], metric: Metric) -> Iterator[str]:
    """Yield the names of the outcomes of one experiment."""
    arms = ["fifo", "fifo-again", *RATIOS, DEGENERATE]
    found = cells_of(latencies, metric, arms)
    alone, together = judge(found[:-1], metric), judge(found, metric)
    yield from _of_again(alone["fifo-again"])
    ratios = [ratio for arm in NULLS if (ratio := alone[arm].ratio) is not None]
    yield from ["null refused"] * (len(NULLS) - len(ratios))
    yield from ["covered" for ratio in ratios if ratio.low <= 1 <= ratio.high]
    happened = {
        "false verdict": any(alone[arm].word in ("better", "worse") for arm in NULLS),
        "small": alone["small"].word == "better",
        "large": alone["large"].word == "better",
        "large, degenerate": together["large"].word == "better",
        "false equivalent": alone["margin"].word == "equivalent",
        "rounds": _of_rounds(latencies, metric) < ALPHA,
    }
    yield from (name for name, did in happened.items() if did)


def _of_again(cell: Cell) -> Iterator[str]:
    """Yield outcomes of the A/A arm, whose p-value is not adjusted for a family."""
    if cell.contrast is not None and cell.contrast.p is not None:
        yield "A/A"
        if cell.contrast.p < ALPHA:
            yield "A/A significant"
        if cell.contrast.pooled:
            yield "pooled"


def _of_rounds(latencies: Mapping[str, FloatArray], metric: Metric) -> float:
    """Return the p-value of A/A with rounds as units, which is wrong."""
    assert metric.quantile is not None
    logs = [
        np.log(np.quantile(latencies[arm], float(metric.quantile), axis=2)).ravel()
        for arm in ("fifo", "fifo-again")
    ]
    return t_p(logs[1] - logs[0])


def _rates(
    scenario: Scenario, metric: Metric, counts: Counter[str], experiments: int
) -> Rates:
    nulls = len(NULLS) * experiments
    compared = nulls - counts["null refused"]
    return Rates(
        scenario=scenario,
        metric=metric,
        refused=counts["null refused"] / nulls,
        pooled=counts["pooled"] / max(counts["A/A"], 1),
        level=counts["A/A significant"] / max(counts["A/A"], 1),
        family=counts["false verdict"] / experiments,
        coverage=counts["covered"] / max(compared, 1),
        power_small=counts["small"] / experiments,
        power_large=counts["large"] / experiments,
        power_large_degenerate=counts["large, degenerate"] / experiments,
        false_equivalent=counts["false equivalent"] / experiments,
        level_of_rounds=counts["rounds"] / experiments,
    )


def table(rates: Sequence[Rates], experiments: int, seed: int) -> str:
    """Return the table of docs/method.md."""
    headings = (
        "latencies", "requests per session", "process effect", "quantile",
        "jackknife", "refused", "level", "level of the family", "coverage",
        "power, 0.9", "power, 0.6", "power, 0.6, degenerate", "false equivalent",
        "level, rounds as units",
    )  # fmt: skip
    lines = [" | ".join(headings), " | ".join(["---", *["---:"] * (len(headings) - 1)])]
    for of in rates:
        scenario = of.scenario
        shares = (
            of.pooled, of.refused, of.level, of.family, of.coverage, of.power_small,
            of.power_large, of.power_large_degenerate, of.false_equivalent,
            of.level_of_rounds,
        )  # fmt: skip
        texts = (
            "heavy" if scenario.heavy else "lognormal",
            str(ROUNDS * scenario.requests_per_round),
            f"{scenario.process:.0%}",
            of.metric.label,
            *(f"{share:.3f}" for share in shares),
        )
        lines.append(" | ".join(texts))
    body = "\n".join(f"| {line} |" for line in lines)
    return f"{experiments} experiments per row, seed {seed}.\n\n{body}\n"


def main(experiments: int = EXPERIMENTS, seed: int = 31, page: Path = _PAGE) -> None:
    """Simulate all scenarios and write the table into the page."""
    rates = [
        each
        for number, scenario in enumerate(SCENARIOS)
        for each in simulate(scenario, experiments, seed + number)
    ]
    head, _, rest = page.read_text("utf-8").partition(_BEGIN)
    tail = rest.partition(_END)[2]
    made = table(rates, experiments, seed)
    page.write_text(f"{head}{_BEGIN}\n{made}{_END}{tail}", "utf-8", newline="\n")


if __name__ == "__main__":
    main()
