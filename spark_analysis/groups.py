"""What Spark calls once per group: one Arrow table in, one small Arrow table out.

Pure functions of their table: the order of rows, the partitioning and the number of
workers change nothing. They need no JVM, and are tested without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.bootstrap import block_weights, resampled_quantiles
from spark_analysis.statistics.equivalence import tost
from spark_analysis.statistics.exceedance import tail
from spark_analysis.statistics.intervals import (
    hodges_lehmann,
    log_ratio_interval,
    quantile_interval,
)
from spark_analysis.statistics.quantiles import exceedance_curve, nearest_rank
from spark_analysis.statistics.ratios import factor, log_ratios
from spark_analysis.statistics.sign_flip import max_t

CURVE_POINTS: Final = 240

DISTRIBUTION: Final = (
    "place bigint, class string, arm string, requests bigint, blocks array<bigint>, "
    "of_runs array<array<double>>, value array<double>, "
    "low array<double>, high array<double>, exceedances array<bigint>, "
    "vif array<double>, effective array<double>, resampled array<array<double>>, "
    "curve_ns array<double>, curve_share array<double>"
)
CONTRAST: Final = (
    "place bigint, metric string, class string, arm string, ratio double, "
    "low double, high double, shift double, lower bigint, ties bigint, "
    "blocks bigint, p double, p_same double"
)


def describe_distribution(
    table: pa.Table,
    *,
    levels: Sequence[Fraction],
    confidence: float,
    resamples: int,
    seed: int,
) -> pa.Table:
    """Describe all requests of one class under one arm at one point.

    Columns needed: place, class, arm, block, intended_ns, latency_ns. Per level: the
    quantile of each run, the pooled one with its interval over runs, the weight of the
    tail beyond it, and the quantile of each resample of blocks. Nanoseconds throughout.
    """
    blocks, arrived = _runs_in_arrival_order(table)
    runs = [np.sort(run) for run in arrived]
    pooled = np.sort(np.concatenate(runs))
    estimates = [quantile_interval(runs, level, confidence) for level in levels]
    tails = [
        tail(arrived, level, estimate.value)
        for level, estimate in zip(levels, estimates, strict=True)
    ]
    weights = block_weights(len(runs), resamples, seed)
    curve, share = exceedance_curve(pooled, CURVE_POINTS)
    return _one_row(
        {
            "place": table["place"][0].as_py(),
            "class": table["class"][0].as_py(),
            "arm": table["arm"][0].as_py(),
            "requests": len(pooled),
            "blocks": blocks,
            "of_runs": [[nearest_rank(run, level) for run in runs] for level in levels],
            "value": [estimate.value for estimate in estimates],
            "low": [estimate.low for estimate in estimates],
            "high": [estimate.high for estimate in estimates],
            "exceedances": [found.exceedances for found in tails],
            "vif": [found.vif for found in tails],
            "effective": [found.effective for found in tails],
            "resampled": [
                resampled_quantiles(runs, level, weights).tolist() for level in levels
            ],
            "curve_ns": curve.tolist(),
            "curve_share": share.tolist(),
        }
    )


def contrast_family(
    table: pa.Table,
    *,
    baseline: str,
    margins: dict[str, float],
    confidence: float,
    seed: int,
) -> pa.Table:
    """Compare every class and arm of one metric with the baseline, as one family.

    Columns needed: place, metric, class, arm, block, value (one row per run and class).
    ``ratio`` is the geometric mean of the blocks' ratios with its interval, ``shift``
    the Hodges-Lehmann estimate of it, ``lower`` the blocks in which the arm's value was
    lower, ``p`` the max-T adjusted p-value over all classes and arms together.
    """
    rows = sorted(table.to_pylist(), key=lambda row: (row["class"], row["arm"]))
    of = {"place": rows[0]["place"], "metric": rows[0]["metric"]}
    blocks = sorted({row["block"] for row in rows})
    values: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        cell = values.setdefault((row["class"], row["arm"]), {})
        cell[row["block"]] = row["value"]
    cells = [key for key in values if key[1] != baseline]
    logs = {
        key: log_ratios(values[key], values[key[0], baseline], blocks) for key in cells
    }
    if not cells:
        return _rows([], CONTRAST)
    margin = margins[of["metric"]]
    adjusted = max_t(np.column_stack([logs[key] for key in cells]), seed)
    return _rows(
        [
            {**of, **_contrast(key, logs[key], float(p), confidence, margin)}
            for key, p in zip(cells, adjusted, strict=True)
        ],
        CONTRAST,
    )


def _contrast(
    key: tuple[str, str],
    with_gaps: FloatArray,
    p: float,
    confidence: float,
    margin: float,
) -> dict[str, Any]:
    logs = with_gaps[~np.isnan(with_gaps)]
    found = log_ratio_interval(logs, confidence)
    finite = bool(np.all(np.isfinite(logs)))
    return {
        "class": key[0],
        "arm": key[1],
        "ratio": factor(found.value),
        "low": factor(found.low),
        "high": factor(found.high),
        "shift": factor(hodges_lehmann(logs) if finite else found.value),
        "lower": int(np.count_nonzero(logs < 0)),
        "ties": int(np.count_nonzero(logs == 0)),
        "blocks": len(logs),
        "p": p,
        "p_same": tost(logs, margin),
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


def _one_row(row: dict[str, Any]) -> pa.Table:
    return _rows([row], DISTRIBUTION)


_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "array<bigint>": pa.list_(pa.int64()),
    "array<double>": pa.list_(pa.float64()),
    "array<array<double>>": pa.list_(pa.list_(pa.float64())),
}


def _rows(rows: list[dict[str, Any]], schema: str) -> pa.Table:
    """Return rows as the Arrow table that Spark expects for its own schema string."""
    fields = [field.split(" ") for field in schema.split(", ")]
    return pa.Table.from_pylist(
        rows, schema=pa.schema([(name, _ARROW[kind]) for name, kind in fields])
    )
