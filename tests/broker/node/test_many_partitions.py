"""Work over all partitions of a broker runs in short steps."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from broker.coordination.coordinator_roles import ConfigKind
from broker.disk.checkpoints import HIGH_WATERMARKS, read_offsets
from broker.handling.kafka_apis import KafkaApis
from broker.log.upkeep import rounds
from planes.slices import PREEMPT
from tests.broker.apis.broker_world import World
from tests.fuzzing.starvation import StarvationProbe

# Budget of a slice, scaled to fewer partitions.
BUDGET_CALLS = 6_000
BUDGET_ITEMS = 6_000
TOPICS, PARTITIONS = 20, 50


@pytest.fixture(scope="module")
def world() -> World:
    world = World()
    for number in range(TOPICS):
        world.create(f"t{number}", PARTITIONS)
    return world


@pytest.fixture
def probe() -> Iterator[StarvationProbe]:
    probe = StarvationProbe()
    yield probe
    assert probe.most_calls["step"] > 0
    assert max(probe.most_calls.values()) < BUDGET_CALLS
    assert max(probe.most_items.values()) < BUDGET_ITEMS


def stepped(verb: Coroutine[Any, Any, None], probe: StarvationProbe) -> int:
    """Run a verb of the broker; return how often it could be preempted."""
    points = 0
    with probe.counting(items=True):
        try:
            while True:
                assert verb.send(None) is PREEMPT
                probe.end("step")
                points += 1
        except StopIteration:
            probe.end("step")
    return points


def test_a_change_of_the_brokers_configs(world: World, probe: StarvationProbe) -> None:
    broker = world.broker
    before = next(iter(broker.logs.logs.values())).config
    entry = {"log.retention.ms": "12345"}
    changed = broker.coordinator.admin.set_configs(ConfigKind.BROKER, "", entry)
    assert stepped(changed, probe) >= TOPICS
    configs = {log.config.retention_ms for log in broker.logs.logs.values()}
    assert configs == {12345} != {before.retention_ms}


def test_a_change_of_one_topics_configs(world: World, probe: StarvationProbe) -> None:
    broker = world.broker
    stepped(
        broker.coordinator.admin.set_topic_configs("t3", {"retention.ms": "7"}), probe
    )
    changed = {
        topic
        for (topic, _), log in broker.logs.logs.items()
        if log.config.retention_ms == 7
    }
    assert changed == {"t3"}


def test_the_checkpoints(world: World, probe: StarvationProbe) -> None:
    broker = world.broker
    for index in range(0, PARTITIONS, 10):
        world.produce("t1", b"x", partition=index)
    jobs = []
    steps = rounds.checkpoint(broker.logs, broker.replicas.high_watermark, print, print)
    with probe.counting(items=True):
        for job in steps:
            probe.end("step")
            jobs += [job] if job else []
    for job in jobs:
        job()
    (directory,) = broker.log_dirs.online
    kept = read_offsets(world.storage, directory, HIGH_WATERMARKS)
    assert len(kept) >= TOPICS * PARTITIONS
    assert sum(kept[("t1", index)] for index in range(PARTITIONS)) == PARTITIONS // 10


def test_a_scrape(world: World, probe: StarvationProbe) -> None:
    samples = []
    with probe.counting(items=True):
        for sample in KafkaApis(world.broker).metrics():
            if sample is None:
                probe.end("step")
            else:
                samples.append(sample)
    found = {each.name: each.value for each in samples}
    assert found["kafka_server_replicamanager_partitioncount"] >= TOPICS * PARTITIONS
    assert len(samples) > 4 * TOPICS * PARTITIONS
