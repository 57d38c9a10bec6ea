"""The administration client and the web console against Apache Kafka itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import trio
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.network_client import connect_tcp
from tests.client.interoperation import compare_admins, write_with_ours
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import NEWEST, VERSIONS, KafkaPrograms
from tests.web_console.asgi_client import get
from tests.web_console.consoles import console_of

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module", params=(*VERSIONS, NEWEST))
def bootstrap(
    request: pytest.FixtureRequest,
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The address of Apache Kafka of each version."""
    programs = programs_of(request.param)
    kafka = ApacheKafka(programs, tmp_path_factory.mktemp("kafka"))
    yield kafka.bootstrap
    kafka.kill()


def test_librdkafkas_admin_and_ours_receive_the_same(bootstrap: str) -> None:
    compare_admins(bootstrap)


def test_the_console_shows_apache_kafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("shown", 1)])["shown"].result(30)
    records = [(b"k", b'{"a":1}', [])]
    trio.run(write_with_ours, bootstrap, "shown", "zstd", records)

    start = GroupPartitions("reader", [Place("shown", 0, 0)])
    (committed,) = admin.alter_consumer_group_offsets([start]).values()
    committed.result(30)

    async def main() -> None:
        targets = ["cluster", "broker?id=1", "topics", "topic?name=shown"]
        targets += ["records?name=shown", "groups", "group?name=reader"]
        async with console_of(bootstrap, connect_tcp) as app:
            pages = {it: await get(app, f"/clusters/0/{it}") for it in targets}
        assert {it.status for it in pages.values()} == {200}
        facts = pages["cluster"].page.facts
        assert (facts["Brokers alive"], facts["Controller (KRaft)"]) == ("1 of 1", "1")
        assert facts["Under-replicated partitions"] == "0"
        assert "not served" not in "".join(it.text for it in pages.values())
        (row,) = pages["records?name=shown"].page.rows[1:]
        assert row[3:5] == ["k", '{\n  "a": 1\n}']
        assert pages["group?name=reader"].page.facts["Lag"] == "1"

    trio.run(main)
