"""The administration client and the web console with Apache Kafka."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.types import ASGIApp

from broker.client.admin import KafkaAdmin, open_admin
from broker.client.admin_changes import BROKER, TOPIC
from broker.client.network_client import connect_tcp
from broker.protocol.topic_partition import TopicPartition
from tests.client.interoperation import compare_admins, write_with_ours
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import NEWEST, VERSIONS, KafkaPrograms
from tests.web_console.asgi_client import carry_out, get
from tests.web_console.consoles import console_of
from tests.web_console.test_console_process import check_member_of_kip_848

pytestmark = pytest.mark.kafka


class Kafka(NamedTuple):
    """Apache Kafka of one version: its address and its programs."""

    bootstrap: str
    programs: KafkaPrograms


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest,
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kafka]:
    """Yield Apache Kafka of each version."""
    programs = programs_of(request.param)
    started = ApacheKafka(programs, tmp_path_factory.mktemp("kafka"))
    yield Kafka(started.bootstrap, programs)
    started.kill()


@pytest.fixture
def bootstrap(kafka: Kafka) -> str:
    """Return Apache Kafka's address."""
    return kafka.bootstrap


def test_librdkafkas_admin_and_ours_receive_the_same(bootstrap: str) -> None:
    compare_admins(bootstrap)


def commit(admin: AdminClient, group: str, places: list[Place]) -> None:
    """Commit offsets of a group, once its coordinator has loaded."""
    end_s = time.monotonic() + 30
    start = GroupPartitions(group, places)
    while True:
        (committed,) = admin.alter_consumer_group_offsets([start]).values()
        errors = [it.error for it in committed.result(30).topic_partitions if it.error]
        if not errors:
            return
        assert time.monotonic() < end_s, errors
        time.sleep(0.1)


def test_the_console_shows_apache_kafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("shown", 1)])["shown"].result(30)
    records = [(b"k", b'{"a":1}', [])]
    trio.run(write_with_ours, bootstrap, "shown", "zstd", records)

    commit(admin, "reader", [Place("shown", 0, 0)])

    async def main() -> None:
        targets = ["cluster", "broker?id=1", "topics", "topic?name=shown"]
        targets += ["records?name=shown", "groups", "group?name=reader"]
        async with console_of(bootstrap, connect_tcp) as app:
            pages = {it: await get(app, f"/clusters/0/{it}") for it in targets}
            requests = (await get(app, "/clusters/0/requests")).page
            moves = (await get(app, "/clusters/0/reassignments")).page
        assert {it.status for it in pages.values()} == {200}
        facts = pages["cluster"].page.facts
        assert (facts["Brokers alive"], facts["Controller (KRaft)"]) == ("1 of 1", "1")
        assert facts["Under-replicated partitions"] == "0"
        assert "not served" not in "".join(it.text for it in pages.values())
        (row,) = pages["records?name=shown"].page.rows[1:]
        assert row[3:5] == ["k", '{\n  "a": 1\n}']
        assert pages["group?name=reader"].page.facts["Lag"] == "1"
        # Apache Kafka lacks Doorkeeper's scheduler and metrics.
        assert ["1", "Kafka's queue", "unknown", "not served"] in requests.rows
        assert "No reassignment is in progress" in moves.words

    trio.run(main)


def test_the_console_shows_members_of_kip_848(
    programs_of: Callable[[str], KafkaPrograms], tmp_path: Path
) -> None:
    started = ApacheKafka(programs_of(NEWEST), tmp_path)
    try:
        check_member_of_kip_848(started.bootstrap)
    finally:
        started.kill()


# ---- the same changes by the console and by Kafka's programs ------------------------


async def same_by_programs(
    kafka: Kafka, app: ASGIApp, at: Path, action: str, values: dict[str, str]
) -> None:
    """Make a change; run the shown commands with "theirs" in place of "ours"."""
    found = await carry_out(app, action, **values)
    assert found.status == 200, found.page.words
    assert "Carried out:" in found.page.words
    commands = [it for it in found.page.blocks if it.startswith("kafka-")]
    names = [it for it in found.page.words if re.fullmatch(r"\w+\.json", it)]
    files = [it for it in found.page.blocks if it not in commands]
    for name, text in zip(names, files, strict=True):
        (at / name).write_text(text)
    for it in commands:
        program, *words = shlex.split(it.replace("ours", "theirs"))
        words = [str(at / it) if it in names else it for it in words]
        program = program.removesuffix(".sh")
        await trio.to_thread.run_sync(kafka.programs.succeed, program, *words)


def changing(
    kafka: Kafka, scenario: Callable[[ASGIApp, KafkaAdmin], Awaitable[None]]
) -> None:
    """Run ``scenario`` with a console that may change Kafka."""

    async def main() -> None:
        opened = console_of(kafka.bootstrap, connect_tcp, allow_changes=True)
        async with opened as app, open_admin(kafka.bootstrap) as admin:
            await scenario(app, admin)

    trio.run(main)


async def topic_state(admin: KafkaAdmin, name: str) -> object:
    (found,) = await admin.describe_topics([name])
    configs = await admin.describe_configs(TOPIC, name)
    return (
        sorted((it.partition_index, *it.replica_nodes) for it in found.partitions),
        {(it.name, it.value, it.config_source) for it in configs},
    )


def test_topics_change_as_by_kafkas_programs(kafka: Kafka, tmp_path: Path) -> None:
    async def scenario(app: ASGIApp, admin: KafkaAdmin) -> None:
        name = {"name": "my.ours"}
        refused = await carry_out(app, "create-topic", **name, configs="a=b")
        assert refused.status == 400
        assert "INVALID_CONFIG" in " ".join(refused.page.words).upper()
        for action, values in (
            ("create-topic", {"partitions": "2", "configs": "retention.ms=99"}),
            ("add-partitions", {"count": "4"}),
            (
                "topic-configs",
                {
                    "set": "cleanup.policy=compact,delete\nsegment.ms=777",
                    "delete": "retention.ms",
                },
            ),
        ):
            await same_by_programs(kafka, app, tmp_path, action, {**name, **values})
            with trio.fail_after(30):
                while (  # noqa: ASYNC110 - Kafka's brokers learn of it later
                    await topic_state(admin, "my.ours")
                    != await topic_state(admin, "my.theirs")
                ):
                    await trio.sleep(0.1)
        state = await topic_state(admin, "my.ours")
        assert len(state[0]) == 4  # type: ignore[index]
        await same_by_programs(kafka, app, tmp_path, "delete-topic", name)
        with trio.fail_after(30):
            while any(  # noqa: ASYNC110 - as above
                it.name in ("my.ours", "my.theirs")
                for it in await admin.describe_topics()
            ):
                await trio.sleep(0.1)

    changing(kafka, scenario)


def test_offsets_change_as_by_kafkas_programs(kafka: Kafka, tmp_path: Path) -> None:
    admin_of_librdkafka = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin_of_librdkafka.create_topics([NewTopic("read", 3)])["read"].result(30)
    records = [(b"%d" % it, b"", []) for it in range(50)]
    trio.run(write_with_ours, kafka.bootstrap, "read", "none", records)
    for group in ("g-ours", "g-theirs"):
        commit(admin_of_librdkafka, group, [Place("read", it, 0) for it in range(2)])

    async def offsets(admin: KafkaAdmin, group: str) -> dict[TopicPartition, int]:
        (node,) = (it.id for it in (await admin.describe_cluster()).brokers)
        rows = await admin.committed(node, group)
        return {it: row.committed_offset for it, row in rows.items()}

    async def scenario(app: ASGIApp, admin: KafkaAdmin) -> None:
        seen = set()
        for values in (
            {"to": "latest"},
            {"to": "earliest"},
            {"to": "shift by", "value": "2"},
            {"to": "offset", "value": "1"},
            {"to": "offset", "value": "99"},
            {"to": "time", "value": "2001-01-01T00:00:00"},
            {"to": "time", "value": "2201-01-01T00:00:00.25"},
            {"to": "latest", "topic": "read", "partition": "2"},
            {"to": "earliest", "topic": "read"},
        ):
            given = {"name": "g-ours", **values}
            await same_by_programs(kafka, app, tmp_path, "reset-offsets", given)
            found = await offsets(admin, "g-ours")
            assert found == await offsets(admin, "g-theirs"), values
            seen.add(tuple(found.values()))
        assert len(seen) > 3

    changing(kafka, scenario)


def test_leaders_replicas_and_brokers_change_as_by_kafkas_programs(
    kafka: Kafka, tmp_path: Path
) -> None:
    admin_of_librdkafka = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin_of_librdkafka.create_topics([NewTopic("led", 2)])["led"].result(30)
    row = {"topic": "led", "partition": 0, "replicas": [1]}
    plan = json.dumps({"version": 1, "partitions": [row]})

    async def scenario(app: ASGIApp, admin: KafkaAdmin) -> None:
        for action, values in (
            ("elect-leaders", {"kind": "preferred"}),
            ("elect-leaders", {"kind": "preferred", "topic": "led"}),
            ("elect-leaders", {"kind": "unclean", "topic": "led", "partition": "1"}),
            ("broker-configs", {"set": "background.threads=9"}),
            ("broker-configs", {"id": "1", "set": "background.threads=11"}),
            ("reassign", {"throttle": "1000000", "plan": plan}),
        ):
            await same_by_programs(kafka, app, tmp_path, action, values)
        await trio.sleep(0.5)
        rows = (await get(app, "/clusters/0/reassignments")).page.rows
        for it in ("leader", "follower"):
            assert ["1", f"{it}.replication.throttled.rate", "1000000"] in rows
        # Kafka's program refuses to delete a config that is not set.
        for action, values in (
            ("end-throttles", {"topics": "led"}),
            ("broker-configs", {"id": "1", "delete": "background.threads"}),
            ("broker-configs", {"delete": "background.threads"}),
        ):
            assert (await carry_out(app, action, **values)).status == 200
        await trio.sleep(0.5)
        configs = await admin.describe_configs(BROKER, "1")
        assert [
            it.config_source for it in configs if it.name == "background.threads"
        ] == [5]
        configs = await admin.describe_configs(TOPIC, "led")
        assert {it.name: it.value for it in configs if it.config_source == 1} == {}
        verify = ("--bootstrap-server", kafka.bootstrap, "--verify")
        ran = await trio.to_thread.run_sync(
            kafka.programs.succeed,
            *("kafka-reassign-partitions", *verify),
            *("--reassignment-json-file", str(tmp_path / "reassignment.json")),
        )
        assert "led-0 is completed" in ran.out
        none = "/clusters/0/change/end-throttles?preview=1"
        assert "there is no throttle" in (await get(app, none)).page.words

    changing(kafka, scenario)
