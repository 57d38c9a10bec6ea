"""Bounds on new connections per second of an address: ``connection_creation_rate``.

The per-address part of Kafka's ``ConnectionQuotas`` (KIP-612). A connection that would
exceed the bound is not counted, and has to wait until the rate has fallen, at most one
window.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.quotas.accounts import Accounts, RateAccount
from broker.quotas.client_quotas import read_bound
from broker.quotas.entity import IP, names_of
from broker.requests.windowed_rate import Windows

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


class AddressRates:
    """The bounds, and the rates of addresses with a bound.

    ``initial`` contains configs by entity, which apply unless others are set.
    """

    def __init__(
        self,
        windows: Windows | None = None,
        initial: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._windows = windows or Windows()
        self._initial = initial or {}
        self.replace_all({})

    def replace_all(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the configs of all entities, and start new rates."""
        self._default = math.inf
        self._bounds: dict[str, float] = {}
        self._rates: Accounts[str, RateAccount] = Accounts(
            partial(RateAccount, self._windows), keep_ms=self._windows.reach_ms
        )
        for entity in {**self._initial, **configs}:
            self.put(entity, configs.get(entity, {}))

    def put(self, entity: str, configs: Mapping[str, str]) -> None:
        """Apply the configs of one entity; those of clients change nothing."""
        names = names_of(entity)
        if IP not in names:
            return
        merged = {**self._initial.get(entity, {}), **configs}
        bound = read_bound(merged.get(CONNECTION_CREATION_RATE))
        name = names[IP]
        if name is None:
            self._default = math.inf if bound is None else bound
            return
        address = _canonical(name)
        if bound is None:
            self._bounds.pop(address, None)
        else:
            self._bounds[address] = bound

    def record(self, address: str, now_ms: int) -> int:
        """Count a connection; return its wait in ms, 0 within the bound.

        A connection that has to wait is not counted.
        """
        bound = self._bounds.get(address, self._default)
        if bound == math.inf:
            return 0
        account = self._rates.account(address, now_ms)
        account.rate.record(1, now_ms)
        delay_ms = min(account.rate.delay_ms(bound, now_ms), self._windows.size_ms)
        if delay_ms:
            account.rate.record(-1, now_ms)
        return delay_ms

    def latest(self, count: int) -> list[tuple[str, RateAccount]]:
        """Return the latest addresses with a bound, at most ``count``."""
        return self._rates.latest(count)


def _canonical(name: str) -> str:
    """Return an address in the form reported by a listener."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
