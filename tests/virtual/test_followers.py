"""Replication by followers: whole brokers, with the test as their controller."""

from __future__ import annotations

import random
from functools import partial

import pytest
import trio

from broker.cluster.partition import Partition
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import values_of
from tests.seeds import seeds
from tests.virtual.brokers import KEY, Brokers, with_brokers
from tests.virtual.kafka import ask


def test_records_acknowledged_by_all_are_in_every_log() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        assert await brokers.produce(0, b"a", b"b") == (ErrorCode.none, 0)
        assert await brokers.produce(0, b"c") == (ErrorCode.none, 2)
        follower = brokers.partition(1)
        assert follower.log.log_end_offset == 3
        await brokers.until(lambda: follower.high_watermark == 3)
        assert brokers.stored(1) == brokers.stored(0)
        # KIP-392: a consumer may read from a follower, up to the high watermark.
        found = await brokers.fetch(1)
        assert values_of(found.records) == [(0, b"a"), (1, b"b"), (2, b"c")]

    with_brokers(scenario)


def test_records_that_a_follower_flushes_are_durable_before_they_count() -> None:
    """Kafka flushes in ``UnifiedLog.append``, on leaders and followers."""

    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        for offset in range(3):
            assert await brokers.produce(0, b"x") == (ErrorCode.none, offset)
            assert brokers.partition(1).log.recovery_point == offset + 1

    with_brokers(scenario, log_flush_interval_messages="1")


def test_fetchers_are_dealt_anew_while_records_come() -> None:
    """``num.replica.fetchers``: records with acks=all are replicated and flushed."""

    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        fetchers = brokers.applications[1].broker.replication.fetchers
        used = set()

        async def produce() -> None:
            for offset in range(60):
                assert await brokers.produce(0, b"x") == (ErrorCode.none, offset)
                assert brokers.partition(1).log.recovery_point == offset + 1
                used.update(n for n, it in fetchers.fetchers().items() if it.following)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            for count in (2, 4, 3, 5, 3, 2, 1):
                await trio.sleep(0.02)
                await alter(brokers, 1, "num.replica.fetchers", str(count))
                followers = [n for n, it in fetchers.fetchers().items() if it.following]
                assert len(followers) == 1
                assert followers[0].number < count
        assert len(used) > 1
        assert brokers.stored(1) == brokers.stored(0)
        assert brokers.controller.proposed == []
        # Fetchers without partitions end.
        await brokers.until(lambda: len(fetchers.fetchers()) == 1)

    with_brokers(scenario, log_flush_interval_messages="1")


async def alter(brokers: Brokers, broker: int, key: str, value: str) -> None:
    """Alter a broker's config, as an operator does."""
    stream = brokers.connect(broker)
    config = {"name": key, "config_operation": 0, "value": value}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    answered = await ask(
        stream,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[resource],
        validate_only=False,
    )
    await stream.aclose()
    assert answered.responses[0].error_code is ErrorCode.none


def test_a_fetcher_that_has_let_go_of_its_only_partition_is_not_missed() -> None:
    """A fetcher loses its partition when the directory fails (`LogUnavailable`)."""

    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        fetchers = brokers.applications[1].broker.replication.fetchers
        (fetcher,) = fetchers.fetchers().values()
        fetcher.stop(KEY)
        await brokers.until(lambda: not fetchers.fetchers())
        # A config change and a LeaderAndIsr follow.
        await alter(brokers, 1, "num.replica.fetchers", "2")
        await brokers.elect(0, 2, (0, 1))
        assert (await brokers.produce(0, b"a"))[0] is ErrorCode.none

    with_brokers(scenario)


def test_a_leader_that_fell_silent_is_followed_at_once_when_it_leads_again() -> None:
    """The fetcher abandons its pending request: ``simulate --seed 40219``."""

    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        # A port that listens but never accepts.
        brokers.network.listen("127.0.0.1", 9990)
        await brokers.tell_addresses(1, (0, 1), elsewhere={0: 9990})
        fetchers = brokers.applications[1].broker.replication.fetchers
        await brokers.elect(0, 1, (0, 1))
        # The fetcher waits for a response for up to replica.socket.timeout.ms.
        await trio.sleep(1.0)
        await brokers.elect(1, 2, (0, 1))
        await brokers.until(lambda: not fetchers.fetchers(), within_s=1)
        await brokers.introduce()
        await brokers.elect(0, 3, (0, 1))
        found = await brokers.produce(0, b"a", timeout_ms=1000)
        assert found == (ErrorCode.none, 0)

    with_brokers(scenario)


def test_a_follower_waits_until_it_is_told_where_its_leader_is() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.elect(0, 1, (0, 1))
        assert (await brokers.produce(0, b"a", timeout_ms=500))[0] is (
            ErrorCode.request_timed_out
        )
        await brokers.introduce()
        assert await brokers.produce(0, b"b") == (ErrorCode.none, 1)
        assert brokers.stored(1) == brokers.stored(0)

    with_brokers(scenario)


def test_records_that_only_a_former_leader_has_are_cut_off() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        assert await brokers.produce(0, b"kept") == (ErrorCode.none, 0)
        # The follower learns of the election first and stops fetching; the old leader
        # still appends, as in KAFKA-4453.
        await brokers.word(1, leader=1, epoch=2, isr=(0, 1))
        lost = await brokers.produce(0, b"lost", acks=1)
        assert lost == (ErrorCode.none, 1)
        assert await brokers.produce(1, b"new", acks=1) == (ErrorCode.none, 1)
        await brokers.word(0, leader=1, epoch=2, isr=(0, 1))
        former = brokers.partition(0)
        await brokers.until(lambda: former.high_watermark == 2)
        assert values_of(brokers.stored(0)) == [(0, b"kept"), (1, b"new")]
        assert former.log.epochs.entries() == [(1, 0), (2, 1)]

    with_brokers(scenario)


def test_a_doomed_produce_fails_as_soon_as_its_leader_steps_down() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        await brokers.word(1, leader=1, epoch=2, isr=(0, 1))
        outcome: list[ErrorCode] = []

        async def produce() -> None:
            outcome.append((await brokers.produce(0, b"doomed"))[0])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await trio.sleep(2)
            assert not outcome
            await brokers.word(0, leader=1, epoch=2, isr=(0, 1))
        assert outcome == [ErrorCode.not_leader_or_follower]
        await brokers.until(lambda: not brokers.stored(0))

    with_brokers(scenario)


def test_a_follower_behind_its_leaders_start_begins_there() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.elect(0, 1, (0,))
        # The follower is alive, but does not know the leader's address yet.
        await brokers.tell_addresses(0, (0, 1))
        for _ in range(3):
            assert (await brokers.produce(0, b"x", b"y"))[0] is ErrorCode.none
        stream = brokers.connect(0)
        wanted = {"partition_index": 0, "offset": 4}
        deleted = await ask(
            stream,
            ApiKey.DELETE_RECORDS,
            1,
            topics=[{"name": "t", "partitions": [wanted]}],
        )
        # The follower does not fetch, so the request times out.
        assert deleted.topics[0].partitions[0].error_code is (
            ErrorCode.request_timed_out
        )
        await brokers.introduce()
        follower = brokers.partition(1)
        await brokers.until(lambda: follower.log.log_end_offset == 6)
        assert follower.log.log_start_offset == 4
        # Segments of the leader's log begin below its log start offset.
        assert values_of(brokers.stored(1)) == [(4, b"x"), (5, b"y")]

    with_brokers(scenario)


def test_a_replica_that_is_stopped_fetches_no_more() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        assert await brokers.produce(0, b"a") == (ErrorCode.none, 0)
        fetchers = brokers.applications[1].broker.replication.fetchers
        fetchers.stop(KEY)
        assert (await brokers.produce(0, b"b", timeout_ms=500))[0] is (
            ErrorCode.request_timed_out
        )
        assert brokers.partition(1).log.log_end_offset == 1

    with_brokers(scenario)


def has_all(partition: Partition, end: int) -> bool:
    return partition.high_watermark == end


@pytest.mark.parametrize("seed", seeds(6, 12))
def test_logs_become_the_same_after_any_history_of_leaders(seed: int) -> None:
    """Records acknowledged by all replicas are in all logs, which are equal."""

    async def scenario(brokers: Brokers) -> None:
        rng = random.Random(seed)
        acknowledged: list[bytes] = []
        number = epoch = 0
        leader = 0
        await brokers.introduce()
        for _ in range(12):
            epoch += 1
            await brokers.elect(leader, epoch, (0, 1, 2))
            async with trio.open_nursery() as nursery:

                async def produce(value: bytes, acks: int, to: int) -> None:
                    code, _ = await brokers.produce(
                        to, value, acks=acks, timeout_ms=rng.randint(1, 300)
                    )
                    if code is ErrorCode.none and acks == -1:
                        acknowledged.append(value)

                for _ in range(rng.randint(0, 6)):
                    number += 1
                    acks = rng.choice((1, -1))
                    nursery.start_soon(produce, b"%d" % number, acks, leader)
                await trio.sleep(rng.uniform(0, 0.05))
                # Some brokers learn of the next leader while the last one still serves.
                leader = rng.randrange(3)
                epoch += 1
                await brokers.word(leader, leader=leader, epoch=epoch, isr=(0, 1, 2))
        await brokers.elect(leader, epoch + 1, (0, 1, 2))
        assert (await brokers.produce(leader, b"last"))[0] is ErrorCode.none
        end = brokers.partition(leader).log.log_end_offset
        for broker in range(3):
            partition = brokers.partition(broker)
            await brokers.until(partial(has_all, partition, end))
            partition.check()
            partition.log.check()
        assert brokers.stored(0) == brokers.stored(1) == brokers.stored(2)
        kept = [value for _, value in values_of(brokers.stored(0))]
        assert set(acknowledged) <= set(kept), f"seed {seed}"

    with_brokers(scenario, count=3, seed=seed)
