"""Accounts of clients: their recent use of a quota, and their throttle times.

An account whose state equals that of a new account is removed some time after its last
use. Clients that change their names therefore cost memory for that time only. Each use
checks two of the least recently used accounts, which takes constant time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from broker.requests.windowed_rate import WindowedAverage, WindowedRate, Windows

# The samples of Kafka's averages (metrics.num.samples, metrics.sample.window.ms).
AVERAGED: Final = Windows(count=2, size_ms=30_000)


class Account:
    """The use of a quota by a client, and its latest throttle times."""

    __slots__ = ("_throttles", "used_ms")

    def __init__(self) -> None:
        self.used_ms = 0
        self._throttles: WindowedAverage | None = None

    def note_throttle(self, throttled_ms: int, now_ms: int) -> None:
        """Add a throttle time to the average."""
        if self._throttles is None:
            self._throttles = WindowedAverage(AVERAGED)
        self._throttles.record(throttled_ms, now_ms)

    def throttle_ms(self, now_ms: int) -> float | None:
        """Return the mean throttle time of the last minute; None if there is none."""
        return None if self._throttles is None else self._throttles.mean(now_ms)

    def is_as_new(self, now_ms: int) -> bool:
        """Return whether a new account would give the same answers.

        Called for an account that was not used for the length of its windows.
        """
        return self.throttle_ms(now_ms) is None


class RateAccount(Account):
    """The rate of a client."""

    __slots__ = ("rate",)

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self.rate = WindowedRate(windows)


KeyT = TypeVar("KeyT")
AccountT = TypeVar("AccountT", bound=Account)


class Accounts(Generic[KeyT, AccountT]):
    """An account per key; each is kept for at least ``keep_ms``."""

    def __init__(self, new_account: Callable[[], AccountT], keep_ms: int) -> None:
        self._new_account = new_account
        self._keep_ms = keep_ms
        # Ordered by last use, the least recent first.
        self._accounts: OrderedDict[KeyT, AccountT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accounts)

    def account(self, key: KeyT, now_ms: int) -> AccountT:
        """Return the account of a key, possibly new; remove some unused accounts."""
        accounts = self._accounts
        found = accounts.pop(key, None) or self._new_account()
        found.used_ms = now_ms
        accounts[key] = found
        for _ in range(2):
            oldest_key = next(iter(accounts))
            oldest = accounts[oldest_key]
            if oldest.used_ms > now_ms - self._keep_ms:
                break
            del accounts[oldest_key]
            if not oldest.is_as_new(now_ms):
                oldest.used_ms = now_ms
                accounts[oldest_key] = oldest
        return found

    def latest(self, count: int) -> list[tuple[KeyT, AccountT]]:
        """Return the most recently used accounts, at most ``count``."""
        latest: list[tuple[KeyT, AccountT]] = []
        for key in reversed(self._accounts):
            if len(latest) == count:
                break
            latest.append((key, self._accounts[key]))
        return latest
