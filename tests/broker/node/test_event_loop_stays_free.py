"""No fsync and no unlink on the event loop while a broker serves (review 2, M5).

A guard simulates threads: the storage knows whether a call comes from one. Any other
sync or removal would stop all clients.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from broker.disk.disk_failures import LogStorageError
from broker.disk.memory import Faults, MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.log.flushing import flush
from broker.log.steps import BlockingCall, run
from broker.log.upkeep.periodic_task import CallsHere, Done
from broker.protocol.api_keys import ApiKey
from broker.protocol.topic_partition import TopicPartition
from simulation.virtual_time.apis import kafka_apis
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30, new_topic
from tests.fuzzing.devices import Elsewhere, NotedCalls
from tests.virtual.brokers import Brokers

KEPT_AWAY = ("sync ", "remove ", "rmdir ", "replace ")


class Guard(Faults):
    """Fails a potentially slow disk call unless a thread makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_serving = False
        self.is_away = False
        self.away_calls = 0
        self.written_here: list[str] = []
        self.is_full = False

    @contextmanager
    def away(self) -> Iterator[None]:
        self.is_away = True
        try:
            yield
        finally:
            self.is_away = False

    def count(self, call: str) -> None:
        slow = self.is_serving and call.startswith(KEPT_AWAY)
        assert self.is_away or not slow, f"on the event loop: {call}"
        self.away_calls += slow
        if call.startswith("write ") and call.endswith(".log") and not self.is_away:
            self.written_here.append(call)
        if self.is_full and call.startswith("sync ") and call.endswith(".log"):
            raise OSError(errno.ENOSPC, "full", call)
        super().count(call)


class Away(CallsHere):
    """Runs blocking calls of maintenance as if in threads."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def start(self, call: BlockingCall, done: Done) -> None:
        with self._guard.away():
            super().start(call, done)

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        with self._guard.away():
            super().run_all(calls, threads)


def guarded(**settings: str) -> tuple[World, Guard]:
    guard = Guard()

    async def blocking(call: BlockingCall) -> None:
        with guard.away():
            call()

    wanted = {
        "log.dirs": "/data/one,/data/two",
        "log.segment.delete.delay.ms": "0",
        "log.initial.task.delay.ms": "0",
        **settings,
    }
    world = World(wanted, MemoryStorage(guard), Away(guard), blocking=blocking)
    guard.is_serving = True
    return world, guard


def create(world: World, name: str, partitions: int = 3) -> None:
    topics = [new_topic(name, partitions)]
    answer = world.send(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=SECONDS_30)
    assert answer.topics[0].error_code is NONE, answer


def delete(world: World, name: str) -> None:
    topics = [{"name": name}]
    answer = world.send(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=SECONDS_30)
    assert answer.responses[0].error_code is NONE, answer


def extend(world: World, name: str, count: int) -> None:
    topics = [{"name": name, "count": count}]
    answer = world.send(ApiKey.CREATE_PARTITIONS, 2, topics=topics, timeout=SECONDS_30)
    assert answer.results[0].error_code is NONE, answer


def alter(world: World, name: str, kind: int = 2, **configs: str) -> None:
    wanted = [{"name": key.replace("_", "."), "value": configs[key]} for key in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": wanted}
    answer = world.send(ApiKey.ALTER_CONFIGS, 1, resources=[resource])
    assert answer.responses[0].error_code is NONE, answer


def producer_ids(world: World) -> None:
    for _ in range(1001):
        answer: Any = world.send(ApiKey.INIT_PRODUCER_ID, 2, transactional_id=None)
        assert answer.error_code is NONE


def test_requests_of_admins_sync_in_other_threads() -> None:
    world, guard = guarded()
    create(world, "t")
    alter(world, "t", retention_ms="1000")
    extend(world, "t", 5)
    producer_ids(world)
    world.produce("t", b"v")
    delete(world, "t")
    assert guard.away_calls > 10
    world.check()


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_synced_or_removed_on_the_event_loop(seed: int) -> None:
    """Topics are created, written, trimmed, rolled, compacted and deleted."""
    rng = random.Random(seed)
    world, guard = guarded(**{"log.segment.bytes": "2000"})
    here: list[str] = []
    for number in range(60):
        kind = rng.random()
        if not here or kind < 0.2:
            # Names are reused, so that the checkpoints have entries of an earlier log.
            name = f"t{rng.randrange(4)}"
            if name not in here:
                create(world, name, rng.randint(1, 3))
                here.append(name)
        elif kind < 0.3:
            delete(world, here.pop(rng.randrange(len(here))))
        elif kind < 0.4:
            policy = rng.choice(["compact", "delete"])
            alter(world, rng.choice(here), cleanup_policy=policy, retention_ms="500")
        elif kind < 0.8:
            for _ in range(rng.randint(1, 20)):
                world.produce(rng.choice(here), b"x" * 300)
        else:
            world.pass_ms(rng.choice([10, 1000, 61_000, 301_000]))
        assert guard.is_serving, number
    world.check()


def test_a_log_is_mended_after_a_full_disk_in_threads() -> None:
    world, guard = guarded(**{"log.segment.bytes": "2000"})
    create(world, "t", 1)
    for _ in range(20):
        world.produce("t", b"x" * 300)
    log = world.broker.logs.logs[TopicPartition("t", 0)]
    guard.is_full = True
    with guard.away(), pytest.raises(LogStorageError):
        flush(log)
    guard.is_full = False
    guard.written_here.clear()
    world.pass_ms(61_000)
    assert log.durability.out_of_service is None
    assert log.recovery_point == log.log_end_offset == 20
    assert guard.written_here == []
    world.check()


def test_a_name_in_a_checkpoint_is_used_again_without_a_device_on_the_loop() -> None:
    """The topic has an entry on disk, and a checkpoint began before its deletion."""
    world, guard = guarded(**{"log.dirs": "/data/one"})
    create(world, "t", 1)
    world.produce("t", b"v")
    logs, key = world.broker.logs, TopicPartition("t", 0)
    with guard.away():
        run(logs.checkpoint(lambda _: 1))
    late = logs.checkpoint(lambda _: 1)
    writing = next(late)
    delete(world, "t")
    create(world, "t", 1)
    assert writing is not None
    with guard.away():
        writing()
    late.close()
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert key not in read_offsets(world.storage, "/data/one", name)


class NotedBrokers(Brokers):
    """Brokers whose blocking calls run elsewhere; ``calls`` records all others."""

    def __init__(self, clock: VirtualClock, settings: dict[str, str]) -> None:
        self.is_noting = False
        self.elsewhere = Elsewhere()
        self.calls = NotedCalls(self.elsewhere, lambda: self.is_noting)
        super().__init__(clock, 2, 1, settings)

    def apis_of(
        self, config: BrokerConfig, clock: VirtualClock, number: int
    ) -> KafkaApis:
        return kafka_apis(
            config,
            clock,
            random.Random(number),
            self.network,
            storage=MemoryStorage(self.calls),
            blocking=self.elsewhere.blocking,
            threads=self.elsewhere,
        )


async def _part_and_follow(brokers: Brokers, epoch: int) -> None:
    """Write unreplicated records as broker 0, follow broker 1, and lead again."""
    await brokers.word(1, leader=1, epoch=epoch, isr=(0, 1))
    for _ in range(30):
        await brokers.produce(0, b"lost", acks=1)
    former = brokers.partition(0)
    assert former.log.recovery_point == former.log.log_end_offset
    await brokers.produce(1, b"new", acks=1)
    end = brokers.partition(1).log.log_end_offset
    await brokers.word(0, leader=1, epoch=epoch, isr=(0, 1))
    await brokers.until(lambda: former.high_watermark == end)
    assert brokers.stored(0) == brokers.stored(1)
    await brokers.elect(0, epoch + 1, (0, 1))


def test_a_follower_truncates_without_a_device_on_the_event_loop() -> None:
    """The follower cuts flushed segments and writes new ones of their names, twice."""
    settings = {"log.segment.bytes": "400", "log.flush.interval.messages": "1"}

    async def main(clock: VirtualClock) -> None:
        brokers = NotedBrokers(clock, settings)
        async with brokers.running():
            await brokers.introduce()
            await brokers.elect(0, 1, (0, 1))
            await brokers.produce(0, *(b"kept" for _ in range(3)))
            brokers.is_noting = True
            for epoch in (2, 4):
                await _part_and_follow(brokers, epoch)
            brokers.is_noting = False
            brokers.partition(0).log.check()
        assert brokers.calls.made_by == {}

    run_virtual(main, seed=1)
