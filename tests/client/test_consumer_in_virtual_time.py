"""The consumer with manual assignment and the real broker, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from broker.client.consumer.consumer_record import ConsumerRecord
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.client.cluster import START_MS, Cluster, in_cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def fill(cluster: Cluster, count: int, partitions: int = 2) -> None:
    """Produce numbers a millisecond apart, in batches of about four."""
    await cluster.create("t", partitions)
    async with cluster.producer(batch_size=130) as producer:
        for number in range(count):
            await producer.send(
                "t",
                b"%d" % number,
                partition=number % partitions,
                timestamp_ms=START_MS + number,
            )


async def take(consumer: Any, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        found += await consumer.poll(count - len(found), timeout_s=5)
    return found


def numbers(records: list[ConsumerRecord], partition: int) -> list[int]:
    return [int(each.value or b"") for each in records if each.partition == partition]


def test_records_come_in_the_order_of_their_partition_through_poll_and_iteration() -> (
    None
):
    async def scenario(cluster: Cluster) -> None:
        await fill(cluster, 200)
        async with cluster.consumer() as consumer:
            consumer.assign([T0, T1])
            found = await take(consumer, 70)
            async for record in consumer:
                found.append(record)
                if len(found) == 200:
                    break
            assert numbers(found, 0) == list(range(0, 200, 2))
            assert numbers(found, 1) == list(range(1, 200, 2))
            assert [each.offset for each in found if each.partition == 1] == list(
                range(100)
            )
            assert found[0].timestamp_ms == START_MS + int(found[0].value or b"")
            assert await consumer.poll(timeout_s=0.2) == []

    in_cluster(scenario)


def test_a_poll_waits_for_the_next_record_and_not_longer() -> None:
    async def scenario(cluster: Cluster) -> tuple[float, float]:
        await fill(cluster, 2)
        async with cluster.consumer() as consumer, cluster.producer() as producer:
            consumer.assign([T0])
            await take(consumer, 1)
            began_s = trio.current_time()
            assert await consumer.poll(timeout_s=1.3) == []
            empty_s = trio.current_time() - began_s
            async with trio.open_nursery() as nursery:

                async def send_later() -> None:
                    await trio.sleep(2)
                    await producer.send("t", b"late", partition=0)

                nursery.start_soon(send_later)
                began_s = trio.current_time()
                (record,) = await consumer.poll()
            assert record.value == b"late"
            return empty_s, trio.current_time() - began_s

    empty_s, waited_s = in_cluster(scenario)
    assert empty_s == pytest.approx(1.3, abs=1e-6)
    # The linger time is 5 ms; the rest is latency.
    assert 2.005 <= waited_s < 2.01


def test_seeks_go_anywhere_and_drop_what_was_in_store() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fill(cluster, 100)
        async with cluster.consumer() as consumer:
            consumer.assign([T0])
            await take(consumer, 3)
            consumer.seek(T0, 40)
            assert await consumer.position(T0) == 40
            assert numbers(await take(consumer, 3), 0) == [80, 82, 84]
            consumer.seek_to_beginning([T0])
            assert numbers(await take(consumer, 2), 0) == [0, 2]
            consumer.seek_to_end([T0])
            assert await consumer.poll(timeout_s=1) == []
            assert await consumer.position(T0) == 50
            times = {T0: START_MS + 61, T1: START_MS + 1_000}
            found = await consumer.offsets_for_times(times)
            assert found == {T0: (31, START_MS + 62), T1: None}
            assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
            assert await consumer.end_offsets([T0, T1]) == {T0: 50, T1: 50}
            with pytest.raises(ValueError, match="not assigned"):
                consumer.seek(T1, 0)

    in_cluster(scenario)


def test_a_paused_partition_keeps_its_store_and_holds_up_nobody() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fill(cluster, 100)
        async with cluster.consumer() as consumer:
            consumer.assign([T0, T1])
            first = await take(consumer, 4)
            consumer.pause([T0])
            rest = await take(consumer, 50 - len(numbers(first, 1)))
            assert numbers(rest, 0) == []
            assert await consumer.poll(timeout_s=1) == []
            consumer.resume([T0])
            rest += await take(consumer, 50 - len(numbers(first, 0)))
            assert numbers(first + rest, 0) == list(range(0, 100, 2))

    in_cluster(scenario)


def test_prefetched_bytes_are_bounded() -> None:
    bound = 400

    async def scenario(cluster: Cluster) -> int:
        await fill(cluster, 400, partitions=1)
        async with cluster.consumer(max_partition_fetch_bytes=bound) as consumer:
            consumer.assign([T0])
            await take(consumer, 1)
            await trio.sleep(10)
            fetches = [
                each
                for each in cluster.world.observer.requests
                if each.api_key == ApiKey.FETCH
            ]
            assert len(await take(consumer, 399)) == 399
            return len(fetches)

    # Each response has at least one batch of about 100 bytes, and at most 400 bytes.
    assert 2 <= in_cluster(scenario) <= 5


@pytest.mark.parametrize(
    ("policy", "expected"), [("earliest", [60, 62]), ("latest", [200])]
)
def test_a_position_out_of_range_is_reset_as_the_settings_say(
    policy: str, expected: list[int]
) -> None:
    async def scenario(cluster: Cluster) -> list[int]:
        await fill(cluster, 100)
        await delete_before(cluster, 30)
        async with cluster.consumer(auto_offset_reset=policy) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 10)
            assert await consumer.poll(1, timeout_s=1) or policy == "latest"
            async with cluster.producer() as producer:
                await producer.send("t", b"200", partition=0)
            if policy == "earliest":
                consumer.seek(T0, 0)
            return numbers(await take(consumer, len(expected)), 0)

    assert in_cluster(scenario) == expected


def test_a_position_out_of_range_without_a_policy_is_an_error_until_a_seek() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fill(cluster, 100)
        await delete_before(cluster, 30)
        async with cluster.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            for _ in range(2):
                with pytest.raises(KafkaError, match="no committed offset"):
                    await consumer.poll()
            consumer.seek(T0, 10)
            with pytest.raises(KafkaError) as failed:
                await consumer.poll()
            assert failed.value.code is ErrorCode.offset_out_of_range
            consumer.seek(T0, 49)
            assert numbers(await take(consumer, 1), 0) == [98]

    in_cluster(scenario)


async def delete_before(cluster: Cluster, offset: int) -> None:
    deleted = await cluster.ask(
        ApiKey.DELETE_RECORDS,
        1,
        topics=[
            {
                "name": "t",
                "partitions": [{"partition_index": 0, "offset": offset}],
            }
        ],
    )
    assert deleted.topics[0].partitions[0].error_code is ErrorCode.none


@pytest.mark.parametrize("seed", range(4))
def test_connections_cut_at_any_byte_lose_and_repeat_no_record(seed: int) -> None:
    async def scenario(cluster: Cluster) -> tuple[list[int], int]:
        await fill(cluster, 400, partitions=1)
        cluster.draw_budget = lambda: cluster.rng.randrange(700, 3_000)
        async with cluster.consumer(
            max_partition_fetch_bytes=300,
            retry_backoff_ms=5,
            reconnect_backoff_ms=5,
        ) as consumer:
            consumer.assign([T0])
            return numbers(await take(consumer, 400), 0), cluster.cuts

    found, cuts = in_cluster(scenario, seed=seed)
    assert found == list(range(400))
    assert cuts > 5


def test_offsets_are_committed_and_found_again_in_assign_mode() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fill(cluster, 100)
        async with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([T0, T1])
            assert await consumer.committed([T0, T1]) == {}
            await consumer.commit({T0: 7})
            assert await consumer.committed([T0, T1]) == {T0: (7, "")}
        async with cluster.consumer(group_id="g") as consumer:
            consumer.assign([T0])
            assert numbers(await take(consumer, 2), 0) == [14, 16]
        async with cluster.consumer(group_id="g") as consumer:
            consumer.assign([T0])
            assert await consumer.position(T0) == 9

    in_cluster(scenario)


def test_contradictory_settings_are_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fill(cluster, 2)
        async with cluster.consumer() as consumer:
            with pytest.raises(ConfigError, match=r"group\.id"):
                consumer.subscribe(["t"])
            with pytest.raises(ConfigError, match=r"group\.id"):
                await consumer.commit()
            consumer.assign([T0])
            async with trio.open_nursery() as nursery:
                await take(consumer, 1)
                nursery.start_soon(consumer.poll)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(trio.BusyResourceError):
                    await consumer.poll()
                nursery.cancel_scope.cancel()
        async with cluster.consumer(group_id="g") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(ValueError, match="not both"):
                consumer.assign([T0])

    in_cluster(scenario)
