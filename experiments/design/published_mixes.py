"""Service mixes that scheduling papers have measured, by name.

Figures are in microseconds as published, copied from the artefact of Persephone
(Demoulin et al., SOSP 2021), which collects those of Shinjuku (Kaffes et al., NSDI
2019) and others: a share of the requests, and the cost of each. They are a thousand
times shorter than requests of a broker in Python, so a workload states a ``scale``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# Each mix: (share in per cent, cost in microseconds).
MIXES: Final[Mapping[str, tuple[tuple[float, float], ...]]] = MappingProxyType(
    {
        "high-bimodal": ((50.0, 1.0), (50.0, 100.0)),
        "extreme-bimodal": ((99.5, 0.5), (0.5, 500.0)),
        # NewOrder, Payment, Delivery, OrderStatus, StockLevel.
        "tpc-c": ((44.0, 20.0), (44.0, 5.7), (4.0, 88.0), (4.0, 6.0), (4.0, 100.0)),
        # GET and SCAN.
        "rocksdb": ((50.0, 1.5), (50.0, 635.0)),
    }
)
