"""Bounds of connections and of memory, under idle and parked peers.

In Apache Kafka, a processor polls at least every 300 ms. Here a processor runs only
when it is signalled, so each change that concerns it must signal it.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import batch, fetch_fields, produce_fields
from tests.virtual.kafka import SETTINGS, ask, ask_nothing, create_topic, kafka
from tests.virtual.world import in_world

NONE = ErrorCode.none
TWO_LISTENERS = {
    **SETTINGS,
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
}
MANY = 30


async def has_ended(stream: Any) -> bool:
    with trio.move_on_after(0.001):
        try:
            return not await stream.receive_some(1)
        except trio.BrokenResourceError:
            return True
    return False


async def silent(world: Any, listener: str, count: int) -> list[Any]:
    """Open connections one after the other that send nothing."""
    streams = []
    for _ in range(count):
        streams.append(world.connect(listener))
        await trio.sleep(0.01)
    return streams


@pytest.mark.parametrize("processors", ["1", "3"])
def test_silent_clients_give_way_to_a_broker_at_once(processors: str) -> None:
    """Only the least recently active connection is closed (KIP-402)."""

    async def scenario(world: Any) -> None:
        clients = await silent(world, "CLIENTS", 4)
        assert world.server.quotas.total == 4
        broker = world.connect("PLAINTEXT")
        told = await ask(broker, ApiKey.METADATA, 12, topics=())
        assert told.brokers
        await trio.sleep(0.01)
        ended = [await has_ended(each) for each in clients]
        assert world.server.quotas.total == 5 - sum(ended)
        # Each processor may have closed one before it saw the others' closures.
        assert 1 <= sum(ended) <= int(processors)
        assert ended[0] or processors != "1"

    settings = {"max.connections": "4", "num.network.threads": processors}
    in_world(scenario, {**TWO_LISTENERS, **settings}, application=kafka)


def test_a_bound_that_is_lowered_closes_what_is_beyond_it() -> None:
    async def scenario(world: Any) -> None:
        clients = await silent(world, "CLIENTS", 6)
        operator = world.connect("PLAINTEXT")
        config = {"name": "max.connections", "config_operation": 0, "value": "3"}
        told = await ask(
            operator,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[{"resource_type": 4, "resource_name": "", "configs": [config]}],
        )
        assert told.responses[0].error_code is NONE
        await trio.sleep(0.01)
        assert [await has_ended(each) for each in clients] == [True] * 4 + [False] * 2
        assert world.server.quotas.total == 3
        assert not await has_ended(operator)

    settings = {"num.network.threads": "1"}
    in_world(scenario, {**TWO_LISTENERS, **settings}, application=kafka)


def test_consumers_that_wait_keep_no_memory_from_others() -> None:
    """Requests parked for a minute hold no memory of queued.max.request.bytes."""

    async def scenario(world: Any) -> None:
        producer = world.connect()
        await create_topic(producer, 1)
        waiting = fetch_fields({("t", 0): 0}, max_wait_ms=60_000)
        for _ in range(MANY):
            await ask_nothing(world.connect(), ApiKey.FETCH, 11, **waiting)
        await trio.sleep(0.1)
        assert world.application.broker.replicas.fetch_purgatory.size == MANY
        assert world.server.pool.used_bytes == 0
        with trio.fail_after(1):
            told = await ask(
                producer, ApiKey.PRODUCE, 8, **produce_fields({("t", 0): batch(b"v")})
            )
        assert told.responses[0].partition_responses[0].error_code is NONE
        await trio.sleep(0.1)
        assert world.application.broker.replicas.fetch_purgatory.size == 0
        assert world.server.pool.used_bytes == 0

    settings = {
        "queued.max.request.bytes": "1000",
        "socket.request.max.bytes": "1000",
    }
    in_world(scenario, {**SETTINGS, **settings}, application=kafka)
