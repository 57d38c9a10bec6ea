"""Waits between attempts: exponential, bounded, with jitter.

Kafka's ``ExponentialBackoff`` with KIP-580's parameters: factor 2 and a jitter of 20 %
in either direction, so that clients do not reconnect to a broker at the same time.
"""

from __future__ import annotations

import random
from typing import Final

from broker.client.client_config import (
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    ClientConfig,
)

_FACTOR: Final = 2.0
_JITTER: Final = 0.2
# Limit of doublings, beyond which every realistic bound has been reached.
_DOUBLINGS_MAX: Final = 30


class Backoff:
    """Waits in seconds, by the number of consecutive failures."""

    def __init__(self, initial_s: float, max_s: float, rng: random.Random) -> None:
        self._initial_s = min(initial_s, max_s)
        self._max_s = max_s
        self._rng = rng

    def after(self, failures: int) -> float:
        """Return the wait after ``failures`` consecutive failures; 0 after none."""
        if failures == 0:
            return 0.0
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        term = min(self._initial_s * _FACTOR**doublings, self._max_s)
        return term * self._rng.uniform(1 - _JITTER, 1 + _JITTER)


def retry_backoff(config: ClientConfig, rng: random.Random) -> Backoff:
    """Return the waits between attempts at a request, from a client's settings."""
    initial_s = config.seconds(RETRY_BACKOFF_MS)
    return Backoff(initial_s, config.seconds(RETRY_BACKOFF_MAX_MS), rng)
