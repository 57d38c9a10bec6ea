"""Waits during leader changes: producers for the ISR, members for their group.

Whole brokers under one ZooKeeper in virtual time.
"""

from __future__ import annotations

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.kafka import answer, ask_nothing
from tests.virtual.members import SESSION_S, Members, in_sync, with_members
from tests.virtual.test_cluster_operations import (
    PREFERRED,
    check_nothing_lost,
    create,
    elect,
    producing,
    reassign,
)

JOINING = {
    "group_id": "g",
    "member_id": "",
    "session_timeout": SECONDS_30,
    "rebalance_timeout": SECONDS_30,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}


@pytest.mark.parametrize("seed", [1, 2])
def test_brokers_restart_one_by_one_though_all_must_be_in_sync(seed: int) -> None:
    """min.insync.replicas does not prevent a broker's stop: producers wait."""

    async def scenario(members: Members) -> None:
        everywhere = [("min.insync.replicas", "3")]
        await create(members, [0, 1, 2], [1, 2, 0], [2, 0, 1], configs=everywhere)
        async with producing(members) as acknowledged:
            for victim in range(3):
                began_s = trio.current_time()
                await members.stop(victim)
                assert trio.current_time() - began_s < SESSION_S / 2
                count = len(acknowledged)
                await trio.sleep(2)
                assert len(acknowledged) <= count + 1
                await members.start(victim)
                for index in range(3):
                    await in_sync(members, index=index)
        await check_nothing_lost(members, acknowledged)

    with_members(scenario, seed=seed)


def test_joining_members_are_answered_as_their_coordinator_moves() -> None:
    async def scenario(members: Members) -> None:
        asked = {"coordinator_keys": ["g"], "key_type": 0}
        await members.ask(0, ApiKey.FIND_COORDINATOR, 4, **asked)
        index = members.broker(0).groups.partition_for("g")
        topic = "__consumer_offsets"
        await members.until(lambda: members.leader(topic, index) >= 0)
        await in_sync(members, topic, index)
        before = members.leader(topic, index)
        stream = await members.connect("127.0.0.1", 9092 + before)
        await ask_nothing(stream, ApiKey.JOIN_GROUP, 3, **JOINING)
        others = [it for it in range(3) if it != before]
        await reassign(members, {index: [*others, before]}, topic)
        assert await elect(members, PREFERRED, index, topic) is ErrorCode.none
        await members.until(lambda: members.leader(topic, index) == others[0])
        with trio.fail_after(1):
            refused = await answer(stream, ApiKey.JOIN_GROUP, 3)
        assert refused.error_code is ErrorCode.not_coordinator

    with_members(
        scenario,
        group_initial_rebalance_delay_ms="60000",
        auto_leader_rebalance_enable="false",
    )
