"""The admission rule of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from broker.config import (
    DOORKEEPER_ADMISSION,
    DOORKEEPER_ADMISSION_BURST_REQUESTS,
    DOORKEEPER_ADMISSION_DEADLINE_MS,
    DOORKEEPER_ADMISSION_FAVOURED,
    DOORKEEPER_ADMISSION_INTERVAL_MS,
    DOORKEEPER_ADMISSION_RATES_PER_S,
    DOORKEEPER_ADMISSION_RESERVED,
    DOORKEEPER_ADMISSION_TARGET_MS,
    QUEUED_MAX_REQUESTS,
    BrokerConfig,
)
from planes.admission import (
    Admission,
    Block,
    CoDel,
    Deadline,
    Exempt,
    Reserve,
    TokenBucket,
)
from planes.admission.token_bucket import Rate

_NS_PER_MS: Final = 1_000_000


def admission(config: BrokerConfig) -> Admission:
    """Return a new rule for the data plane, selected by ``doorkeeper.admission``."""
    return _RULES[config[DOORKEEPER_ADMISSION]](config)


def _block(config: BrokerConfig) -> Admission:
    return Block(capacity=config[QUEUED_MAX_REQUESTS])


def _reserve(config: BrokerConfig) -> Admission:
    return Reserve(
        capacity=config[QUEUED_MAX_REQUESTS],
        reserved=config[DOORKEEPER_ADMISSION_RESERVED],
        favoured=_favoured(config),
    )


def _exempt(config: BrokerConfig) -> Admission:
    return Exempt(capacity=config[QUEUED_MAX_REQUESTS], favoured=_favoured(config))


def _token_bucket(config: BrokerConfig) -> Admission:
    burst = config[DOORKEEPER_ADMISSION_BURST_REQUESTS]
    rates = {
        name: Rate(per_s=per_s, burst=burst.get(name, per_s))
        for name, per_s in config[DOORKEEPER_ADMISSION_RATES_PER_S].items()
    }
    return TokenBucket(capacity=config[QUEUED_MAX_REQUESTS], rates=rates)


def _codel(config: BrokerConfig) -> Admission:
    return CoDel(
        capacity=config[QUEUED_MAX_REQUESTS],
        target_ns=config[DOORKEEPER_ADMISSION_TARGET_MS] * _NS_PER_MS,
        interval_ns=config[DOORKEEPER_ADMISSION_INTERVAL_MS] * _NS_PER_MS,
        favoured=_favoured(config),
    )


def _deadline(config: BrokerConfig) -> Admission:
    limits = config[DOORKEEPER_ADMISSION_DEADLINE_MS]
    return Deadline(
        capacity=config[QUEUED_MAX_REQUESTS],
        limits_ns={name: limit * _NS_PER_MS for name, limit in limits.items()},
        favoured=_favoured(config),
    )


def _favoured(config: BrokerConfig) -> frozenset[str]:
    names = config[DOORKEEPER_ADMISSION_FAVOURED]
    return frozenset(names)


_RULES: Final[Mapping[str, Callable[[BrokerConfig], Admission]]] = MappingProxyType(
    {
        "block": _block,
        "reserve": _reserve,
        "exempt": _exempt,
        "token-bucket": _token_bucket,
        "codel": _codel,
        "deadline": _deadline,
    }
)
