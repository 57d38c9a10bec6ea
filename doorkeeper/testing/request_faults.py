"""Faults that a test requests, and the choice of the affected requests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal, TypeAlias

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode

Action: TypeAlias = Literal["fail", "delay", "disconnect", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """Effect on matching requests; None in a filter matches every request.

    ``times`` bounds the number of affected requests. With ``handled`` the broker
    handles the request before its answer is lost.
    """

    action: Action
    api: ApiKey | None = None
    topic: str | None = None
    client_id: str | None = None
    times: int | None = None
    error: ErrorCode = ErrorCode.none
    seconds: float = 0.0
    handled: bool = False

    def matches(self, api: ApiKey, client_id: str, topics: tuple[str, ...]) -> bool:
        """Whether this fault affects a request."""
        return (
            self.api in (None, api)
            and self.client_id in (None, client_id)
            and (self.topic is None or self.topic in topics)
        )


class FaultTable:
    """The faults of one broker, in the order in which they were added."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._rules: dict[int, FaultRule] = {}
        self._hits: dict[int, int] = {}

    def add(self, rule: FaultRule) -> int:
        """Add a fault; return its number."""
        number = next(self._numbers)
        self._rules[number] = rule
        self._hits[number] = 0
        return number

    def remove(self, number: int | None = None) -> None:
        """Remove a fault, or all of them; their hit counts remain."""
        if number is None:
            self._rules.clear()
        else:
            self._rules.pop(number, None)

    def hits(self, number: int) -> int:
        """Return how many requests a fault has affected."""
        return self._hits[number]

    def met_by(
        self, api: ApiKey, client_id: str, topics: tuple[str, ...]
    ) -> list[FaultRule]:
        """Return the faults that affect a request, and count their hits.

        Delays add up. The first other fault ends the request, so later ones do not
        affect it.
        """
        met = []
        for number, rule in list(self._rules.items()):
            if not rule.matches(api, client_id, topics):
                continue
            met.append(rule)
            self._hits[number] += 1
            if self._hits[number] == rule.times:
                del self._rules[number]
            if rule.action != "delay":
                break
        return met
