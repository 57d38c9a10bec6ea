"""A producer's reaction to each error; order and number of records are preserved."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import BatchHeader
from tests.client.fake_brokers import FakeCluster, Fault, producer, send_all
from tests.seeds import seeds


def once(when: Callable[[BatchHeader], bool], code: ErrorCode) -> Fault:
    """Return a fault that gives an error once, for the first matching batch."""
    left = [code]

    def fault(index: int, header: BatchHeader) -> ErrorCode | None:
        return left.pop() if left and when(header) else None

    return fault


async def test_a_leader_that_has_moved_is_found_and_order_is_kept(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1, 2])
        async with producer(cluster) as opened:
            await send_all(opened, 3)
            cluster.leaders[0], cluster.epochs[0] = 2, 1
            written = await send_all(opened, 20)
        assert [each.offset for each in written] == list(range(3, 23))
        assert cluster.partitions[0].timestamps == [0, 1, 2, *range(20)]
        assert {node for node, index, _ in cluster.produced[-20:]} == {2}
        nursery.cancel_scope.cancel()


async def test_an_older_answer_about_a_leader_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        async with producer(cluster, metadata_max_age_ms=100) as opened:
            cluster.epochs[0] = 5
            await send_all(opened, 1)
            await trio.sleep(1)
            # The next broker has outdated metadata, with an old leader.
            cluster.leaders[0], cluster.epochs[0] = 2, 4
            await trio.sleep(1)
            cluster.leaders[0] = 1
            await send_all(opened, 3)
        assert {node for node, _, _ in cluster.produced} == {1}
        nursery.cancel_scope.cancel()


async def test_an_answer_without_brokers_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    """An overloaded broker lists no brokers, although it is one itself."""
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        async with producer(cluster, metadata_max_age_ms=100) as opened:
            await send_all(opened, 1)
            cluster.told_nothing = True
            asked = cluster.calls[ApiKey.METADATA]
            await trio.sleep(1)
            assert cluster.calls[ApiKey.METADATA] > asked
            await send_all(opened, 3)
        assert {node for node, _, _ in cluster.produced} == {1}
        nursery.cancel_scope.cancel()


RETRIABLE = [
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.leader_not_available,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.kafka_storage_error,
    ErrorCode.request_timed_out,
    ErrorCode.corrupt_message,
    ErrorCode.network_exception,
]
FINAL = [
    ErrorCode.topic_authorization_failed,
    ErrorCode.invalid_record,
    ErrorCode.invalid_timestamp,
    ErrorCode.unsupported_compression_type,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.message_too_large,
]


@pytest.mark.parametrize("code", RETRIABLE, ids=lambda code: code.name)
async def test_transient_errors_are_retried_in_order(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        cluster.faults = [
            once(lambda h, n=n: h.base_timestamp == n, code) for n in (2, 5)
        ]
        async with producer(cluster) as opened:
            written = await send_all(opened, 10)
        assert [each.offset for each in written] == list(range(10))
        assert cluster.partitions[0].timestamps == list(range(10))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("code", FINAL, ids=lambda code: code.name)
async def test_a_permanent_error_fails_its_batch_and_no_other(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        cluster.faults = [once(lambda h: h.base_timestamp == 2, code)]
        async with producer(cluster) as opened:
            receipts = [
                await opened.send("t", b"x", partition=0, timestamp_ms=number)
                for number in range(10)
            ]
            with pytest.raises(KafkaError) as failed:
                await receipts[2].wait()
            assert failed.value.code is code
            offsets = [
                (await each.wait()).offset
                for each in receipts
                if each is not receipts[2]
            ]
        assert offsets == list(range(9))
        # Later batches were numbered as if it existed, and were renumbered.
        assert cluster.partitions[0].timestamps == [0, 1, *range(3, 10)]
        assert {h.producer_epoch for _, h in cluster.partitions[0].batches} == {0, 1}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "code", [ErrorCode.unknown_producer_id, ErrorCode.out_of_order_sequence_number]
)
async def test_a_broker_that_has_forgotten_the_producer_is_told_anew(
    autojump_clock: MockClock,
    code: ErrorCode,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        async with producer(cluster) as opened:
            await send_all(opened, 4)
            cluster.partitions[0].producers.clear()
            cluster.faults = [lambda index, h: code if h.producer_epoch == 0 else None]
            written = await send_all(opened, 10)
        assert [each.offset for each in written] == list(range(4, 14))
        bumped = [h for _, h in cluster.partitions[0].batches[4:]]
        assert [h.base_sequence for h in bumped] == list(range(10))
        assert {(h.producer_id, h.producer_epoch) for h in bumped} == {(1_000, 1)}
        nursery.cancel_scope.cancel()


async def test_other_partitions_keep_their_numbers_when_one_begins_anew(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1, 1])
        cluster.faults = [
            once(lambda h: h.base_timestamp == 2, ErrorCode.invalid_record)
        ]
        async with producer(cluster) as opened:
            await send_all(opened, 2, partition=1)
            receipts = [
                await opened.send("t", b"x", partition=0, timestamp_ms=number)
                for number in range(5)
            ]
            for number, receipt in enumerate(receipts):
                if number != 2:
                    await receipt.wait()
            await send_all(opened, 2, partition=1)
        headers = [h for _, h in cluster.partitions[1].batches]
        assert [(h.producer_epoch, h.base_sequence) for h in headers] == [
            (0, 0),
            (0, 1),
            (0, 2),
            (0, 3),
        ]
        nursery.cancel_scope.cancel()


async def test_a_duplicate_of_long_ago_is_a_success_without_a_place(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        cluster.faults = [
            once(lambda h: h.base_timestamp == 1, ErrorCode.duplicate_sequence_number)
        ]
        async with producer(cluster) as opened:
            receipts = [
                await opened.send("t", b"x", partition=0, timestamp_ms=number)
                for number in range(2)
            ]
            assert (await receipts[0].wait()).offset == 0
            assert (await receipts[1].wait()).offset == -1
        nursery.cancel_scope.cancel()


async def test_used_up_epochs_lead_to_another_producer_id(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from broker.client.producer import sequences

    monkeypatch.setattr(sequences, "EPOCH_MAX", 1)
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        cluster.faults = [
            once(lambda h, n=n: h.base_timestamp == n, ErrorCode.invalid_record)
            for n in (2, 9)
        ]
        async with producer(cluster) as opened:
            receipts = [
                await opened.send("t", b"x", partition=0, timestamp_ms=number)
                for number in range(14)
            ]
            await opened.flush()
            with pytest.raises(KafkaError):
                await receipts[9].wait()
        identities = [
            (h.producer_id, h.producer_epoch) for _, h in cluster.partitions[0].batches
        ]
        assert cluster.partitions[0].timestamps == [0, 1, *range(3, 9), *range(10, 14)]
        assert sorted(set(identities)) == [(1_000, 0), (1_000, 1), (1_001, 0)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", seeds(5, 10))
async def test_any_mixture_of_faults_keeps_order_and_writes_nothing_twice(
    autojump_clock: MockClock,
    seed: int,
) -> None:
    rng = random.Random(seed)
    count = 60
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1, 2])
        failing: set[tuple[int, int]] = set()

        def fault(index: int, header: BatchHeader) -> ErrorCode | None:
            if (index, header.base_timestamp) in failing:
                return ErrorCode.invalid_record
            draw = rng.random()
            if draw < 0.1:
                return rng.choice(RETRIABLE)
            if draw < 0.13:
                failing.add((index, header.base_timestamp))
                return ErrorCode.invalid_record
            return None

        cluster.faults = [fault]
        # Some responses are lost after the broker has executed the request.
        cluster.tamper = lambda key, frame: (
            b"" if key is ApiKey.PRODUCE and rng.random() < 0.1 else frame
        )
        async with producer(cluster, request_timeout_ms=200) as opened:
            receipts = {
                (partition, number): await opened.send(
                    "t", b"x", partition=partition, timestamp_ms=number
                )
                for number in range(count)
                for partition in (0, 1)
            }
            await opened.flush()
        for (partition, number), receipt in receipts.items():
            log = cluster.partitions[partition].timestamps
            if (partition, number) in failing:
                with pytest.raises(KafkaError):
                    await receipt.wait()
            else:
                assert log[(await receipt.wait()).offset] == number
        for partition in (0, 1):
            expected = [n for n in range(count) if (partition, n) not in failing]
            log = cluster.partitions[partition].timestamps
            # A failed record may have been written by an earlier attempt.
            assert [n for n in log if (partition, n) not in failing] == expected
            assert len(log) == len(set(log))
            assert log == sorted(log)
        assert failing
        nursery.cancel_scope.cancel()


async def test_no_more_requests_are_under_way_than_allowed(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        async with producer(cluster, max_in_flight_requests_per_connection=2) as opened:
            for number in range(10):
                await opened.send("t", b"x", partition=0, timestamp_ms=number)
            cluster.delay_s = 1.0
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.5)
            assert len(cluster.produced) <= 2
        assert cluster.partitions[0].timestamps == list(range(10))
        nursery.cancel_scope.cancel()


class UnreadStream:
    """A stream to a broker that stops reading once ``stopped`` is set."""

    def __init__(self, stream: Any, stopped: trio.Event, resumed: trio.Event) -> None:
        self._stream, self._stopped, self._resumed = stream, stopped, resumed
        self.receive_some, self.aclose = stream.receive_some, stream.aclose

    async def send_all(self, data: bytes) -> None:
        if self._stopped.is_set():
            await self._resumed.wait()
        await self._stream.send_all(data)


@pytest.mark.parametrize("acks", ["0", "1"])
async def test_memory_is_bounded_while_a_broker_reads_nothing(
    acks: str, autojump_clock: MockClock
) -> None:
    """A record holds memory until it is written, also without acknowledgements."""
    size, memory = 50_000, 2_000_000
    stopped, resumed = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        connect = cluster.connect

        async def unread(host: str, port: int) -> Any:
            return UnreadStream(await connect(host, port), stopped, resumed)

        cluster.connect = unread  # type: ignore[method-assign]  # for this test
        settings = {"acks": acks, "buffer_memory": memory, "max_block_ms": 1_000}
        async with producer(cluster, enable_idempotence=False, **settings) as opened:
            assert (await (await opened.send("t", b"first")).wait()).partition == 0
            stopped.set()
            receipts = []
            with suppress(KafkaError):
                while len(receipts) < 1_000:
                    receipts.append(await opened.send("t", b"v" * size))
            assert memory // size - 10 <= len(receipts) <= memory // size
            resumed.set()
            for each in receipts:
                await each.wait()
            # Without acknowledgements the broker still has to read the written bytes.
            await trio.sleep(1)
        produced = sum(batch.record_count for _, _, batch in cluster.produced)
        assert produced == 1 + len(receipts)
        nursery.cancel_scope.cancel()
