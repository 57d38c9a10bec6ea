"""What Spark calls once per group: one Arrow table in, one small Arrow table out.

The records that come out are all that is computed of requests and of pairs of arms;
cells carry them as they are, so a statistic is a field here and a column of a table.
Pure functions of their table: the order of rows, the partitioning and the number of
workers change nothing. They need no JVM, and are tested without one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Final, get_type_hints

import numpy as np
import pyarrow as pa

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.bootstrap import block_weights, resampled_quantiles
from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.exceedance import Tail, tail
from spark_analysis.statistics.intervals import (
    Estimate,
    exceedance_band,
    hodges_lehmann,
    log_ratio_interval,
    quantile_interval,
)
from spark_analysis.statistics.paired import tost
from spark_analysis.statistics.quantiles import exceedance_curve, nearest_rank
from spark_analysis.statistics.ratios import factor, ratio_of
from spark_analysis.statistics.rounds import round_values, tail_of_rounds
from spark_analysis.statistics.step_down import holm

CURVE_RANKS: Final = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """All requests of one class under one arm at one point, nanoseconds throughout.

    ``point_index`` does not count when two are compared. Lists are by quantile, in the
    order asked; ``of_runs`` has the quantile of each of ``blocks`` in each, or its
    value where they are rounds (``statistics.rounds``), ``resampled`` that of each
    resample.
    """

    point_index: int = field(compare=False)
    class_name: str
    arm: str
    requests: int
    blocks: list[int]
    of_runs: list[list[float]]
    value: list[float]
    low: list[float]
    high: list[float]
    exceedances: list[int]
    vif: list[float]
    effective: list[float]
    resampled: list[list[float]]
    curve_ns: list[float]
    curve_share: list[float]
    curve_low: list[float]
    curve_high: list[float]

    def estimate(self, index: int) -> Estimate:
        """Return one of the pooled quantiles with its interval."""
        return Estimate(self.value[index], self.low[index], self.high[index])

    def tail(self, index: int) -> Tail:
        """Return what lies beyond one of the pooled quantiles."""
        return Tail(self.exceedances[index], self.vif[index], self.effective[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """An arm against the baseline over paired blocks, for one class and metric.

    ``value`` is the geometric mean of the blocks' ratios, between ``low`` and ``high``,
    and ``shift`` their robust (Hodges-Lehmann) middle. ``p`` is adjusted for the whole
    family, all classes and arms of a metric at a point; so is ``p_same``, which belongs
    to the margin.
    """

    point_index: int = field(compare=False)
    metric: str
    class_name: str
    arm: str
    value: float
    low: float
    high: float
    shift: float
    blocks_lower: int
    blocks_tied: int
    blocks: int
    p: float
    p_same: float

    @property
    def ratio(self) -> Estimate:
        """The ratio with its interval."""
        return Estimate(self.value, self.low, self.high)


def describe_distribution(
    table: pa.Table,
    *,
    quantiles: Sequence[Fraction],
    confidence: float,
    resamples: int,
    seed: int,
    episodes: bool = False,
) -> pa.Table:
    """Describe all requests of one class under one arm at one point.

    Columns needed: point_index, class, arm, block, intended_ns, latency_ns; blocks are
    rounds of ``episodes``, or long runs. Returns one `Distribution`.
    """
    blocks, arrived = _runs_in_arrival_order(table)
    runs = [np.sort(run) for run in arrived]
    pooled = np.sort(np.concatenate(runs))
    estimates = [quantile_interval(runs, pooled, q, confidence) for q in quantiles]
    tails = [
        tail_of_rounds(runs, quantile, estimate.value)
        if episodes
        else tail(arrived, quantile, estimate.value)
        for quantile, estimate in zip(quantiles, estimates, strict=True)
    ]
    weights = block_weights(len(runs), resamples, seed)
    curve, share = exceedance_curve(pooled, CURVE_RANKS)
    low, high = exceedance_band(runs, curve, confidence)
    return _arrow_table(
        Distribution,
        [
            Distribution(
                point_index=table["point_index"][0].as_py(),
                class_name=table["class"][0].as_py(),
                arm=table["arm"][0].as_py(),
                requests=len(pooled),
                blocks=blocks,
                of_runs=[
                    round_values(runs, pooled, quantile).tolist()
                    if episodes
                    else [nearest_rank(run, quantile) for run in runs]
                    for quantile in quantiles
                ],
                value=[estimate.value for estimate in estimates],
                low=[estimate.low for estimate in estimates],
                high=[estimate.high for estimate in estimates],
                exceedances=[found.exceedances for found in tails],
                vif=[found.vif for found in tails],
                effective=[found.effective for found in tails],
                resampled=[
                    resampled_quantiles(runs, quantile, weights).tolist()
                    for quantile in quantiles
                ],
                curve_ns=curve.tolist(),
                curve_share=share.tolist(),
                curve_low=low.tolist(),
                curve_high=high.tolist(),
            )
        ],
    )


def judge_family(
    table: pa.Table, *, margins: Mapping[str, float], confidence: float, seed: int
) -> pa.Table:
    """Judge every class and arm of one metric at one point, as one family.

    Columns needed: point_index, metric, class, arm, block, log_ratio (one row per run
    and class, the baseline's left out). Returns one `Contrast` per class and arm.
    """
    rows = table.to_pylist()
    blocks = sorted({row["block"] for row in rows})
    logs: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        logs.setdefault((row["class"], row["arm"]), {})[row["block"]] = row["log_ratio"]
    logs = dict(sorted(logs.items()))
    with_gaps = np.array(
        [[of.get(block, math.nan) for of in logs.values()] for block in blocks]
    )
    metric = rows[0]["metric"]
    contrasts = [column[~np.isnan(column)] for column in with_gaps.T]
    different = difference_p(with_gaps, [name for name, _ in logs], seed)
    same = holm(np.array([tost(found, margins[metric]) for found in contrasts]))
    return _arrow_table(
        Contrast,
        [
            Contrast(
                point_index=rows[0]["point_index"],
                metric=metric,
                class_name=class_name,
                arm=arm,
                p=float(p),
                p_same=float(p_same),
                **_of_contrast(found, confidence),
            )
            for (class_name, arm), found, p, p_same in zip(
                logs, contrasts, different, same, strict=True
            )
        ],
    )


def _of_contrast(logs: FloatArray, confidence: float) -> dict[str, Any]:
    """Return what one contrast says by itself, of the log-ratios of its blocks."""
    ratio = ratio_of(log_ratio_interval(logs, confidence))
    finite = bool(np.all(np.isfinite(logs)))
    return {
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "shift": factor(hodges_lehmann(logs)) if finite else ratio.value,
        "blocks_lower": int(np.count_nonzero(logs < 0)),
        "blocks_tied": int(np.count_nonzero(logs == 0)),
        "blocks": len(logs),
    }


def _runs_in_arrival_order(table: pa.Table) -> tuple[list[int], list[FloatArray]]:
    """Return the blocks, ascending, and an array of latencies for each.

    Requests of the same nanosecond stand in order of latency: any fixed order will do.
    """
    block = table["block"].to_numpy()
    latency = table["latency_ns"].to_numpy()
    order = np.lexsort((latency, table["intended_ns"].to_numpy(), block))
    found, starts = np.unique(block[order], return_index=True)
    return found.tolist(), list(np.split(latency[order], starts[1:]))


# How a field of a record is called in Spark's schemas and in Arrow's.
_TYPES: Final[Mapping[Any, tuple[str, pa.DataType]]] = {
    str: ("string", pa.string()),
    int: ("bigint", pa.int64()),
    float: ("double", pa.float64()),
    list[int]: ("array<bigint>", pa.list_(pa.int64())),
    list[float]: ("array<double>", pa.list_(pa.float64())),
    list[list[float]]: ("array<array<double>>", pa.list_(pa.list_(pa.float64()))),
}


def spark_schema(record: type) -> str:
    """Return the schema string of tables that hold such records."""
    return ", ".join(
        f"{name} {_TYPES[kind][0]}" for name, kind in get_type_hints(record).items()
    )


def _arrow_table(record: type, rows: Sequence[Any]) -> pa.Table:
    """Return records of one kind as a table with the schema that Spark expects."""
    hints = get_type_hints(record)
    return pa.Table.from_pylist(
        [asdict(row) for row in rows],
        schema=pa.schema([(name, _TYPES[kind][1]) for name, kind in hints.items()]),
    )
