"""Metrics of quotas, under the names of Kafka's JMX exporter rules for them.

``kafka.server:type=Produce,user=U,client-id=C`` with ``byte-rate`` becomes
``kafka_server_quota_byte_rate{resource="Produce",user="U",clientId="C"}``. Clients
without a bound have no metrics. The number of clients with metrics is bounded; the most
recent ones are included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from broker.observation.metric import PIECE, Metric
from broker.quotas.accounts import Account, RateAccount
from broker.quotas.address_rates import AddressRates
from broker.quotas.client_bounds import ClientKey
from broker.quotas.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)

_SHOWN_MAX: Final = 1000
# Kafka's type of each kind, and the name of its rate.
_NAMES: Final = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: ("Produce", "byte_rate"),
        CONSUMER_BYTE_RATE: ("Fetch", "byte_rate"),
        REQUEST_PERCENTAGE: ("Request", "request_time"),
    }
)


def client_quota_metrics(
    quotas: ClientQuotas, addresses: AddressRates, now_ms: int
) -> Iterator[Metric | None]:
    """Iterate over rates, tokens and throttle times."""
    for kind, quota in quotas.rates.items():
        resource, rate = _NAMES[kind]
        for number, (key, account) in enumerate(quota.latest(_SHOWN_MAX), 1):
            value = account.rate.per_s(now_ms)
            yield from _of_client(resource, key, rate, value, account, now_ms)
            if not number % PIECE:
                yield None
    mutations = quotas.mutations.latest(_SHOWN_MAX)
    for number, (key, bucket) in enumerate(mutations, 1):
        tokens = bucket.tokens_at(now_ms)
        yield from _of_client(
            "ControllerMutation", key, "tokens", tokens, bucket, now_ms
        )
        if not number % PIECE:
            yield None
    for number, (address, account) in enumerate(addresses.latest(_SHOWN_MAX), 1):
        yield _address_rate(address, account, now_ms)
        if not number % PIECE:
            yield None


def _of_client(
    resource: str,
    key: ClientKey,
    name: str,
    value: float,
    account: Account,
    now_ms: int,
) -> Iterator[Metric]:
    user, client = key
    labels = {"resource": resource, "user": user, "clientId": unquote(client)}
    yield _gauge(f"kafka_server_quota_{name}", value, labels)
    throttle_ms = account.throttle_ms(now_ms)
    if throttle_ms is not None:
        yield _gauge("kafka_server_quota_throttle_time", throttle_ms, labels)


def _address_rate(address: str, account: RateAccount, now_ms: int) -> Metric:
    return _gauge(
        "kafka_server_socket_server_metrics_connection_accept_rate",
        account.rate.per_s(now_ms),
        {"ip": address},
    )


def _gauge(name: str, value: float, labels: Mapping[str, str]) -> Metric:
    return Metric(name=name, kind="gauge", value=value, labels=labels)
