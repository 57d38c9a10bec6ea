"""A broker process, a topic, and consumers and producers that are closed at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that the tests of a file share, each with a topic of its own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield process
    process.close()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Return a topic of six partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from tests.live.group_clients import PARTITIONS

    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(10)
    return name


@pytest.fixture
def join(broker: BrokerProcess, topic: str) -> Iterator[Any]:
    """Yield a function that starts members; the fixture closes them at the end."""
    from tests.live.group_members import Member

    members: list[Member] = []

    def start(*client: Any, **options: Any) -> Any:
        members.append(Member(broker, topic, *client, **options))
        return members[-1]

    yield start
    for member in members:
        member.stop()
    for member in members:
        member.close()


@pytest.fixture
def producing(broker: BrokerProcess, topic: str) -> Iterator[Any]:
    """Yield a function that starts producers; the fixture closes them at the end."""
    from tests.live.group_members import Producing

    started: list[Producing] = []

    def start(client: Any) -> Any:
        started.append(Producing(broker, topic, client))
        return started[-1]

    yield start
    for each in started:
        each.end()
