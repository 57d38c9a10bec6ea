"""Handlers that fail in a whole broker leak no resources."""

from __future__ import annotations

import dataclasses
from typing import Any

import trio

from broker.handling import kafka_apis
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from planes.lock import TaskLock
from planes.slices import preempt
from tests.broker.apis.requests import batch, produce_fields
from tests.virtual.kafka import SETTINGS, ask, create_topic, fetch_all, kafka
from tests.virtual.world import in_world

FAILURES = 12


def test_failures_leak_no_seat_lock_memory_or_connection(monkeypatch):
    """Twelve failures under a lock with two seats: any leak would block the broker."""
    lock = TaskLock("shared")

    async def fail(*_: Any) -> Any:
        async with lock:
            await preempt()
            raise ZeroDivisionError

    failing = dataclasses.replace(APIS[ApiKey.HEARTBEAT], handle=fail)
    monkeypatch.setattr(kafka_apis, "APIS", {**APIS, ApiKey.HEARTBEAT: failing})

    async def scenario(world):
        server = world.server
        good = world.connect()
        await create_topic(good)
        streams = [world.connect() for _ in range(FAILURES)]

        async def beat(stream):
            found = await ask(stream, ApiKey.HEARTBEAT, 3)
            assert found.error_code is ErrorCode.unknown_server_error

        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(beat, stream)
        # The same connections are still served.
        for stream in streams:
            await beat(stream)
        done = await ask(
            good, ApiKey.PRODUCE, 8, **produce_fields({("t", 0): batch(b"kept")})
        )
        (topic,) = done.responses
        assert topic.partition_responses[0].error_code is ErrorCode.none
        assert lock.holder is None
        for plane in server.topology.planes:
            assert not plane.seated
            plane.check()
        assert server.pool is not None
        assert server.pool.used_bytes == 0
        assert server.quotas.total == FAILURES + 1
        return await fetch_all(good)

    settings = {
        **SETTINGS,
        "num.io.threads": "2",
        "queued.max.request.bytes": "100000",
        "socket.request.max.bytes": "100000",
    }
    assert in_world(scenario, settings, application=kafka)
