"""Statistics whose unit of inference is the replication: plain NumPy, no Spark.

Requests of one run are strongly dependent (one backlog delays hundreds of them): an
interval or a test that treats them as independent is wrong by an order of magnitude.
Everything here resamples, flips or compares whole runs; requests only ever estimate
the quantile of their own run, or of all runs pooled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
