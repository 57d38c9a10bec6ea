"""Lateness of the load generator: the only reason to discard a round.

The generator is an open loop, so a late request meets a broker in another state than
intended. Neither check reads a latency or an answer.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

# The reason of a discarded run starts with this word.
DISCARDED: Final = "discarded"


def lateness(offered_ns: Int64s, intended_ns: Int64s) -> dict[str, int]:
    """Summarise the generator's lateness (nearest rank), in ns."""
    late = np.sort(offered_ns - intended_ns)
    if not len(late):
        return {"p50": 0, "p99": 0, "max": 0}
    ranks = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: int(late[max(0, int(np.ceil(share * len(late))) - 1)])
        for name, share in ranks.items()
    }


def late(p99_ns: int, limit_ms: float) -> str:
    """Return the reason to discard a round for the p99 of the lateness, or ""."""
    if p99_ns <= limit_ms * 1e6:
        return ""
    return f"generator late: p99 {p99_ns / 1e6:.2f} ms > {limit_ms:.3g} ms"


def without_cpu(off_cpu_ns: int, limit_ms: float) -> str:
    """Return the reason to discard a round for the longest stall, or ""."""
    if off_cpu_ns <= limit_ms * 1e6:
        return ""
    return f"generator without its CPU: {off_cpu_ns / 1e6:.2f} ms > {limit_ms:.3g} ms"
