"""Guarantees for clients under both coordinators: embedded and ZooKeeper.

One broker receives requests over its sockets. Each subclass has its own settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.members import Members, consumed, numbers, send, with_members

NONE = ErrorCode.none
ONE: dict[str, Any] = {"replication_factor": 1}


class ClusterContract:
    """Tests for every coordinator, before and after a restart."""

    settings: ClassVar[Mapping[str, str]] = {}

    def run(self, scenario: Callable[[Members], Awaitable[None]]) -> None:
        with_members(
            scenario, count=1, offsets_topic_replication_factor="1", **self.settings
        )

    def test_a_topic_is_created_once_led_at_once_and_outlives_a_life(self) -> None:
        async def scenario(members: Members) -> None:
            row = await members.create("t", 2, **ONE)
            assert row.error_code is NONE
            assert [members.leader("t", index) for index in range(2)] == [0, 0]
            again = await members.create("t", **ONE)
            assert again.error_code is ErrorCode.topic_already_exists
            async with members.producer() as producer:
                await send(producer, numbers(0, 30))
            epoch = members.partition(0, "t").leader_epoch
            for end in (members.stop, members.kill):
                await end(0)
                await members.start(0)
                await members.until(lambda: members.leads("t", 2))
            assert members.partition(0, "t").leader_epoch >= epoch
            assert members.partition(0, "t").topic_id == row.topic_id
            assert sorted(await consumed(members, 30)) == sorted(numbers(0, 30))

        self.run(scenario)

    def test_a_topic_of_the_same_name_is_another_one(self) -> None:
        async def scenario(members: Members) -> None:
            first = await members.create("t", **ONE)
            wanted = [{"name": "t", "topic_id": None}]
            for code in (NONE, ErrorCode.unknown_topic_or_partition):
                answered = await members.ask(
                    0, ApiKey.DELETE_TOPICS, 6, topics=wanted, timeout=SECONDS_30
                )
                assert answered.responses[0].error_code is code
            await members.until(lambda: not members.broker(0).logs.logs)
            # The name may stay taken until the deletion is complete, as in Kafka.
            second = await members.create("t", **ONE)
            while second.error_code is ErrorCode.topic_already_exists:
                await trio.sleep(0.01)
                second = await members.create("t", **ONE)
            assert second.error_code is NONE
            assert second.topic_id != first.topic_id

        self.run(scenario)

    def test_partitions_are_added_and_never_taken_away(self) -> None:
        async def scenario(members: Members) -> None:
            await members.create("t", 2, **ONE)
            for count, code in ((5, NONE), (5, ErrorCode.invalid_partitions)):
                answered = await members.ask(
                    0,
                    ApiKey.CREATE_PARTITIONS,
                    3,
                    topics=[{"name": "t", "count": count, "assignments": None}],
                    timeout=SECONDS_30,
                    validate_only=False,
                )
                assert answered.results[0].error_code is code
            assert members.leads("t", 5)

        self.run(scenario)

    def test_altered_configs_are_in_force_now_and_after_a_restart(self) -> None:
        async def scenario(members: Members) -> None:
            await members.create("t", configs=[("retention.ms", "111111")], **ONE)
            change = {"config_operation": 0, "value": "222222"}
            answered = await members.ask(
                0,
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                resources=[
                    {
                        "resource_type": 2,
                        "resource_name": "t",
                        "configs": [{"name": "segment.ms", **change}],
                    },
                    {
                        "resource_type": 4,
                        "resource_name": "0",
                        "configs": [{"name": "log.flush.interval.ms", **change}],
                    },
                ],
                validate_only=False,
            )
            assert {each.error_code for each in answered.responses} == {NONE}
            for life in range(2):
                config = members.partition(0, "t").log.config
                assert (config.retention_ms, config.segment_ms) == (111_111, 222_222)
                assert config.flush_ms == 222_222
                if not life:
                    await members.kill(0)
                    await members.start(0)
                    await members.until(lambda: members.leads("t", 1))

        self.run(scenario)

    def test_no_producer_id_is_given_twice_whatever_dies(self) -> None:
        async def scenario(members: Members) -> None:
            given = []
            for _ in range(3):
                answered = await members.ask(
                    0,
                    ApiKey.INIT_PRODUCER_ID,
                    4,
                    transactional_id=None,
                    transaction_timeout=SECONDS_30,
                    producer_id=-1,
                    producer_epoch=-1,
                )
                assert answered.error_code is NONE
                given.append(answered.producer_id)
                await members.kill(0)
                await members.start(0)
            assert len(set(given)) == 3

        self.run(scenario)

    def test_a_shutdown_is_granted_to_this_life_of_this_broker_only(self) -> None:
        async def scenario(members: Members) -> None:
            await members.until(lambda: members.controller == 0)
            epoch = members.broker(0).coordinator.membership.broker_epoch
            for broker, given, code in (
                (0, epoch - 1, ErrorCode.stale_broker_epoch),
                (7, epoch, ErrorCode.broker_not_available),
                (0, epoch, NONE),
            ):
                answered = await members.ask(
                    0,
                    ApiKey.CONTROLLED_SHUTDOWN,
                    3,
                    broker_id=broker,
                    broker_epoch=given,
                )
                assert answered.error_code is code

        self.run(scenario)


class TestEmbedded(ClusterContract):
    """The broker is its own cluster."""

    settings: ClassVar[Mapping[str, str]] = {
        "zookeeper_connect": "",
        # Without this listener, the broker would accept no shutdown request.
        "doorkeeper_controller_listeners": "PLAINTEXT",
    }


class TestUnderZooKeeper(ClusterContract):
    """The broker is the only member of a ZooKeeper cluster."""
