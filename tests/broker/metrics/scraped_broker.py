"""Samples of a whole broker in virtual time, for tests of dashboards and alerts."""

from __future__ import annotations

import functools
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from broker.network.memory_pool import MemoryPool
from broker.observation.metrics.acceptors import AcceptorMetrics
from broker.observation.metrics.collector import Collector, Sources
from broker.observation.metrics.request_metrics import RequestMetrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30, new_topic
from tests.broker.metrics.text import exposition
from tests.virtual.kafka import SETTINGS, ask, kafka
from tests.virtual.world import World, in_world


@functools.cache
def labels_served() -> dict[str, set[str]]:
    """Return the labels of each sample of a broker with two planes and a group."""
    settings = {**SETTINGS, "doorkeeper.scheduler": "planes"}
    return in_world(_scenario, settings, application=kafka)  # type: ignore[no-any-return]


async def _scenario(world: World) -> dict[str, set[str]]:
    stream = world.connect()
    topics = [new_topic("t", 1)]
    await ask(stream, ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=SECONDS_30)
    while await _commit(stream):
        pass
    metrics = RequestMetrics()
    for request in world.observer.requests:
        metrics.observe(request)
    planes = dict.fromkeys(world.server.ports, "data")
    acceptors = AcceptorMetrics(world.server.quotas, planes, world.clock.now_ns)
    collector = Collector(
        Sources(
            requests=metrics,
            channels=tuple(world.server.request_channels.values()),
            processors=world.server.processors,
            pool=MemoryPool(1_000),
            now_ns=world.clock.now_ns,
            more=(
                acceptors.collect,
                world.application.metrics,
                world.server.supervisor.metrics,
            ),
        )
    )
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exposition(collector.collect())):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def _commit(stream: Any) -> ErrorCode:
    """Commit an offset of a group without members; return the error."""
    await ask(stream, ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
    partition = {"partition_index": 0, "committed_offset": 0}
    topics = [{"name": "t", "partitions": [partition]}]
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = await ask(stream, ApiKey.OFFSET_COMMIT, 8, **fields, topics=topics)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code
