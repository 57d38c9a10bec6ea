"""The configs of a subscription of client metrics: Kafka's ``ClientMetricsConfigs``.

A subscription lists metrics for clients to push, and selects the clients (KIP-714).
Kafka's broker offers subscriptions to clients only if it has a reporter for them. This
broker has no reporter: subscriptions are stored and have no effect.

Regular expressions have the syntax of RE2, which bounds their cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from broker.cluster.config_overrides import OverrideKey, read_overrides
from broker.protocol.config_key import Key, integer, words
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.patterns import full_matcher
from planes.slices import in_steps

_INTERVAL: Final = "interval.ms"
_MATCH: Final = "match"
_INTERVAL_MIN_MS: Final = 100
_INTERVAL_MAX_MS: Final = 3_600_000
# Properties by which clients are selected.
_SELECTORS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def _words(name: str, doc: str) -> Key[tuple[str, ...]]:
    """Return the key of a list, which refuses empty items and drops duplicates."""
    key = words(name, (), doc)

    def parse(written: str) -> tuple[str, ...]:
        found = key.parse(written)
        if "" in found:
            raise ValueError("items that are not empty")
        return tuple(dict.fromkeys(found))

    return replace(key, parse=parse)


_KEYS: Final = (
    integer(_INTERVAL, 300_000, "Milliseconds from one push of metrics to the next."),
    _words(_MATCH, "Clients that push metrics, as SELECTOR=EXPRESSION,... or all."),
    _words("metrics", "Prefixes of the names of metrics; * for all."),
)
CLIENT_METRICS_KEYS: Final[Mapping[str, OverrideKey]] = MappingProxyType(
    {key.name: OverrideKey(key=key) for key in _KEYS}
)


async def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raise INVALID_REQUEST or INVALID_CONFIG for invalid configs."""
    unknown = next((name for name in configs if name not in CLIENT_METRICS_KEYS), None)
    if unknown is not None:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unknown client metrics configuration: {unknown}",
        )
    values = read_overrides(CLIENT_METRICS_KEYS, configs, "client metrics")
    interval_ms = values.get(_INTERVAL, _INTERVAL_MIN_MS)
    if not _INTERVAL_MIN_MS <= interval_ms <= _INTERVAL_MAX_MS:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Invalid value {interval_ms} for {_INTERVAL}, interval must be between "
            f"{_INTERVAL_MIN_MS} and {_INTERVAL_MAX_MS} (1 hour)",
        )
    async for pattern in in_steps(values.get(_MATCH, ())):
        _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    """Raise INVALID_CONFIG unless a pattern is a selector, ``=`` and an expression.

    Trailing equals signs are ignored, as by Java's ``split``.
    """
    selector, *rest = pattern.rstrip("=").split("=")
    is_legal = selector.strip() in _SELECTORS and len(rest) == 1
    if is_legal:
        try:
            full_matcher(rest[0].strip())
        except KafkaError:
            is_legal = False
    if not is_legal:
        raise KafkaError(
            ErrorCode.invalid_config, f"Illegal client matching pattern: {pattern}"
        )
