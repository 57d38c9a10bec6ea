"""Statistics whose unit of inference is the replication: plain NumPy, no Spark.

Requests of one run are strongly dependent (one backlog delays hundreds of them). An
interval or a test that treats them as independent is wrong by an order of magnitude.
These functions therefore resample, flip or compare whole runs. Requests only estimate
the quantile of their own run, or of all runs pooled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
