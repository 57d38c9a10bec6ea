"""Contained failures: an unexpected znode, or a fault within one member.

Every broker of a cluster reads the same znodes. A znode that crashes the controller
would crash each newly elected one in turn.
"""

from __future__ import annotations

import logging
from collections.abc import Generator

import pytest
import trio

from broker.controller.controller import KafkaController, ZooKeeperState
from broker.controller.decisions import Decisions
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.members import (
    Members,
    consumed,
    numbers,
    send,
    with_members,
)

NONE = ErrorCode.none


def failures(members: Members, what: str) -> float:
    """Return the number of failures of one kind, from all brokers' metrics."""
    return sum(
        metric.value
        for number in members.alive
        for metric in members.broker(number).coordinator.membership.metrics()
        if metric is not None
        and metric.name == "doorkeeper_background_failures"
        and metric.labels == {"duty": what}
    )


async def serves(members: Members, name: str) -> None:
    """Assert that all brokers run, and that a topic can be created on them."""
    assert members.alive == [0, 1, 2]
    await members.until(members.know_each_other)
    assert (await members.create(name)).error_code is NONE


@pytest.mark.parametrize(
    "config",
    [
        b'{"version":1,"config":{"retention.ms":"a week","segment.ms":"5000"}}',
        b'{"version":1,"config":{"segment.bytes":"-1","segment.ms":"5000"}}',
    ],
)
def test_a_topics_config_that_makes_no_sense_is_not_in_force_and_the_others_are(
    config: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        session = await members.session()
        await session.set("/config/topics/t", config)
        changed = b'{"version":2,"entity_path":"topics/t"}'
        await session.create("/config/changes/config_change_", changed, sequential=True)
        await members.until(
            lambda: all(
                members.partition(number, "t").log.config.segment_ms == 5000
                for number in members.alive
            )
        )
        # Despite the znode, brokers can restart, and a controller can be elected.
        controller = members.controller
        assert controller is not None
        await members.stop(controller)
        await members.start(controller)
        await serves(members, "u")
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 10))
        assert await consumed(members, 10) == numbers(0, 10)

    with_members(scenario)
    assert "configs that cannot be read are not in force" in caplog.text


def test_configs_that_cannot_be_taken_into_effect_cost_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two topics are altered at once, and the first one's listener fails."""

    async def scenario(members: Members) -> None:
        for name in ("a", "b"):
            await members.create(name)
        broker = members.broker(0)
        take = broker.topic_changed

        async def topic_changed(name: str) -> None:
            if name == "a":
                raise ZeroDivisionError
            await take(name)

        monkeypatch.setattr(broker, "topic_changed", topic_changed)
        session = await members.session()
        config = b'{"version":1,"config":{"segment.ms":"5000"}}'
        for name in ("a", "b"):
            await session.set(f"/config/topics/{name}", config)
            changed = b'{"version":2,"entity_path":"topics/%s"}' % name.encode()
            await session.create(
                "/config/changes/config_change_", changed, sequential=True
            )
        await members.until(
            lambda: members.partition(0, "b").log.config.segment_ms == 5000
        )
        assert failures(members, "altered configs") == 1
        await serves(members, "c")

    with_members(scenario)


def test_a_broker_id_that_is_no_number_is_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(members: Members) -> None:
        session = await members.session()
        await session.create("/brokers/ids/left-here-by-hand", b"{}")
        await serves(members, "t")
        controller = members.controller
        assert controller is not None
        await members.stop(controller)
        await members.start(controller)
        await serves(members, "u")

    with_members(scenario)
    assert not [it for it in caplog.records if it.levelno >= logging.ERROR]


def test_an_event_that_fails_costs_who_asked_and_the_controller_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def elect_leaders(*_: object) -> Generator[None, None, None]:
        yield from ()
        raise ZeroDivisionError

    async def scenario(members: Members) -> None:
        await members.create("t")
        controller = members.controller
        assert controller is not None
        monkeypatch.setattr(KafkaController, "elect_leaders", elect_leaders)
        asked = {
            "election_type": 0,
            "topic_partitions": [{"topic": "t", "partitions": [0]}],
            "timeout": SECONDS_30,
        }
        answered = await members.ask(controller, ApiKey.ELECT_LEADERS, 2, **asked)
        assert answered.error_code is ErrorCode.unknown_server_error
        assert members.controller == controller
        assert failures(members, "controller event") == 1
        await serves(members, "u")

    with_members(scenario)


def test_a_controller_that_cannot_take_over_leaves_it_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of three members fail to take over, one after the other; no broker ends."""
    start = KafkaController.start
    broken: set[int] = set()

    def starting(self: KafkaController, found: ZooKeeperState) -> Decisions[None]:
        if self.context.controller_id in broken:
            raise ZeroDivisionError
        return start(self, found)

    async def scenario(members: Members) -> None:
        await members.create("t")
        monkeypatch.setattr(KafkaController, "start", starting)
        able = members.controller
        assert able is not None
        broken.update({0, 1, 2} - {able})
        await members.stop(able)
        await members.until(lambda: failures(members, "controller start") >= 2)
        await members.start(able)
        await members.until(lambda: members.controller == able)
        await serves(members, "u")

    with_members(scenario)


def test_a_session_that_fails_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        victim = next(it for it in members.alive if it != members.controller)
        coordinator = members.broker(victim).coordinator
        epoch = coordinator.membership.broker_epoch

        def fails(*_: object) -> list[str]:
            raise ZeroDivisionError

        member = coordinator.membership._member  # type: ignore[attr-defined]
        with monkeypatch.context() as patched:
            patched.setattr(member.configs, "read_changes", fails)
            session = await members.session()
            await session.create("/config/changes/config_change_", b"", sequential=True)
            await members.until(lambda: failures(members, "session") == 1)
        await members.until(lambda: coordinator.membership.broker_epoch > epoch)
        await members.until(members.know_each_other)
        await serves(members, "u")

    with_members(scenario)


@pytest.mark.parametrize("away", [True, False], ids=["leader away", "over quota"])
def test_a_follower_without_a_backoff_does_not_ask_without_end(away: bool) -> None:
    """Kafka accepts 0 for ``replica.fetch.backoff.ms``."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.until(lambda: members.leader("t") >= 0)
        leader = members.leader("t")
        (follower, *_) = (it for it in members.alive if it != leader)
        fetchers = members.broker(follower).replication.fetchers.fetchers
        await members.until(lambda: bool(fetchers()))
        (fetcher,) = fetchers().values()
        if away:
            await members.kill(leader)
        else:
            fetcher.quota = NothingPasses()
        before = fetcher.requests
        await trio.sleep(1)
        # The first request, and one every 10 ms.
        assert fetcher.requests - before <= 101

    with_members(scenario, replica_fetch_backoff_ms="0")


class NothingPasses:
    """A quota that is always exceeded."""

    def holds_back(self, key: TopicPartition, *, in_sync: bool) -> bool:
        """Return True."""
        return True

    def note(self, key: TopicPartition, count: int) -> None:
        """Count nothing."""
