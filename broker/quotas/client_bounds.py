"""Bounds of one kind of quota by entity, and the accounts of clients.

The most specific entity with a bound applies to a client: user and client id, user and
default client, user, default user and client id, both defaults, default user, client
id, default client. Clients with the same entity and the same names share one account,
over all their connections: a new connection brings no new allowance.

An account that equals a new one is forgotten some time after its last use: clients with
ever new ids cost memory for that time only. Two of the least recently used ones are
looked at with each use, so that this takes constant time.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from broker.quotas.entity import DEFAULT, sanitized
from broker.requests.windowed_rate import WindowedRate

# User and client id, sanitized, of which one may be "".
ClientKey: TypeAlias = tuple[str, str]
# The samples of Kafka's averages (metrics.num.samples, metrics.sample.window.ms).
_SAMPLES: Final = 2
_SAMPLE_MS: Final = 30_000


class Account:
    """The use of a quota by a client, and its latest throttle times."""

    __slots__ = ("_throttles", "used_ms")

    def __init__(self) -> None:
        self.used_ms = 0
        # Sum and number of throttle times, once there is one.
        self._throttles: tuple[WindowedRate, WindowedRate] | None = None

    def note_throttle(self, throttled_ms: int, now_ms: int) -> None:
        """Count a throttle time into the average."""
        if self._throttles is None:
            self._throttles = (
                WindowedRate(_SAMPLES, _SAMPLE_MS),
                WindowedRate(_SAMPLES, _SAMPLE_MS),
            )
        total, count = self._throttles
        total.record(throttled_ms, now_ms)
        count.record(1, now_ms)

    def throttle_ms(self, now_ms: int) -> float | None:
        """Return the average throttle time of the last minute; None: there is none."""
        if self._throttles is None:
            return None
        (total, _), (count, _) = (each.measure(now_ms) for each in self._throttles)
        return total / count if count else None

    def is_as_new(self, now_ms: int) -> bool:
        """Return whether a new account, in place of this one, makes no difference."""
        return self.throttle_ms(now_ms) is None


AccountT = TypeVar("AccountT", bound=Account)


class ClientBounds(Generic[AccountT]):
    """The bounds of one kind, and an account per client.

    ``new_account`` makes one; ``keep_ms`` is how long it is kept at least.
    """

    def __init__(self, new_account: Callable[[], AccountT], keep_ms: int) -> None:
        self._new_account = new_account
        self._keep_ms = keep_ms
        self._bounds: dict[str, float] = {}
        # Least recently used first.
        self._accounts: OrderedDict[ClientKey, AccountT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accounts)

    @property
    def is_set(self) -> bool:
        """Return whether any entity has a bound."""
        return bool(self._bounds)

    def put(self, entity: str, bound: float | None) -> None:
        """Set the bound of an entity, or remove it."""
        if bound is None:
            self._bounds.pop(entity, None)
        else:
            self._bounds[entity] = bound

    def applies(self, user: str, client_id: str) -> tuple[ClientKey, float]:
        """Return the key of a client's account, and its bound, perhaps infinite."""
        for entity, key in _levels(user, client_id):
            bound = self._bounds.get(entity)
            if bound is not None:
                return key, bound
        return ("", client_id), math.inf

    def account(self, key: ClientKey, now_ms: int) -> AccountT:
        """Return the account of a client, and forget some that are as new."""
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

    def note_throttle(
        self, user: str, client_id: str, throttled_ms: int, now_ms: int
    ) -> None:
        """Count a throttle time of a client, for the metrics."""
        key, _ = self.applies(user, client_id)
        self.account(key, now_ms).note_throttle(throttled_ms, now_ms)

    def latest(self, count: int) -> list[tuple[ClientKey, AccountT]]:
        """Return the most recently used accounts, at most ``count``."""
        latest: list[tuple[ClientKey, AccountT]] = []
        for key in reversed(self._accounts):
            if len(latest) == count:
                break
            latest.append((key, self._accounts[key]))
        return latest


def _levels(user: str, client_id: str) -> Iterator[tuple[str, ClientKey]]:
    """Iterate over the entities of a client, the most specific first, and its keys.

    As in Kafka, a client without an id has the quotas of its user only.
    """
    user = sanitized(user)
    client = sanitized(client_id)
    for name in (user, DEFAULT):
        if client_id:
            yield f"users/{name}/clients/{client}", (user, client)
            yield f"users/{name}/clients/{DEFAULT}", (user, client)
        yield f"users/{name}", (user, "")
    if client_id:
        yield f"clients/{client}", ("", client)
        yield f"clients/{DEFAULT}", ("", client)
