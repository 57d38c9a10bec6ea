"""Client quotas of a whole broker in virtual time: muted channels, and evasion.

Three brokers under one ZooKeeper distribute quotas to each other.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import batch, fetch_fields, produce_fields
from tests.virtual.kafka import SETTINGS, answer, ask, ask_nothing, create_topic, kafka
from tests.virtual.members import Members, with_members
from tests.virtual.world import MS, World, in_world

SLICE_MS = 0.05
BOUND = 1000.0


def quota(key: str, value: float, **entity: str | None) -> dict[str, Any]:
    """Return the fields of an AlterClientQuotas."""
    named = [
        {"entity_type": kind.replace("_", "-"), "entity_name": name}
        for kind, name in entity.items()
    ]
    return {"entries": [{"entity": named, "ops": [{"key": key, "value": value}]}]}


async def alter(stream: Any, **fields: Any) -> ErrorCode:
    answered = await ask(stream, ApiKey.ALTER_CLIENT_QUOTAS, 1, **fields)
    code: ErrorCode = answered.entries[0].error_code
    return code


def produce(size: int) -> dict[str, Any]:
    return produce_fields({("t", 0): batch(b"v" * size)})


def test_a_throttled_channel_is_not_read_until_its_time_is_over() -> None:
    """The client does not wait; other clients are served meanwhile."""
    told_ms, answered_ms, others_ms = [], [], []

    async def scenario(world: World) -> None:
        await create_topic(world.connect(), 1)
        assert not await alter(
            world.connect(), **quota("producer_byte_rate", BOUND, user=None)
        )
        stream, other = world.connect(), world.connect()
        for _ in range(4):
            await ask_nothing(stream, ApiKey.PRODUCE, 9, **produce(5000))
        for _ in range(4):
            found = await answer(stream, ApiKey.PRODUCE, 9)
            told_ms.append(found.throttle_time.total_seconds() * 1000)
            answered_ms.append(world.clock.now_ns() / MS)
            begun_ns = world.clock.now_ns()
            assert not (await ask(other, ApiKey.METADATA, 12)).throttle_time
            others_ms.append((world.clock.now_ns() - begun_ns) / MS)

    in_world(scenario, SETTINGS, application=kafka)
    # The quota of ten seconds passes at first: the second response exceeds it a little.
    assert told_ms[0] == 0
    assert 0 < told_ms[1] < told_ms[2] < told_ms[3]
    for before in (1, 2):
        waited_ms = answered_ms[before + 1] - answered_ms[before]
        assert waited_ms == pytest.approx(told_ms[before], abs=10 * SLICE_MS)
    assert max(others_ms) < 10 * SLICE_MS


def test_a_reconnected_client_keeps_its_rate() -> None:
    """As in Kafka, a throttled Produce is served, and a Fetch gets no records."""
    told_ms = []

    async def scenario(world: World) -> None:
        await create_topic(world.connect(), 1)
        for key in ("producer_byte_rate", "consumer_byte_rate"):
            fields = quota(key, BOUND, user="ANONYMOUS", client_id="test")
            assert not await alter(world.connect(), **fields)
        for _ in range(4):
            stream = world.connect()
            found = await ask(stream, ApiKey.PRODUCE, 9, **produce(6000))
            told_ms.append(found.throttle_time.total_seconds())
            await stream.aclose()
        sizes = []
        for offset in range(4):
            stream = world.connect()
            wanted = fetch_fields({("t", 0): offset})
            wanted["max_bytes"] = 6100
            found = await ask(stream, ApiKey.FETCH, 12, **wanted)
            sizes.append(len(found.responses))
            await stream.aclose()
        assert sizes == [1, 0, 0, 0]

    in_world(scenario, SETTINGS, application=kafka)
    assert told_ms[0] == 0
    # Each connection is muted for the time that all bytes so far take.
    assert told_ms == pytest.approx([0, 2.2, 8.4, 14.5], abs=0.1)


def test_every_broker_of_a_cluster_learns_the_quotas() -> None:
    async def scenario(members: Members) -> None:
        await members.until(members.know_each_other)
        first, *others = members.alive
        for fields in (
            quota("producer_byte_rate", 1.0, user="alice", client_id="a/b"),
            quota("request_percentage", 50.0, client_id=None),
            quota("consumer_byte_rate", 2.0, user="alice"),
        ):
            answered = await members.ask(first, ApiKey.ALTER_CLIENT_QUOTAS, 1, **fields)
            assert not answered.entries[0].error_code, answered

        def bounds(number: int) -> list[float]:
            quotas = members.broker(number).client_quotas.rates
            return [
                quotas["producer_byte_rate"].applies("alice", "a/b")[1],
                quotas["request_percentage"].applies("bob", "c")[1],
                quotas["consumer_byte_rate"].applies("alice", "c")[1],
            ]

        expected = [1.0, 50.0, 2.0]
        await members.until(
            lambda: all(bounds(number) == expected for number in members.alive)
        )
        away = others[0]
        await members.kill(away)
        await members.start(away)
        await members.until(lambda: bounds(away) == expected)
        listed = await members.ask(away, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
        assert len(listed.entries) == 3

    with_members(scenario)
