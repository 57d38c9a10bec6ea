"""The cost of identical requests: a second witness of how fast the machine was.

Every arm of a block serves the same requests, and the same request is the same work. So
the log-ratio of what it cost under an arm and under the baseline says by how much the
machine was slower there; the median over a round's requests is the round's, the mean of
these over rounds the arm's. The cost is ``service_ns``, what the request's handler
used; reading and choosing it are not in it, for there the arms differ. Still an arm may
be dearer on a machine as fast, where its requests meet caches that others have used.

It is told, and decides nothing: which rounds count depends on the probe alone
(``experiments/running/speed.py``), never on a latency or on this cost. Both are what an
arm does, and dropping rounds by them would choose the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.load import aggregates
from spark_analysis.statistics.intervals import Estimate, log_ratio_interval
from spark_analysis.statistics.ratios import factor, ratio_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCost:
    """What requests cost under an arm over what they cost under the baseline.

    ``ratio`` is the geometric mean over blocks of ``ratios``, the median of each block;
    its interval is Student's t over blocks. Of the requests in the window ``pairs``
    were compared; ``left_out`` lack a good answer or a recorded cost under either arm.
    """

    arm: str
    ratio: Estimate
    ratios: Mapping[int, float]
    pairs: int
    left_out: int

    def beyond(self, band: float) -> frozenset[int]:
        """Return the blocks in which the cost differs by more than a factor."""
        return frozenset(
            block for block, of in self.ratios.items() if not 1 / band <= of <= band
        )


def paired_costs(
    window: DataFrame, manifest: Manifest
) -> dict[int, tuple[PairedCost, ...]]:
    """Return the paired cost of every arm but the baseline, by point, in arms' order.

    Nothing where costs are declared instead of measured, or no broker recorded them. An
    arm without a single pair is left out. ``window`` are rows of ``read_requests``.
    """
    if manifest.deterministic or not manifest.brokers_recorded:
        return {}
    pair = ["point_index", "block", "request_id"]
    costs = window.selectExpr(
        *pair, "arm", "IF(outcome = 'ok' AND service_ns > 0, service_ns, NULL) AS cost"
    )
    base = costs.where(costs["arm"] == manifest.baseline)
    rest = costs.where(costs["arm"] != manifest.baseline)
    log = "ln(cost / base_cost)"
    found = (
        rest.join(base.selectExpr(*pair, "cost AS base_cost"), pair)
        .groupBy("point_index", "arm", "block")
        .agg(
            *aggregates(
                {
                    "log_ratio": f"median({log})",
                    "pairs": f"count({log})",
                    "requests": "count(*)",
                }
            )
        )
    )
    of_arm: dict[tuple[int, str], list[Mapping[str, int | float]]] = {}
    for row in found.toArrow().sort_by("block").to_pylist():
        of_arm.setdefault((row["point_index"], row["arm"]), []).append(row)
    return {
        index: tuple(
            _over_blocks(arm.name, of_arm[index, arm.name], manifest.options.confidence)
            for arm in manifest.at(point).arms_compared
            if any(row["pairs"] for row in of_arm.get((index, arm.name), ()))
        )
        for index, point in enumerate(manifest.points)
    }


def _over_blocks(
    arm: str, rows: list[Mapping[str, int | float]], confidence: float
) -> PairedCost:
    logs = {int(row["block"]): row["log_ratio"] for row in rows if row["pairs"]}
    log = log_ratio_interval(np.array(list(logs.values())), confidence)
    pairs = int(sum(row["pairs"] for row in rows))
    return PairedCost(
        arm=arm,
        ratio=ratio_of(log),
        ratios={block: factor(of) for block, of in logs.items()},
        pairs=pairs,
        left_out=int(sum(row["requests"] for row in rows)) - pairs,
    )
