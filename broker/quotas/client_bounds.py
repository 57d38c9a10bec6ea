"""Bounds of one kind of quota by entity, and the accounts of clients.

The most specific entity with a bound applies to a client: user and client id, user and
default client, user, default user and client id, both defaults, default user, client
id, default client. Clients with the same entity and the same names share one account
for all their connections, so a new connection adds no allowance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

from broker.quotas.accounts import Accounts, AccountT
from broker.quotas.entity import DEFAULT, sanitized

# User and client id, sanitized; one of them may be "".
ClientKey: TypeAlias = tuple[str, str]


class ClientBounds(Accounts[ClientKey, AccountT]):
    """The bounds of one kind, and an account per client."""

    def __init__(self, new_account: Callable[[], AccountT], keep_ms: int) -> None:
        super().__init__(new_account, keep_ms)
        self._bounds: dict[str, float] = {}

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
        """Return the key of a client's account, and its bound, possibly infinite."""
        for entity, key in _levels(user, client_id):
            bound = self._bounds.get(entity)
            if bound is not None:
                return key, bound
        return ("", client_id), math.inf

    def note_throttle(
        self, user: str, client_id: str, throttled_ms: int, now_ms: int
    ) -> None:
        """Record a throttle time of a client, for metrics."""
        key, _ = self.applies(user, client_id)
        self.account(key, now_ms).note_throttle(throttled_ms, now_ms)


def _levels(user: str, client_id: str) -> Iterator[tuple[str, ClientKey]]:
    """Iterate over the entities of a client with its keys, most specific first.

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
