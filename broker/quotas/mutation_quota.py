"""Quota on mutations: partitions created and deleted per second.

Kafka's ``ControllerMutationQuotaManager`` (KIP-599). A client has a bucket that fills
with its bound B per second, up to B * N * W. N is ``controller.quota.window.num``, W is
``controller.quota.window.size.seconds``. A new bucket is full. A topic takes one token
per partition, even if fewer remain. The bucket may therefore become negative, and the
next topic has to wait for -tokens / B seconds. So no topic is too large for a quota,
and splitting a request does not circumvent it.

A *strict* quota rejects a topic while the bucket is negative, and takes no tokens. A
*permissive* quota, for versions without an error code for this case, takes the tokens
and throttles the client.
"""

from __future__ import annotations

import math
from typing import Final

from broker.quotas.accounts import Account
from broker.quotas.client_bounds import ClientBounds
from broker.requests.windowed_rate import Windows

_MS_PER_S: Final = 1000
_INT_MAX: Final = 2**31 - 1


class Bucket(Account):
    """The tokens of a client; a new bucket is full."""

    __slots__ = ("_burst", "_filled_ms", "_per_s", "tokens")

    def __init__(self) -> None:
        super().__init__()
        self.tokens = math.inf
        self._filled_ms = 0
        self._per_s = self._burst = 0.0

    def fill(self, per_s: float, burst: float, now_ms: int) -> None:
        """Add the tokens since the last call, at the present bound."""
        self._per_s, self._burst = per_s, burst
        self.tokens = self.tokens_at(now_ms)
        self._filled_ms = now_ms

    def is_as_new(self, now_ms: int) -> bool:
        """Return whether the bucket is full."""
        return self.tokens_at(now_ms) >= self._burst and super().is_as_new(now_ms)

    def tokens_at(self, now_ms: int) -> float:
        """Return the tokens at a time, with the last bound."""
        added = self._per_s * ((now_ms - self._filled_ms) / _MS_PER_S)
        return min(self._burst, self.tokens + added)


class MutationQuota(ClientBounds[Bucket]):
    """The bounds on mutations, and the buckets of clients."""

    def __init__(self, windows: Windows) -> None:
        self._span_ms = windows.reach_ms
        super().__init__(Bucket, keep_ms=self._span_ms)

    def record(
        self, user: str, client_id: str, count: int, now_ms: int, *, is_strict: bool
    ) -> int | None:
        """Take ``count`` tokens; return the throttle time if there are too few.

        Returns None within the quota. An exceeded strict quota takes no tokens.
        """
        key, bound = self.applies(user, client_id)
        if bound == math.inf:
            return None
        bound = max(bound, 0.0)
        bucket = self.account(key, now_ms)
        bucket.fill(bound, bound * self._span_ms / _MS_PER_S, now_ms)
        if not is_strict:
            bucket.tokens -= count
        if bucket.tokens < 0:
            return self._delay_ms(-bucket.tokens, bound)
        if is_strict:
            bucket.tokens -= count
        return None

    def _delay_ms(self, missing: float, bound: float) -> int:
        """Return the delay until the bucket is at zero; one span for a bound of 0."""
        if not bound:
            return self._span_ms
        return math.floor(min(missing / bound * _MS_PER_S + 0.5, _INT_MAX))
