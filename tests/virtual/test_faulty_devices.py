"""One failed device call under a whole broker with clients.

Every call fails in turn, with every kind of error. Confirmed operations must survive a
restart, and refused ones may. The broker must continue. A failed device takes its
directory offline (of two); a device that is temporarily out of a resource causes no
lasting loss.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import trio

from broker.assembly import assemble
from broker.disk.memory import Faults, MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.log.log_reading import read
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from simulation.virtual_time.apis import START_MS
from tests.broker.apis.broker_world import World as Broker
from tests.broker.apis.requests import new_topic, values_of
from tests.client.cluster import Cluster
from tests.virtual.world import World, in_world

SETTINGS = {
    "log.dirs": "/data/one,/data/two",
    "offsets.topic.num.partitions": "2",
    "log.segment.bytes": "1024",
    "log.flush.interval.messages": "3",
    "log.initial.task.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}
RECORDS = 10
NONE = ErrorCode.none


@dataclass
class Told:
    """Operations confirmed to clients."""

    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    committed: int = -1
    calls: int = 0
    online: Sequence[str] = ()


async def day(cluster: Cluster, told: Told, storage: MemoryStorage) -> None:
    """Create, write, commit, delete and wait for upkeep; record the responses."""
    for name in ("t", "doomed"):
        created = await cluster.ask(
            ApiKey.CREATE_TOPICS,
            5,
            topics=[new_topic(name, 2)],
            timeout=timedelta(seconds=5),
        )
        if created.topics[0].error_code is NONE:
            told.created.append(name)
    async with cluster.producer(
        acks="all", delivery_timeout_ms=4000, request_timeout_ms=1000
    ) as producer:
        for number in range(RECORDS):
            value = b"%03d" % number + bytes(300)
            try:
                await (await producer.send("t", value, partition=number % 2)).wait()
            except KafkaError:
                continue
            told.written.append(value)
    offset = {"partition_index": 0, "committed_offset": 3}
    await cluster.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    await trio.sleep(0.1)
    answer = await cluster.ask(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id="g",
        generation_id=-1,
        topics=[{"name": "t", "partitions": [offset]}],
    )
    if answer.topics[0].partitions[0].error_code is NONE:
        told.committed = 3
    answer = await cluster.ask(
        ApiKey.DELETE_TOPICS, 5, topic_names=["doomed"], timeout=timedelta(seconds=5)
    )
    if answer.responses[0].error_code is NONE:
        told.deleted.append("doomed")
    await trio.sleep(3)
    # The broker still answers requests.
    await cluster.ask(ApiKey.METADATA, 12, topics=None)


def lived(fail_at: int, error: int, short: int) -> tuple[Told, MemoryStorage]:
    """Run the scenario on a disk whose call number ``fail_at`` fails."""
    told, storage = Told(), MemoryStorage()

    def application(config: Any, clock: Any, network: Any) -> KafkaApis:
        broker = assemble(
            config,
            storage=storage,
            now_ns=clock.now_ns,
            now_ms=lambda: START_MS + clock.now_ms(),
            rng=random.Random(5),
        )
        return KafkaApis(broker)

    async def scenario(world: World) -> None:
        storage.faults = Faults(fail_at, error=error, short=short, reads=True)
        with trio.fail_after(1000):
            await day(Cluster(world, 1), told, storage)
        told.calls = storage.faults.calls
        told.online = world.application.broker.log_dirs.online

    in_world(scenario, SETTINGS, application=application)
    return told, storage.after_kill(Faults())


def check(told: Told, storage: MemoryStorage) -> None:
    """Check that all confirmed operations are on the disk."""
    after = Broker(SETTINGS, storage)
    topics = after.broker.coordinator.admin.topics
    assert set(told.created) - {"doomed"} <= set(topics)
    assert not set(told.deleted) & set(topics)
    found: list[bytes] = []
    for partition in range(2):
        log = after.broker.logs.logs.get(("t", partition))
        offset = 0 if log is not None else -1
        while log is not None and offset < log.log_end_offset:
            piece = read(log, offset, 1 << 20, log.log_end_offset)
            assert piece is not None
            records = values_of(piece.read())
            found += [value for _, value in records]
            offset = records[-1][0] + 1
    if told.committed >= 0:
        wanted = {"name": "t", "partition_indexes": [0]}
        answer = after.send(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[wanted])
        offset = answer.topics[0].partitions[0].committed_offset
        assert offset == told.committed
    missing = [value[:3] for value in told.written if value not in found]
    assert missing == []


KINDS = [
    pytest.param(errno.EIO, 0, id="EIO"),
    pytest.param(errno.EIO, 7, id="EIO after a few bytes"),
    pytest.param(errno.ENOSPC, 0, id="ENOSPC"),
    pytest.param(errno.ENOSPC, 7, id="ENOSPC after a few bytes"),
    pytest.param(errno.EMFILE, 0, id="EMFILE"),
]


def test_a_day_without_faults_is_answered_in_full() -> None:
    told, storage = lived(0, errno.EIO, 0)
    assert (told.created, told.deleted) == (["t", "doomed"], ["doomed"])
    assert (len(told.written), told.committed) == (RECORDS, 3)
    assert told.calls > 100
    check(told, storage)


def sweep(error: int, short: int, first: int, stride: int) -> None:
    """Fail every ``stride``-th call from ``first`` on, one per run."""
    fail_at, refusals = first, 0
    while True:
        told, storage = lived(fail_at, error, short)
        if told.calls < fail_at:
            break
        try:
            check(told, storage)
        except AssertionError as missing:
            raise AssertionError(f"call {fail_at}: {missing}") from missing
        refusals += len(told.written) < RECORDS
        if error != errno.EIO:
            assert len(told.online) == 2, fail_at
        fail_at += stride
    assert fail_at > 100, "the faults were not reached"


@pytest.mark.parametrize(("error", "short"), KINDS)
def test_answered_records_survive_any_fault(error: int, short: int) -> None:
    sweep(error, short, first=3, stride=23)


@pytest.mark.slow
@pytest.mark.parametrize(("error", "short"), KINDS)
def test_answered_records_survive_every_fault(error: int, short: int) -> None:
    sweep(error, short, first=1, stride=1)
