"""KIP-73: the quota limits throttled replicas, and no other replica."""

from __future__ import annotations

from typing import Any, Final

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.members import Members, consumed, numbers, send, with_members

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"
# Records of partition 0, and the quota in bytes per second.
RECORDS: Final = 200
VALUE: Final = b"x" * 1000
BOUND: Final = 20_000
# One fetch may exceed the quota. A burst counts for the time that the windows cover:
# ten windows of a second by default, and the current one.
FETCH_BYTES: Final = 5_000
SMALL_FETCHES: Final = {"replica_fetch_response_max_bytes": str(FETCH_BYTES)}


async def alter(members: Members, kind: int, name: str, **configs: str | None) -> None:
    """Set configs, or delete those that are None, at the broker that they concern."""
    wanted = [
        {
            "name": key.replace("_", "."),
            "config_operation": DELETE if value is None else SET,
            "value": value,
        }
        for key, value in configs.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": wanted}
    answered = await members.ask(
        int(name) if name.isdigit() else 0,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[resource],
        validate_only=False,
    )
    assert answered.responses[0].error_code is ErrorCode.none, answered


async def filled(members: Members) -> None:
    """Create a topic on brokers 0 and 1, to be moved to broker 2."""
    placed = [{"partition_index": 0, "broker_ids": [0, 1]}]
    await members.create("t", -1, replication_factor=-1, assignments=placed)
    async with members.producer(acks="all", batch_size=2_000) as producer:
        await send(producer, [VALUE] * RECORDS)


async def move(members: Members) -> None:
    """Begin to move partition 0 from broker 1 to broker 2."""
    controller = members.controller
    assert controller is not None
    moved = {"partition_index": 0, "replicas": [0, 2]}
    answered = await members.ask(
        controller,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        topics=[{"name": "t", "partitions": [moved]}],
        timeout=SECONDS_30,
    )
    assert answered.responses[0].partitions[0].error_code is ErrorCode.none


async def seconds_to_move(members: Members) -> float:
    began_s = trio.current_time()
    await move(members)
    await members.until(lambda: members.isr("t") == {0, 2}, within_s=600)
    return trio.current_time() - began_s


@pytest.mark.parametrize(
    ("side", "replicas", "holds"),
    [
        (LEADER, "0:0", True),
        (LEADER, "0:1,1:0", False),
        (FOLLOWER, "*", True),
        (FOLLOWER, "0:0,0:1,1:2", False),
    ],
)
def test_a_new_replica_gets_what_the_quota_allows(
    side: str, replicas: str, holds: bool
) -> None:
    async def scenario(members: Members) -> None:
        await filled(members)
        for number in range(3):
            await alter(members, BROKER, str(number), **{f"{side}.rate": str(BOUND)})
        await alter(members, TOPIC, "t", **{f"{side}.replicas": replicas})
        took_s = await seconds_to_move(members)
        size = members.partition(2, "t").log.size_bytes
        assert size > RECORDS * len(VALUE)
        if holds:
            # Not before the quota allows the last fetch but one, and soon after it.
            assert (size - 2 * FETCH_BYTES) / BOUND < took_s < 2 * size / BOUND
        else:
            assert took_s < 2
        assert await consumed(members, RECORDS) == [VALUE] * RECORDS

    with_members(scenario, **SMALL_FETCHES)


def test_a_replica_in_sync_is_never_held_back() -> None:
    async def scenario(members: Members) -> None:
        await filled(members)
        for side in (LEADER, FOLLOWER):
            await alter(members, BROKER, "", **{f"{side}.rate": "1"})
            await alter(members, TOPIC, "t", **{f"{side}.replicas": "*"})
        began_s = trio.current_time()
        async with members.producer(acks="all") as producer:
            for value in numbers(0, 20):
                await send(producer, [value])
        assert trio.current_time() - began_s < 2
        assert members.broker(1).quotas.follower.per_s() > 1
        assert members.broker(0).quotas.leader.per_s() > 1

    with_members(scenario)


def test_a_throttle_that_is_taken_away_holds_no_longer() -> None:
    async def scenario(members: Members) -> None:
        await filled(members)
        rate: dict[str, Any] = {f"{FOLLOWER}.rate": "10"}
        await alter(members, BROKER, "2", **rate)
        await alter(members, TOPIC, "t", **{f"{FOLLOWER}.replicas": "0:2"})
        await move(members)
        # Shorter than the windows: the first fetch is the only one.
        await trio.sleep(10)
        follower = members.partition(2, "t")
        assert 0 < follower.log.size_bytes <= FETCH_BYTES
        await alter(members, BROKER, "2", **dict.fromkeys(rate))
        await members.until(lambda: members.isr("t") == {0, 2}, within_s=5)

    with_members(scenario, **SMALL_FETCHES)


def test_other_partitions_of_the_same_leader_are_not_held_up() -> None:
    async def scenario(members: Members) -> None:
        await filled(members)
        await alter(members, BROKER, "", **{f"{LEADER}.rate": "10"})
        await alter(members, TOPIC, "t", **{f"{LEADER}.replicas": "*"})
        await move(members)
        placed = [{"partition_index": 0, "broker_ids": [0, 2]}]
        await members.create("u", -1, replication_factor=-1, assignments=placed)
        async with members.producer(acks="all") as producer:
            began_s = trio.current_time()
            await send(producer, numbers(0, 100), "u")
            assert trio.current_time() - began_s < 2
        assert members.isr("t") == {0, 1}

    with_members(scenario, **SMALL_FETCHES)
