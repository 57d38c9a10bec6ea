"""pytest fixtures: a Kafka broker or cluster for each test that requests one.

A marker gives arguments of `doorkeeper.testing.broker` and ``cluster``:
``@pytest.mark.kafka_broker(scheduler="fifo")``. The first test that needs a broker
imports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from doorkeeper.testing import Broker, Cluster

# Kafka's bound on the length of a topic's name.
_NAME_MAX = 249


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    for fixture in ("kafka_broker", "kafka_cluster"):
        config.addinivalue_line(
            "markers",
            f"{fixture}(**arguments): arguments of the test's {fixture}",
        )


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the test's own, in memory."""
    from doorkeeper.testing import broker

    with broker(**_arguments(request, "kafka_broker")) as running:
        yield running


@pytest.fixture
def kafka_bootstrap_servers(kafka_broker: Broker) -> str:
    """The address of the test's broker."""
    return kafka_broker.bootstrap_servers


@pytest.fixture
def kafka_topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> str:
    """An empty topic of one partition, called after the test."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)
    return kafka_broker.create_topic(name[:_NAME_MAX])


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers of the test's own, in memory."""
    from doorkeeper.testing import cluster

    with cluster(**_arguments(request, "kafka_cluster")) as running:
        yield running


def _arguments(request: pytest.FixtureRequest, marker: str) -> dict[str, Any]:
    found = request.node.get_closest_marker(marker)
    return {} if found is None else dict(found.kwargs)
