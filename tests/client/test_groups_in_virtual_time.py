"""Groups of our consumers with the real coordinator, in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import trio

from broker.client.consumer.consumer import KafkaConsumer
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.client.cluster import Cluster, in_cluster
from tests.client.group_members import (
    PARTITIONS,
    PROTOCOLS,
    QUICK,
    Listener,
    Member,
    complete,
    until,
)

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@every_protocol
def test_a_group_shares_a_topic_while_members_come_and_go_and_records_arrive(
    protocol: str,
) -> None:
    async def scenario(cluster: Cluster) -> tuple[list[tuple[str, int, int]], int]:
        await cluster.create("t", PARTITIONS)
        seen: list[tuple[str, int, int]] = []
        members = [Member(cluster, seen, name) for name in "abc"]
        produced = 0
        producing = trio.CancelScope()
        options = PROTOCOLS[protocol]

        async def produce() -> None:
            nonlocal produced
            async with cluster.producer() as producer:
                with producing:
                    while True:
                        await producer.send("t", b"x", partition=produced % PARTITIONS)
                        produced += 1
                        await trio.sleep(2e-3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            running: list[Member] = []
            for member in members:
                nursery.start_soon(lambda m=member: m.run(**options))
                running.append(member)
                await until(lambda: complete(running))
            members[1].leaving = True
            running.remove(members[1])
            await until(lambda: complete(running))
            # This member ends without a LeaveGroup; its session has to expire.
            members[0].scope.cancel()
            running.remove(members[0])
            await until(lambda: complete(running))
            producing.cancel()
            await until(lambda: len({each[1:] for each in seen}) >= produced)
            members[2].leaving = True
        return seen, produced

    seen, produced = in_cluster(scenario)
    counts = Counter(each[1:] for each in seen)
    assert len(counts) == produced > 200
    # Members commit at a revocation. Only the member that ended without one has its
    # uncommitted records read again.
    repeated = {key for key, count in counts.items() if count > 1}
    assert repeated <= {each[1:] for each in seen if each[0] == "a"}
    for name in "abc":
        for partition in range(PARTITIONS):
            own = [each[2] for each in seen if each[:2] == (name, partition)]
            assert own == sorted(own)


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "KIP-848"])
def test_a_member_gives_up_only_what_goes_elsewhere(protocol: str) -> None:
    async def scenario(cluster: Cluster) -> list[tuple[str, int]]:
        await cluster.create("t", PARTITIONS)
        first, second = Member(cluster, [], "a"), Member(cluster, [], "b")
        own = PROTOCOLS[protocol]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: first.run(**own))
            await until(lambda: complete([first]))
            nursery.start_soon(lambda: second.run(**own))
            await until(lambda: complete([first, second]))
            first.leaving = second.leaving = True
        return [(what, len(which)) for what, which in first.listener.events]

    events = in_cluster(scenario)
    # Three partitions move to the other member; three are never revoked before the end.
    assert [each for each in events if each[1]] == [
        ("assigned", 6),
        ("revoked", 3),
        ("revoked", 3),
    ]


def test_eager_members_give_up_everything_and_get_it_anew() -> None:
    async def scenario(cluster: Cluster) -> list[tuple[str, int]]:
        await cluster.create("t", PARTITIONS)
        first, second = Member(cluster, [], "a"), Member(cluster, [], "b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.run)
            await until(lambda: complete([first]))
            nursery.start_soon(second.run)
            await until(lambda: complete([first, second]))
            first.leaving = second.leaving = True
        return [(what, len(which)) for what, which in first.listener.events]

    events = in_cluster(scenario)
    assert events[:4] == [
        ("assigned", 6),
        ("revoked", 6),
        ("assigned", 3),
        ("revoked", 3),
    ]


@pytest.mark.parametrize("protocol", ["range", "KIP-848"])
def test_a_static_member_comes_back_without_a_rebalance(protocol: str) -> None:
    own = PROTOCOLS[protocol]

    async def scenario(cluster: Cluster) -> tuple[int, list[str]]:
        await cluster.create("t", PARTITIONS)
        members = [Member(cluster, [], name) for name in "ab"]
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(
                    lambda m=member: m.run(group_instance_id=m.name, **own)
                )
            await until(lambda: complete(members))
            events = len(members[0].listener.events)
            had = members[1].assignment
            members[1].leaving = True
            await until(lambda: not members[1].assignment)
            again = Member(cluster, [], "b")
            nursery.start_soon(lambda: again.run(group_instance_id="b", **own))
            await until(lambda: complete([members[0], again]))
            assert again.assignment == had
            news = [what for what, _ in members[0].listener.events[events:]]
            again.leaving = members[0].leaving = True
        return len(had), news

    assert in_cluster(scenario) == (3, [])


def test_a_second_member_of_the_same_name_fences_the_first() -> None:
    async def scenario(cluster: Cluster) -> ErrorCode:
        await cluster.create("t", PARTITIONS)
        options = {"group_id": "g", "group_instance_id": "one", **QUICK}
        async with cluster.consumer(**options) as first:
            first.subscribe(["t"])
            await first.poll(timeout_s=1)
            async with cluster.consumer(**options) as second:
                second.subscribe(["t"])
                await second.poll(timeout_s=1)
                assert len(second.assignment) == PARTITIONS
                with pytest.raises(KafkaError) as fenced:
                    await first.poll(timeout_s=5)
        return fenced.value.code

    assert in_cluster(scenario) is ErrorCode.fenced_instance_id


@pytest.mark.parametrize("protocol", ["range", "KIP-848"])
def test_a_member_that_does_not_poll_is_out_and_loses_its_partitions(
    protocol: str,
) -> None:
    async def scenario(cluster: Cluster) -> list[str]:
        await cluster.create("t", PARTITIONS)
        own = PROTOCOLS[protocol]
        options = {"group_id": "g", "max_poll_interval_ms": 2_000, **own}
        async with cluster.consumer(**options) as consumer:
            listener = Listener(consumer)
            consumer.subscribe(["t"], listener)
            await consumer.poll(timeout_s=1)
            await trio.sleep(10)
            other = Member(cluster, [], "b")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: other.run(**own))
                # If the first consumer were still a member, this would need its poll.
                await until(lambda: complete([other]))
                await consumer.poll(timeout_s=1)
                await until(lambda: len(other.assignment) == 3)
                other.leaving = True
        return [what for what, _ in listener.events]

    assert in_cluster(scenario)[:3] == ["assigned", "lost", "assigned"]


def test_positions_are_committed_by_the_clock_and_when_the_block_ends() -> None:
    async def scenario(cluster: Cluster) -> list[int]:
        await cluster.create("t", 1)
        async with cluster.producer() as producer:
            for number in range(100):
                await producer.send("t", b"%d" % number)
        name = TopicPartition("t", 0)
        committed = []

        async def note(consumer: KafkaConsumer) -> None:
            found = await consumer.committed([name])
            committed.append(found[name].offset if found else -1)

        options = {"group_id": "g", "auto_commit_interval_ms": 500, **QUICK}
        async with cluster.consumer(**options) as consumer:
            consumer.subscribe(["t"])
            assert len(await consumer.poll(10)) == 10
            await note(consumer)
            await trio.sleep(0.6)
            # The next poll marks the ten records as processed.
            await note(consumer)
            assert len(await consumer.poll(10)) == 10
            await trio.sleep(0.1)
            await note(consumer)
        async with cluster.consumer(**options) as consumer:
            await note(consumer)
        return committed

    assert in_cluster(scenario) == [-1, -1, 10, 20]


def test_a_block_that_fails_commits_nothing_of_what_it_worked_on() -> None:
    async def scenario(cluster: Cluster) -> int:
        await cluster.create("t", 1)
        async with cluster.producer() as producer:
            for number in range(100):
                await producer.send("t", b"%d" % number)

        async def fail_at_the_third(opened: Any) -> None:
            async with opened as consumer:
                consumer.subscribe(["t"])
                async for record in consumer:
                    if record.offset == 3:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_at_the_third(cluster.consumer(group_id="g", **QUICK))
        async with cluster.consumer(group_id="g", **QUICK) as consumer:
            consumer.subscribe(["t"])
            # The failed member has left its group, so no session has to expire.
            with trio.fail_after(0.5):
                (record,) = await consumer.poll(1)
        return int(record.offset)

    assert in_cluster(scenario) == 0


def test_a_listeners_exception_is_raised_by_the_poll() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("t", PARTITIONS)
        async with cluster.consumer(group_id="g", **QUICK) as consumer:
            listener = Listener(consumer)

            async def fail(partitions: frozenset[TopicPartition]) -> None:
                raise ZeroDivisionError

            listener.on_partitions_assigned = fail  # type: ignore[method-assign]
            consumer.subscribe(["t"], listener)
            with pytest.raises(ZeroDivisionError):
                await consumer.poll(timeout_s=5)
            assert len(consumer.assignment) == PARTITIONS
            assert await consumer.poll(timeout_s=1) == []

    in_cluster(scenario)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("protocol", ["range", "KIP-848"])
def test_a_group_survives_connections_that_are_cut_at_any_byte(
    protocol: str, seed: int
) -> None:
    async def scenario(cluster: Cluster) -> tuple[set[tuple[int, int]], int]:
        await cluster.create("t", PARTITIONS)
        async with cluster.producer(batch_size=150) as producer:
            for number in range(600):
                await producer.send("t", bytes(40), partition=number % PARTITIONS)
        rng = random.Random(seed)
        cluster.draw_budget = lambda: rng.randrange(800, 2_500)
        seen: list[tuple[str, int, int]] = []
        members = [Member(cluster, seen, name) for name in "ab"]
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(
                    lambda m=member: m.run(
                        max_partition_fetch_bytes=200,
                        reconnect_backoff_ms=5,
                        **PROTOCOLS[protocol],
                    )
                )
            await until(lambda: len({each[1:] for each in seen}) == 600)
            for member in members:
                member.leaving = True
        return {each[1:] for each in seen}, cluster.cuts

    seen, cuts = in_cluster(scenario, seed=seed)
    assert seen == {(p, o) for p in range(PARTITIONS) for o in range(100)}
    assert cuts > 5


@pytest.mark.parametrize("protocol", ["range", "KIP-848"])
def test_polls_without_patience_join_all_the_same(protocol: str) -> None:
    async def scenario(cluster: Cluster) -> int:
        await cluster.create("t", PARTITIONS)
        async with cluster.consumer(group_id="g", **PROTOCOLS[protocol]) as consumer:
            consumer.subscribe(["t"])
            for _ in range(100):
                await consumer.poll(timeout_s=0)
                await trio.sleep(0.01)
            return len(consumer.assignment)

    assert in_cluster(scenario) == PARTITIONS


@every_protocol
def test_an_unsubscribed_member_frees_its_partitions_and_may_return(
    protocol: str,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("t", PARTITIONS)
        options = {"group_id": "g", **PROTOCOLS[protocol]}
        stays = Member(cluster, [], "stays")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: stays.run(**PROTOCOLS[protocol]))
            async with cluster.consumer(**options) as comes_and_goes:
                for _ in range(2):
                    comes_and_goes.subscribe(["t"])
                    while len(comes_and_goes.assignment) != PARTITIONS // 2:
                        await comes_and_goes.poll(timeout_s=0.05)
                    await comes_and_goes.unsubscribe()
                    assert comes_and_goes.assignment == frozenset()
                    await until(lambda: complete([stays]))
            stays.leaving = True

    in_cluster(scenario)
