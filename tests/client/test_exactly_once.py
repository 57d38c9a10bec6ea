"""Read-process-write: no loss, no duplicate and no aborted record after any kill.

Two members of a group copy records from one topic to another, with records and offsets
in one transaction. Processors are killed and restarted under their transactional ids.
Connections break at any byte, some transactions are aborted on purpose, and the broker
is killed in each cycle. At the end a ``read_committed`` consumer must find each record
once, in order within its partition, and no aborted record.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import trio

from broker.client.consumer.consumer import KafkaConsumer
from broker.client.consumer.consumer_record import ConsumerRecord
from broker.client.producer.producer import KafkaProducer
from broker.disk.memory import Faults, MemoryStorage
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from simulation.virtual_time.apis import kafka_apis
from tests.client.cluster import LATENCY_NS, SETTINGS, Cluster
from tests.virtual.world import World, in_world

SOURCE, TARGET, GROUP = "source", "target", "copiers"
PARTITIONS = 2
PROCESSORS = ("a", "b")
RECORDS_PER_CYCLE = 12
# The broker is killed at one of this number of disk calls.
CALLS_PER_CYCLE = 150


class Kill(Faults):
    """Keeps the state of the disk at a kill at the given call.

    The broker continues until the end of the cycle; its later writes are discarded.
    """

    def __init__(self, storage: MemoryStorage, at_call: int) -> None:
        super().__init__()
        self._storage = storage
        self._at_call = at_call
        self.left: MemoryStorage | None = None
        self.has_come = trio.Event()

    def count(self, call: str) -> None:
        super().count(call)
        if self.calls == self._at_call:
            self.left = self._storage.after_kill()
            self.has_come.set()


class History:
    """All cycles of one seed: the disk after the last kill, and its expected contents.

    ``sent`` has the values of each source partition, in order.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.storage = MemoryStorage()
        self.sent: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.aborted: set[bytes] = set()
        self.attempts = self.cuts = self.kills = 0

    def cycle(self, *, is_last: bool = False) -> list[bytes]:
        """Start a broker on the disk, run the processors, and kill the broker.

        The last cycle runs until all records are copied, and returns the copies.
        """

        async def run(world: World) -> list[bytes]:
            cluster = Cluster(world, self.rng.randrange(1 << 30))
            with trio.fail_after(10_000):
                await self._feed(cluster)
                kill = Kill(self.storage, self.rng.randint(1, CALLS_PER_CYCLE))
                self.storage.faults = kill
                found = await self._copy(cluster, kill, is_last=is_last)
            self.cuts += cluster.cuts
            self.storage = kill.left or self.storage.after_kill()
            return found

        found: list[bytes] = in_world(
            run,
            {
                **SETTINGS,
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
            },
            seed=self.rng.randrange(1 << 30),
            application=partial(_broker, storage=self.storage),
            latency_ns=LATENCY_NS,
        )
        return found

    async def _feed(self, cluster: Cluster) -> None:
        if not self.sent[0]:
            await cluster.create(SOURCE, PARTITIONS)
            await cluster.create(TARGET, PARTITIONS)
        async with cluster.producer() as producer:
            for _ in range(RECORDS_PER_CYCLE):
                partition = self.rng.randrange(PARTITIONS)
                number = sum(map(len, self.sent))
                self.sent[partition].append(number)
                await producer.send(SOURCE, b"%d" % number, partition=partition)

    async def _copy(
        self, cluster: Cluster, kill: Kill, *, is_last: bool
    ) -> list[bytes]:
        found: list[bytes] = []
        async with trio.open_nursery() as nursery:
            for name in PROCESSORS:
                nursery.start_soon(partial(self._supervise, cluster, name, is_last))
            if is_last:
                found = await self._read(cluster)
            else:
                cluster.draw_budget = self._draw_budget
                with trio.move_on_after(5):
                    await kill.has_come.wait()
            nursery.cancel_scope.cancel()
        return found

    def _draw_budget(self) -> int | None:
        return self.rng.choice((None, self.rng.randrange(600, 6_000)))

    async def _supervise(self, cluster: Cluster, name: str, is_last: bool) -> None:
        """Run a processor; after a kill or a failure start another one."""
        while True:
            lifetime_s = 1e9 if is_last else self.rng.uniform(0.1, 1.0)
            with trio.move_on_after(lifetime_s):
                try:
                    await self._process(cluster, name)
                except KafkaError:
                    await trio.sleep(0.01)
                    continue
            self.kills += 1

    async def _process(self, cluster: Cluster, name: str) -> None:
        async with (
            cluster.producer(
                transactional_id=name, retry_backoff_ms=5, reconnect_backoff_ms=5
            ) as producer,
            cluster.consumer(
                group_id=GROUP,
                enable_auto_commit=False,
                isolation_level="read_committed",
                session_timeout_ms=300,
                heartbeat_interval_ms=50,
                retry_backoff_ms=5,
                reconnect_backoff_ms=5,
                fetch_max_wait_ms=50,
            ) as consumer,
        ):
            await producer.init_transactions()
            consumer.subscribe([SOURCE])
            while True:
                records = await consumer.poll(self.rng.randint(1, 5))
                await self._transact(records, producer, consumer)

    async def _transact(
        self,
        records: list[ConsumerRecord],
        producer: KafkaProducer,
        consumer: KafkaConsumer,
    ) -> None:
        self.attempts += 1
        written = [b"%s %d" % (each.value, self.attempts) for each in records]
        await producer.begin_transaction()
        receipts = [
            await producer.send(TARGET, value, partition=each.partition)
            for each, value in zip(records, written, strict=True)
        ]
        positions = {TopicPartition(SOURCE, it.partition): it.offset for it in records}
        behind = {partition: offset + 1 for partition, offset in positions.items()}
        group = consumer.group_metadata()
        await producer.send_offsets_to_transaction(behind, group)
        if self.rng.random() < 0.2:
            self.aborted.update(written)
            await receipts[0].wait()
            await producer.abort_transaction()
            for each in reversed(records):
                consumer.seek(TopicPartition(SOURCE, each.partition), each.offset)
        else:
            await producer.commit_transaction()

    async def _read(self, cluster: Cluster) -> list[bytes]:
        """Read all committed records, and wait for possible duplicates."""
        wanted, found = sum(map(len, self.sent)), []
        async with cluster.consumer(isolation_level="read_committed") as consumer:
            consumer.assign(await consumer.partitions_for(TARGET))
            while len(found) < wanted:
                records = await consumer.poll(timeout_s=500)
                assert records, (self.seed, len(found), wanted)
                found += [(each.partition, each.value) for each in records]
            # A duplicate would arrive after them.
            found += [(it.partition, it.value) for it in await consumer.poll(5, 5.0)]
        return [b"%d %s" % each for each in found]

    def check(self, found: list[bytes]) -> None:
        """Check that the read records are the sent ones, each once."""
        copied: list[list[int]] = [[] for _ in range(PARTITIONS)]
        for each in found:
            partition, number, attempt = each.split()
            copied[int(partition)].append(int(number))
            assert b"%s %s" % (number, attempt) not in self.aborted, (self.seed, each)
        assert copied == self.sent, self.seed


def _broker(
    config: object, clock: object, network: object, **options: object
) -> object:
    return kafka_apis(config, clock, random.Random(5), network, **options)  # type: ignore[arg-type]  # handed through


def run(seed: int, cycles: int) -> History:
    history = History(seed)
    for _ in range(cycles):
        history.cycle()
    history.check(history.cycle(is_last=True))
    assert history.attempts > cycles
    assert history.kills
    assert history.cuts
    assert history.aborted
    return history


@pytest.mark.parametrize("seed", range(3))
def test_records_are_copied_exactly_once(seed: int) -> None:
    run(seed, cycles=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_records_are_copied_exactly_once_over_many_kills(seed: int) -> None:
    run(seed, cycles=50)
