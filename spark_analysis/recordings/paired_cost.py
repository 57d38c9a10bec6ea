"""CPU cost of identical requests under an arm and under the baseline.

Every arm of a block serves the same requests, and the same request is the same work.
The log-ratio of its two costs therefore shows the speed of the machine, and an arm's
additional cost. The cost is ``service_ns``, the CPU time of the request's handler. It
excludes reading and scheduling a request.

A session's value is the median log-ratio over its requests, and an arm's the mean over
sessions. The median is read from a histogram with buckets of 0.01 %, which is its
precision; Spark combines counts instead of collecting ratios. One pass over the rows
combines the costs of each request.

These values are reported only. They discard no round and no session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.load import aggregates, literal
from spark_analysis.recordings.tally import COSTED
from spark_analysis.statistics.intervals import Estimate, log_ratio_interval
from spark_analysis.statistics.ratios import factor, ratio_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BUCKETS_PER_E: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCost:
    """Cost of requests under an arm over their cost under the baseline.

    ``ratio`` is the geometric mean over sessions of ``ratios``, the median of each; its
    interval is Student's t over sessions. ``pairs`` of the requests in the window were
    compared; ``left_out`` lack a good answer or a recorded cost under either arm.
    """

    arm: str
    ratio: Estimate
    ratios: Mapping[int, float]
    pairs: int
    left_out: int

    def beyond(self, band: float) -> frozenset[int]:
        """Return the sessions in which the cost differs by more than a factor."""
        return frozenset(
            session for session, of in self.ratios.items() if not 1 / band <= of <= band
        )


def paired_costs(
    window: DataFrame, manifest: Manifest
) -> dict[int, tuple[PairedCost, ...]]:
    """Return the paired cost of every arm but the baseline, by point, in arms' order.

    Empty if costs are declared instead of measured, or no broker recorded them. An arm
    without any pair is left out. ``window`` are rows of ``read_requests``.
    """
    if manifest.deterministic or not manifest.brokers_recorded:
        return {}
    arms = [arm.name for arm in manifest.arms_compared if arm.name != manifest.baseline]
    of_arm: dict[tuple[int, str], list[Mapping[str, int | float]]] = {}
    found = medians_of_pairs(window, manifest.baseline, arms)
    for row in found.toArrow().sort_by("session").to_pylist():
        key = row["point_index"], arms[row["arm_index"]]
        of_arm.setdefault(key, []).append(row)
    return {
        index: tuple(
            _over_sessions(arm, of_arm[index, arm], manifest.options.confidence)
            for arm in arms
            if any(row["pairs"] for row in of_arm.get((index, arm), ()))
        )
        for index in range(len(manifest.points))
    }


def medians_of_pairs(
    window: DataFrame, baseline: str, arms: Sequence[str]
) -> DataFrame:
    """Return the median log-ratio by point, arm and session, with pairs and requests.

    ``arm_index`` is the index in ``arms``.
    """
    return _medians(_log_ratios(window, baseline, arms))


def _log_ratios(window: DataFrame, baseline: str, arms: Sequence[str]) -> DataFrame:
    """Return a row per request and arm with the log-ratio of its costs, or null."""
    cost = f"IF({COSTED}, service_ns, NULL)"
    of_arm = {f"cost{i}": _of_arm(arm, cost) for i, arm in enumerate(arms)}
    sent = {f"sent{i}": f"count_if(arm = {literal(a)})" for i, a in enumerate(arms)}
    columns = {"base": _of_arm(baseline, cost), **of_arm, **sent}
    requests = window.groupBy("point_index", "session", "block", "request_id").agg(
        *aggregates(columns)
    )
    of_each = ", ".join(
        f"named_struct('arm_index', {i}, 'sent', sent{i}, "
        f"'log_ratio', ln(cost{i} / base))"
        for i in range(len(arms))
    )
    return requests.selectExpr(
        "point_index", "session", f"inline(array({of_each}))"
    ).where("sent > 0")


def _of_arm(arm: str, cost: str) -> str:
    return f"max(IF(arm = {literal(arm)}, {cost}, NULL))"


def _medians(ratios: DataFrame) -> DataFrame:
    keys = ("point_index", "arm_index", "session")
    bucket = f"int(floor(log_ratio * {_BUCKETS_PER_E}))"
    counted = (
        ratios.selectExpr(*keys, "log_ratio", f"{bucket} AS bucket")
        .groupBy(*keys, "bucket")
        .agg(*aggregates({"requests": "count(*)", "pairs": "count(log_ratio)"}))
    )
    of_session = f"PARTITION BY {', '.join(keys)}"
    placed = counted.selectExpr(
        *keys,
        "bucket",
        f"sum(requests) OVER ({of_session}) AS requests",
        f"sum(pairs) OVER ({of_session}) AS pairs",
        f"sum(pairs) OVER ({of_session} ORDER BY bucket NULLS FIRST "
        "ROWS UNBOUNDED PRECEDING) AS reached",
    )
    middle = f"(min(IF(2 * reached >= pairs, bucket, NULL)) + 0.5D) / {_BUCKETS_PER_E}"
    return placed.groupBy(*keys).agg(
        *aggregates(
            {
                "log_ratio": middle,
                "pairs": "first(pairs)",
                "requests": "first(requests)",
            }
        )
    )


def _over_sessions(
    arm: str, rows: list[Mapping[str, int | float]], confidence: float
) -> PairedCost:
    logs = {int(row["session"]): row["log_ratio"] for row in rows if row["pairs"]}
    log = log_ratio_interval(np.array(list(logs.values())), confidence)
    pairs = int(sum(row["pairs"] for row in rows))
    return PairedCost(
        arm=arm,
        ratio=ratio_of(log),
        ratios={session: factor(of) for session, of in logs.items()},
        pairs=pairs,
        left_out=int(sum(row["requests"] for row in rows)) - pairs,
    )
