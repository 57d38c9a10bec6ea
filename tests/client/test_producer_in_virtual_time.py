"""The producer with the real broker, in virtual time: guarantees and timing."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from broker.protocol.errors import ErrorCode, KafkaError
from tests.client.cluster import Cluster, in_cluster
from tests.seeds import seeds

PARTITIONS = 3


@pytest.mark.parametrize("seed", seeds(6, 12))
def test_connections_cut_at_any_byte_lose_nothing_and_repeat_nothing(seed: int) -> None:
    count = 150

    async def scenario(cluster: Cluster) -> tuple[list[list[bytes | None]], int]:
        await cluster.create("t", PARTITIONS)
        rng = random.Random(seed)
        # A handshake takes about 600 bytes, so each connection makes some progress.
        cluster.draw_budget = lambda: rng.randrange(700, 4_000)
        offsets: dict[bytes, tuple[int, int]] = {}
        async with cluster.producer(
            batch_size=200, linger_ms=1, retry_backoff_ms=5, reconnect_backoff_ms=5
        ) as producer:
            receipts = []
            for number in range(count):
                value = b"%d" % number
                partition = number % PARTITIONS
                receipts.append(
                    (value, await producer.send("t", value, partition=partition))
                )
                await trio.sleep(rng.random() * 2e-3)
            for value, receipt in receipts:
                written = await receipt.wait()
                offsets[value] = (written.partition, written.offset)
        values = await cluster.read_all("t", PARTITIONS)
        for value, (partition, offset) in offsets.items():
            assert values[partition][offset] == value
        return values, cluster.cuts

    values, cuts = in_cluster(scenario, seed=seed)
    assert cuts > 5
    for partition, found in enumerate(values):
        assert found == [b"%d" % n for n in range(partition, count, PARTITIONS)]


def test_without_idempotence_a_cut_may_repeat_but_loses_nothing() -> None:
    count = 150

    async def scenario(cluster: Cluster) -> list[list[bytes | None]]:
        await cluster.create("t", 1)
        rng = random.Random(3)
        cluster.draw_budget = lambda: rng.randrange(700, 3_000)
        async with cluster.producer(
            enable_idempotence=False, batch_size=200, linger_ms=1, retry_backoff_ms=5
        ) as producer:
            for number in range(count):
                await producer.send("t", b"%d" % number)
                await trio.sleep(1e-3)
        return await cluster.read_all("t", 1)

    repeated = 0
    for seed in range(4):
        (found,) = in_cluster(scenario, seed=seed)
        assert set(found) == {b"%d" % n for n in range(count)}
        repeated += len(found) - count
    # Duplicates occur here, so the test above is effective.
    assert repeated > 0


def test_a_record_lingers_for_company_and_no_longer() -> None:
    async def scenario(cluster: Cluster) -> list[float]:
        await cluster.create("t", 1)
        waits = []
        async with cluster.producer(linger_ms=250) as producer:
            await (await producer.send("t", b"first")).wait()
            for _ in range(3):
                began_s = trio.current_time()
                receipt = await producer.send("t", b"x")
                await receipt.wait()
                waits.append(trio.current_time() - began_s)
            began_s = trio.current_time()
            await producer.send("t", b"y")
            await producer.flush()
            waits.append(trio.current_time() - began_s)
        return waits

    *lingering, flushed = in_cluster(scenario)
    assert all(0.25 <= wait < 0.254 for wait in lingering), lingering
    assert flushed < 0.004


def test_a_full_batch_goes_at_once() -> None:
    async def scenario(cluster: Cluster) -> tuple[float, list[int]]:
        await cluster.create("t", 1)
        async with cluster.producer(linger_ms=10_000, batch_size=1_000) as producer:
            began_s = trio.current_time()
            receipts = [await producer.send("t", b"v" * 100) for _ in range(20)]
            offsets = [(await each.wait()).offset for each in receipts[:16]]
            return trio.current_time() - began_s, offsets

    waited_s, offsets = in_cluster(scenario)
    # A batch has eight records of 107 bytes and a header of 61; two batches are full.
    assert offsets == list(range(16))
    assert waited_s < 1


def test_a_broker_out_of_reach_fails_records_after_the_delivery_timeout() -> None:
    async def scenario(cluster: Cluster) -> tuple[float, ErrorCode]:
        await cluster.create("t", 1)
        async with cluster.producer(
            delivery_timeout_ms=3_000, request_timeout_ms=1_000
        ) as producer:
            await (await producer.send("t", b"here")).wait()
            cluster.reachable = False
            cluster.cut_all()
            began_s = trio.current_time()
            receipt = await producer.send("t", b"gone")
            with pytest.raises(KafkaError) as failed:
                await receipt.wait()
            waited_s = trio.current_time() - began_s
            cluster.reachable = True
            assert (await (await producer.send("t", b"back")).wait()).offset == 1
        return waited_s, failed.value.code

    waited_s, code = in_cluster(scenario)
    assert waited_s == pytest.approx(3.0, abs=0.01)
    assert code is ErrorCode.request_timed_out


def test_a_topic_that_is_not_there_is_waited_for_as_long_as_max_block() -> None:
    async def scenario(cluster: Cluster) -> float:
        async with cluster.producer(max_block_ms=700) as producer:
            began_s = trio.current_time()
            with pytest.raises(KafkaError, match="not in the metadata"):
                await producer.send("nowhere", b"x")
            waited_s = trio.current_time() - began_s
            await cluster.create("nowhere", 1)
            assert (await (await producer.send("nowhere", b"x")).wait()).offset == 0
            with pytest.raises(KafkaError) as failed:
                await producer.send("no/such/name", b"x")
            assert failed.value.code is ErrorCode.invalid_topic_exception
        return waited_s

    waited_s = in_cluster(scenario, auto_create_topics_enable="false")
    assert waited_s == pytest.approx(0.7, abs=0.001)


def test_buffer_memory_holds_senders_back_and_is_given_back() -> None:
    async def scenario(cluster: Cluster) -> tuple[list[int], list[bytes | None]]:
        await cluster.create("t", 1)
        accepted: list[int] = []
        async with cluster.producer(
            batch_size=500, buffer_memory=1_000, linger_ms=50
        ) as producer:
            await (await producer.send("t", b"first", partition=0)).wait()
            cluster.reachable = False
            cluster.cut_all()

            async def send(number: int) -> None:
                await producer.send("t", b"%d" % number + b"v" * 400, partition=0)
                accepted.append(number)

            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(send, number)
                    await trio.sleep(0.01)
                await trio.sleep(1)
                assert accepted == [0, 1]
                cluster.reachable = True
        (found,) = await cluster.read_all("t", 1)
        return accepted, found

    accepted, found = in_cluster(scenario)
    # Trio decides the order of two senders that get memory at the same instant.
    assert sorted(accepted) == list(range(8))
    assert found[1:] == [b"%d" % number + b"v" * 400 for number in accepted]


def test_a_cancelled_send_is_either_in_or_not() -> None:
    async def scenario(cluster: Cluster) -> tuple[set[bytes], set[bytes | None]]:
        await cluster.create("t", 1)
        rng = random.Random(9)
        accepted: set[bytes] = set()
        async with cluster.producer(batch_size=300, buffer_memory=900) as producer:
            for number in range(200):
                value = b"%d" % number + b"v" * 90
                with trio.move_on_after(rng.random() * 1e-3):
                    await producer.send("t", value)
                    accepted.add(value)
        (found,) = await cluster.read_all("t", 1)
        assert len(found) == len(set(found))
        return accepted, set(found)

    accepted, found = in_cluster(scenario)
    assert accepted == found
    assert 0 < len(accepted) < 200


def test_a_block_that_fails_gives_up_what_was_not_sent_and_raises_its_own_error() -> (
    None
):
    async def scenario(cluster: Cluster) -> ErrorCode:
        await cluster.create("t", 1)
        receipts = []

        async def send_and_fail(opened: Any) -> None:
            async with opened as producer:
                receipts.append((producer, await producer.send("t", b"x")))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await send_and_fail(cluster.producer(linger_ms=60_000))
        producer, receipt = receipts[0]
        with pytest.raises(KafkaError) as failed:
            await receipt.wait()
        with pytest.raises(trio.ClosedResourceError):
            await producer.send("t", b"y")
        assert await cluster.read_all("t", 1) == [[]]
        return failed.value.code

    assert in_cluster(scenario) is ErrorCode.network_exception


def test_a_batch_that_is_too_large_for_the_topic_is_halved_until_it_fits() -> None:
    async def scenario(cluster: Cluster) -> list[int]:
        await cluster.create("t", 1)
        async with cluster.producer(batch_size=8_000, linger_ms=20) as producer:
            receipts = [
                await producer.send("t", b"%02d" % n + b"v" * 98, timestamp_ms=n)
                for n in range(40)
            ]
            large = await producer.send("t", b"v" * 1_500)
            written = [await each.wait() for each in receipts]
            with pytest.raises(KafkaError) as failed:
                await large.wait()
            assert failed.value.code is ErrorCode.message_too_large
            assert (await (await producer.send("t", b"after")).wait()).offset == 40
        (values,) = await cluster.read_all("t", 1)
        assert values == [b"%02d" % n + b"v" * 98 for n in range(40)] + [b"after"]
        assert [each.timestamp_ms for each in written] == list(range(40))
        return [each.offset for each in written]

    assert in_cluster(scenario, message_max_bytes="1200") == list(range(40))


@pytest.mark.parametrize("acks", ["0", "1"])
def test_fewer_acks_are_answered_sooner_and_know_less(acks: str) -> None:
    async def scenario(cluster: Cluster) -> list[int]:
        await cluster.create("t", 1)
        async with cluster.producer(acks=acks) as producer:
            receipts = [await producer.send("t", b"%d" % n) for n in range(3)]
            written = [(await each.wait()).offset for each in receipts]
            await trio.sleep(1)
        assert await cluster.read_all("t", 1) == [[b"0", b"1", b"2"]]
        return written

    assert in_cluster(scenario) == ([-1, -1, -1] if acks == "0" else [0, 1, 2])
