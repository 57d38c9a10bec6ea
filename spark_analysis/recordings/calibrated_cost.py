"""What requests cost over what they did when the machine was calibrated: the load's.

Loads are shares of what the machine could do then. The recorder tells the ratio of each
run (``experiments/records/cost_ratio.py``); of the baseline it is the machine's doing,
and says by how much the load was another than the config says.
"""

from __future__ import annotations

import math

import numpy as np

from spark_analysis.recordings.contract import Manifest
from spark_analysis.statistics.intervals import Estimate, mean_interval
from spark_analysis.statistics.ratios import ratio_of


def calibrated_cost(manifest: Manifest) -> Estimate | None:
    """Return the geometric mean over the baseline's runs, with its t interval.

    None where nothing was calibrated.
    """
    logs = [
        math.log(run.cost_ratio)
        for run in manifest.runs_compared
        if run.arm == manifest.baseline and run.cost_ratio is not None
    ]
    if not logs:
        return None
    return ratio_of(mean_interval(np.array(logs), manifest.options.confidence))
