"""Settings of the network layer from Kafka's keys."""

from __future__ import annotations

import pytest

from broker.config import BrokerConfig
from broker.network.settings import (
    connection_limits,
    deadline,
    idle_ns_max,
    memory_pool,
)
from broker.quotas.client_quotas import client_windows
from broker.requests.windowed_rate import Windows


def told(**keys: str) -> BrokerConfig:
    """Return a configuration of the keys; underscores stand for dots."""
    return BrokerConfig.from_written(
        {name.replace("_", "."): value for name, value in keys.items()}
    )


def limits(names: str, **keys: str):
    """Return the connection limits of a broker with listeners of these names."""
    return connection_limits(
        told(
            listeners=",".join(f"{name}://127.0.0.1:0" for name in names),
            listener_security_protocol_map=",".join(
                f"{name}:PLAINTEXT" for name in names
            ),
            inter_broker_listener_name=names[0],
            **keys,
        ),
        lambda host: {"twins": ["10.0.0.1", "10.0.0.2"]}.get(host, [host]),
    )


@pytest.mark.parametrize(("names", "protected"), [("A", None), ("AB", "A")])
def test_the_listener_among_brokers_is_protected_where_there_is_another(
    names: str, protected: str | None
) -> None:
    assert limits(names).protected == protected


def test_an_override_of_a_host_is_one_of_each_of_its_addresses() -> None:
    found = limits("A", max_connections_per_ip_overrides="twins:3,10.0.0.9:0")
    assert found.per_address_overrides == {"10.0.0.1": 3, "10.0.0.2": 3, "10.0.0.9": 0}


def test_a_listener_has_bounds_of_its_own_by_its_prefix() -> None:
    found = connection_limits(
        BrokerConfig.from_written(
            {
                "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "A",
                "max.connections": "7",
                "listener.name.b.max.connections": "5",
                "listener.name.a.max.connection.creation.rate": "3",
            }
        ),
        lambda host: [host],
    )
    assert (found.total, found.per_listener) == (7, {"B": 5})
    assert found.rate_per_listener == {"A": 3}


def test_times_and_sizes_are_taken_in_their_units() -> None:
    assert client_windows(
        told(quota_window_num="5", quota_window_size_seconds="2")
    ) == (Windows(count=5, size_ms=2000))
    assert idle_ns_max(told(connections_max_idle_ms="0")) == 0
    assert idle_ns_max(told(connections_max_idle_ms="7")) == 7_000_000
    assert idle_ns_max(told(connections_max_idle_ms="-1")) is None


def test_memory_for_requests_is_bounded_where_a_size_is_given() -> None:
    pool = memory_pool(told(queued_max_request_bytes="1", socket_request_max_bytes="1"))
    assert pool is not None
    assert pool.available_bytes == 1
    assert memory_pool(told(queued_max_request_bytes="-1")) is None


def test_only_an_admission_by_deadline_asks_for_requests_deadlines() -> None:
    assert deadline(told(doorkeeper_admission="deadline")) is not None
    assert deadline(told(doorkeeper_admission="block")) is None
