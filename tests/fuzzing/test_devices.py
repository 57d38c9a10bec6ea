"""No call that may block on a device is made on the event loop while it serves."""

from __future__ import annotations

import random
from typing import Final

import pytest
import trio

from broker.assembly import assemble
from broker.disk.memory import MemoryStorage
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.records.batch_records import new_batch
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from tests.broker.apis.requests import (
    SECONDS_30,
    START_MS,
    batch,
    new_topic,
    produce_fields,
)
from tests.fuzzing.devices import Elsewhere, NotedCalls
from tests.fuzzing.extremes import Words
from tests.fuzzing.frames import ALL
from tests.fuzzing.onslaught import Onslaught
from tests.virtual.kafka import ask

OFTEN: Final = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.scheduler.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "offsets.retention.check.interval.ms": "500",
    "log.segment.bytes": "2000",
    "log.retention.bytes": "5000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.segment.bytes": "2000",
}


class Noted(Onslaught):
    """A broker whose jobs run elsewhere; ``calls`` are blocking calls outside jobs."""

    def __init__(self, clock: VirtualClock, seed: int, **settings: str) -> None:
        self.is_serving = False
        self.elsewhere = Elsewhere()
        self.calls = NotedCalls(self.elsewhere, lambda: self.is_serving)
        super().__init__(clock, seed, **settings)
        self.storage.faults = self.calls

    def another_broker(self, storage: MemoryStorage) -> Broker:
        return assemble(
            self.config,
            storage=storage,
            now_ns=self.clock.now_ns,
            now_ms=lambda: START_MS + self.clock.now_ms(),
            rng=random.Random(5),
            blocking=self.elsewhere.blocking,
            threads=self.elsewhere,
        )


@pytest.mark.parametrize("seed", range(3))
def test_a_life_makes_no_call_that_may_wait_on_the_event_loop(seed: int) -> None:
    async def main(clock: VirtualClock) -> None:
        world = Noted(
            clock, seed, **{key.replace(".", "_"): OFTEN[key] for key in OFTEN}
        )
        async with world.serving():
            world.is_serving = True
            await _a_life(world)
            rng = random.Random(seed)
            await world.fire(rng, Words(), ALL, 150)
            world.stop_following()
            await trio.sleep(60)
            world.is_serving = False
        assert world.calls.made_by == {}

    run_virtual(main, seed=seed)


async def _a_life(world: Onslaught) -> None:
    """Create, fill, flush, roll, compact, trim, commit, delete, create again."""
    stream = world.connect()
    topics = [
        new_topic("t", 2, configs=[("flush.messages", "3")]),
        new_topic("c", 1, configs=[("cleanup.policy", "compact")]),
        new_topic("gone", 2),
    ]
    await ask(stream, ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=SECONDS_30)
    joined = {"group_id": "g", "generation_id_or_member_epoch": -1}
    at = {"partition_index": 0, "committed_offset": 1}
    committed = [{"name": "t", "partitions": [at]}]
    for number in range(40):
        everywhere = {("t", 0): batch(bytes(300)), ("gone", 1): batch(bytes(300))}
        keyed = new_batch([(START_MS, b"%d" % (number % 3), bytes(300))])
        await ask(
            stream,
            ApiKey.PRODUCE,
            8,
            **produce_fields({**everywhere, ("c", 0): keyed}),
        )
        await ask(stream, ApiKey.OFFSET_COMMIT, 7, **joined, topics=committed)
        await trio.sleep(0.2)
    deleted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": -1}]}]
    await ask(stream, ApiKey.DELETE_RECORDS, 1, topics=deleted, timeout=SECONDS_30)
    await ask(stream, ApiKey.DELETE_TOPICS, 5, topic_names=["gone"], timeout=SECONDS_30)
    await trio.sleep(5)
    again = [new_topic("gone", 2)]
    await ask(stream, ApiKey.CREATE_TOPICS, 7, topics=again, timeout=SECONDS_30)
    await stream.aclose()
