"""Brokers with invalid, missing or outdated responses, and unreachable brokers."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from broker.client.producer.producer import open_producer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from tests.client.fake_brokers import FakeCluster, producer, send_all


def wrong_id(key: ApiKey, frame: bytes) -> bytes:
    return frame[:4] + struct.pack(">i", 999) + frame[8:]


def too_large(key: ApiKey, frame: bytes) -> bytes:
    return struct.pack(">i", 1 << 30) + frame[4:]


def cut_short(key: ApiKey, frame: bytes) -> bytes:
    return struct.pack(">i", len(frame) - 4 - 3) + frame[4:-3]


def uncalled_for(key: ApiKey, frame: bytes) -> bytes:
    return frame + frame


@pytest.mark.parametrize("damage", [wrong_id, too_large, cut_short, uncalled_for])
async def test_a_broker_that_answers_nonsense_is_left_and_asked_again(
    autojump_clock: MockClock,
    damage: Callable[[ApiKey, bytes], bytes],
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        left = [True]

        def tamper(key: ApiKey, frame: bytes) -> bytes:
            if key is ApiKey.PRODUCE and left:
                left.clear()
                return damage(key, frame)
            return frame

        cluster.tamper = tamper
        async with producer(cluster) as opened:
            written = await send_all(opened, 5)
        assert [each.offset for each in written] == list(range(5))
        assert cluster.partitions[0].timestamps == list(range(5))
        assert cluster.calls[ApiKey.API_VERSIONS] == 2
        nursery.cancel_scope.cancel()


async def test_a_request_that_is_not_answered_takes_its_connection_with_it(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        async with producer(cluster, request_timeout_ms=1_000) as opened:
            await send_all(opened, 1)
            began_s = trio.current_time()
            swallowed = [b""]
            cluster.tamper = lambda key, frame: swallowed.pop() if swallowed else frame
            await send_all(opened, 1)
            assert 1.0 <= trio.current_time() - began_s < 1.2
        assert cluster.calls[ApiKey.API_VERSIONS] == 2
        nursery.cancel_scope.cancel()


async def test_a_broker_of_before_is_asked_for_its_versions_in_its_own(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery, leaders=[1])
        refusals = [0]

        def tamper(key: ApiKey, frame: bytes) -> bytes:
            if key is ApiKey.API_VERSIONS and not refusals[0]:
                refusals[0] += 1
                # Version 0 without any API keys, as KIP-511 requires from old brokers.
                code = ErrorCode.unsupported_version.value
                return struct.pack(">i", 10) + frame[4:8] + struct.pack(">hi", code, 0)
            return frame

        cluster.tamper = tamper
        async with producer(cluster) as opened:
            assert len(await send_all(opened, 2)) == 2
        assert cluster.calls[ApiKey.API_VERSIONS] == 2
        nursery.cancel_scope.cancel()


async def test_attempts_to_reconnect_come_ever_less_often(
    autojump_clock: MockClock,
) -> None:
    attempts: list[float] = []

    async def connect(host: str, port: int) -> Any:
        attempts.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError(111, "nobody")

    opened = open_producer(
        "fake:1",
        connect=connect,
        rng=random.Random(7),
        max_block_ms=60_000,
        reconnect_backoff_ms=100,
        reconnect_backoff_max_ms=2_000,
        retry_backoff_ms=1,
        retry_backoff_max_ms=1,
    )
    async with opened as producer:
        with pytest.raises(KafkaError):
            await producer.send("t", b"x")
    gaps = [b - a for a, b in pairwise(attempts)]
    for number, gap in enumerate(gaps[:5]):
        # KIP-580: the delay doubles each time, with a jitter of 20 %.
        assert 0.8 * 0.1 * 2**number <= gap <= 1.2 * 0.1 * 2**number + 0.01
    assert all(1.6 <= gap <= 2.41 for gap in gaps[6:])
