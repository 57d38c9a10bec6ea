"""Parked requests end with their connection, but their effects stay, as in Kafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import trio

from broker.groups.state.transitions import GroupState
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import encode_request
from simulation.virtual_time.apis import START_MS
from tests.broker.apis.requests import (
    batch,
    fetch_fields,
    leader_and_isr,
    produce_fields,
    update_metadata,
)
from tests.virtual.kafka import SETTINGS, answer, ask, ask_nothing, create_topic, kafka
from tests.virtual.world import in_world

NONE = ErrorCode.none
T = TopicPartition("t", 0)
A_MONTH_MS = 2**31 - 1
A_MONTH = timedelta(milliseconds=A_MONTH_MS)


async def command(world: Any, key: ApiKey, request: Any) -> None:
    stream = world.connect()
    body = encode_request(key, 6, 1, "controller", request.to_wire(6))
    await stream.send_all(body)
    assert (await answer(stream, key, 6)).error_code is NONE
    await stream.aclose()


async def with_a_follower_that_never_fetches(world: Any) -> Any:
    """Create ``t``, replicated to a broker that does not exist."""
    operator = world.connect()
    await create_topic(operator, 1)
    brokers = {0: ("127.0.0.1", 9092), 1: ("127.0.0.1", 9093)}
    told = update_metadata(("other", 0), leader=0, brokers=brokers)
    await command(world, ApiKey.UPDATE_METADATA, told)
    word = leader_and_isr(T, leader=0, leader_epoch=5, isr=(0, 1))
    await command(world, ApiKey.LEADER_AND_ISR, word)
    return operator


async def a_fetch(world: Any, stream: Any) -> None:
    fields = fetch_fields({T: 0}, max_wait_ms=A_MONTH_MS, min_bytes=1 << 30)
    await ask_nothing(stream, ApiKey.FETCH, 11, **fields)


async def a_produce(world: Any, stream: Any) -> None:
    fields = produce_fields({T: batch(b"kept")}, acks=-1, timeout_ms=A_MONTH_MS)
    await ask_nothing(stream, ApiKey.PRODUCE, 8, **fields)


async def a_deletion(world: Any, stream: Any) -> None:
    partitions = [{"partition_index": 0, "offset": 0}]
    topics = [{"name": "t", "partitions": partitions}]
    # The follower's known log start offset is 0; the deletion of one record waits.
    partition = world.application.broker.replicas.partitions[T]
    partition.append(batch(b"x"), 1, START_MS)
    partition.high_watermark = 1
    partitions[0]["offset"] = 1
    await ask_nothing(stream, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=A_MONTH)


def waiting(world: Any) -> int:
    """Count the requests that are parked."""
    return sum(plane.away for plane in world.server.dispatcher.planes)


async def closed(world: Any, stream: Any) -> None:
    await stream.aclose()


async def reset(world: Any, stream: Any) -> None:
    await world.reset(stream)


ENDS = pytest.mark.parametrize("end", [closed, reset])
End = Callable[[Any, Any], Awaitable[None]]


@ENDS
@pytest.mark.parametrize("request_of", [a_fetch, a_produce, a_deletion])
def test_a_parked_request_ends_with_its_connection(
    request_of: Callable[[Any, Any], Awaitable[None]], end: End
) -> None:
    async def scenario(world: Any) -> None:
        await with_a_follower_that_never_fetches(world)
        stream = world.connect()
        await request_of(world, stream)
        await trio.sleep(1)
        replicas = world.application.broker.replicas
        assert waiting(world) == 1
        assert sum(each.size for each in replicas.purgatories) == 1
        await end(world, stream)
        await trio.sleep(1)
        assert waiting(world) == 0
        for purgatory in replicas.purgatories:
            assert (purgatory.size, purgatory.watchers) == (0, {})
            purgatory.check()
        assert world.server.pool.used_bytes == 0
        # Appended records stay.
        kept = 0 if request_of is a_fetch else 1
        assert replicas.partitions[T].log.log_end_offset == kept

    settings = {**SETTINGS, "queued.max.request.bytes": "200000000"}
    in_world(scenario, settings, application=kafka)


def test_a_peer_that_had_hung_up_before_is_not_waited_for() -> None:
    async def scenario(world: Any) -> None:
        await create_topic(world.connect(), 1)
        stream = world.connect()
        await a_fetch(world, stream)
        await stream.aclose()
        await trio.sleep(1)
        assert waiting(world) == 0
        assert world.application.broker.replicas.fetch_purgatory.size == 0

    in_world(scenario, SETTINGS, application=kafka)


JOIN = {
    "group_id": "g",
    "session_timeout": timedelta(seconds=10),
    "rebalance_timeout": timedelta(seconds=60),
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}


@ENDS
def test_a_member_outlives_its_parked_join_until_its_groups_timers(end: End) -> None:
    """As in Kafka, the member is in the generation, and misses the next heartbeats."""

    async def scenario(world: Any) -> None:
        groups = world.application.broker.groups
        first = world.connect()
        names = {"coordinator_keys": ["g"], "key_type": 0}
        # The request creates and loads the offsets topic.
        await ask(first, ApiKey.FIND_COORDINATOR, 4, **names)
        await trio.sleep(1)
        joined = await ask(first, ApiKey.JOIN_GROUP, 3, member_id="", **JOIN)
        assignments = [{"member_id": joined.member_id, "assignment": b""}]
        member = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
        synced = await ask(
            first, ApiKey.SYNC_GROUP, 1, assignments=assignments, **member
        )
        assert synced.error_code is NONE
        second = world.connect()
        await ask_nothing(second, ApiKey.JOIN_GROUP, 3, member_id="", **JOIN)
        await trio.sleep(1)
        assert (waiting(world), len(groups.describe("g").roster)) == (1, 2)
        await end(world, second)
        await trio.sleep(1)
        assert (waiting(world), len(groups.describe("g").roster)) == (0, 2)
        # The first member rejoins, so the generation begins with both members.
        again = {**JOIN, "member_id": joined.member_id}
        joined = await ask(first, ApiKey.JOIN_GROUP, 3, **again)
        assert (joined.error_code, len(joined.members)) == (NONE, 2)
        beat = {**member, "generation_id": joined.generation_id}
        for _ in range(5):
            await trio.sleep(4)
            await ask(first, ApiKey.HEARTBEAT, 1, **beat)
        # The disconnected member misses its heartbeats.
        group = groups.describe("g")
        assert group.state is GroupState.PREPARING_REBALANCE
        assert len(group.roster) == 1

    settings = {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}
    in_world(scenario, settings, application=kafka)
