"""Brokers as members of a cluster under a ZooKeeper in memory, in virtual time."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import trio

from broker.assembly import assemble, numbered
from broker.client.consumer.consumer import KafkaConsumer, open_consumer
from broker.client.producer.producer import KafkaProducer, open_producer
from broker.cluster.partition import Partition
from broker.config import BrokerConfig
from broker.disk.memory import MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.topic_partition import TopicPartition
from broker.server import BrokerServer
from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from simulation.virtual_time.apis import START_MS
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.memory_network import MemoryStream
from simulation.virtual_time.memory_zookeeper import memory_zookeeper
from tests.broker.apis.requests import SECONDS_30, new_topic
from tests.virtual.hosting import Hosting
from tests.virtual.kafka import ask

T = TypeVar("T")
ZOOKEEPER = 2181
SESSION_S = 6
SETTINGS = {
    "zookeeper.connect": f"127.0.0.1:{ZOOKEEPER}/kafka",
    "zookeeper.session.timeout.ms": str(SESSION_S * 1000),
    "log.dirs": "/data",
    "num.network.threads": "1",
    "num.io.threads": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "controlled.shutdown.retry.backoff.ms": "200",
}


class Member:
    """One broker with its disk, over several starts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.storage = MemoryStorage()
        self.reachable = True
        self.broker: Broker | None = None
        self.server: BrokerServer | None = None
        self.scope = trio.CancelScope()
        # Connections made by or to the broker.
        self.streams: list[MemoryStream] = []
        self.ended = trio.Event()

    @property
    def is_controller(self) -> bool:
        """Return whether the broker is the active controller."""
        if self.broker is None:
            return False
        try:
            self.broker.coordinator.controller.check_is_controller()
        except Exception:
            return False
        return True


class Members(Hosting):
    """Brokers 0, 1, ... at ports 9092, ..., one ZooKeeper, and clients."""

    def __init__(
        self,
        clock: VirtualClock,
        nursery: trio.Nursery,
        count: int,
        seed: int,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(clock, seed, latency_ns=(20_000, 400_000))
        self.nursery = nursery
        self.settings = settings
        self.zookeeper = ZooKeeperService(
            now_ns=clock.now_ns,
            rng=random.Random(seed),
            tick_ms=500,
            start_ms=START_MS,
        )
        self.members = [Member(number) for number in range(count)]

    # ---- brokers --------------------------------------------------------------------

    async def start(self, number: int) -> None:
        """Start a broker again."""
        member = self.members[number]
        member.scope, member.ended = trio.CancelScope(), trio.Event()
        await self.nursery.start(self._live, member)

    async def _live(self, member: Member, task_status: trio.TaskStatus[None]) -> None:
        keys = {
            **SETTINGS,
            "broker.id": str(member.number),
            "listeners": f"PLAINTEXT://127.0.0.1:{9092 + member.number}",
            **self.settings,
        }
        # "" unsets a key.
        given = BrokerConfig.load(None, {k: v for k, v in keys.items() if v})
        rng = random.Random(self.rng.random())
        connect = self._connect_of(member)
        config = await numbered(given, member.storage, rng, connect)
        with member.scope:
            member.broker = assemble(
                config,
                storage=member.storage,
                now_ns=self.clock.now_ns,
                now_ms=self._now_ms,
                rng=rng,
                connect=connect,
            )
            apis = KafkaApis(member.broker)
            await apis.prepare()
            member.server = self.add(config, apis, seed=member.number)
            await member.server.run(task_status)
        member.ended.set()

    async def kill(self, number: int) -> None:
        """Kill a broker: its disk loses unflushed data."""
        member = self.members[number]
        storage = member.storage.after_kill()
        member.scope.cancel()
        await member.ended.wait()
        member.storage = storage
        self._hang_up(member)

    async def stop(self, number: int) -> None:
        """Stop a broker in good order."""
        member = self.members[number]
        assert member.server is not None
        member.server.stop()
        await member.ended.wait()
        assert member.server.unclean is None
        self._hang_up(member)

    def cut_off(self, number: int) -> None:
        """Prevent a broker from opening connections to others."""
        self.members[number].reachable = False
        self._hang_up(self.members[number])

    def let_in(self, number: int) -> None:
        """Allow a broker to connect again."""
        self.members[number].reachable = True

    def _hang_up(self, member: Member) -> None:
        for stream in member.streams:
            self.network.cut(stream.connection)
        member.streams.clear()

    def _now_ms(self) -> int:
        return START_MS + self.clock.now_ms()

    def _connect_of(
        self, member: Member
    ) -> Callable[[str, int], Awaitable[MemoryStream]]:
        async def connect(host: str, port: int) -> MemoryStream:
            stream = await self.connect(host, port)
            if not member.reachable:
                self.network.cut(stream.connection)
                raise ConnectionRefusedError(111, "cut off")
            member.streams.append(stream)
            return stream

        return connect

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect as a client does."""
        await trio.lowlevel.checkpoint()
        # A resolver raises `UnicodeError` for a name that cannot be encoded.
        host.encode("idna")
        stream = self.open(port)
        if port != ZOOKEEPER:
            self.members[port - 9092].streams.append(stream)
        return stream

    # ---- requests and state ---------------------------------------------------------

    def broker(self, number: int) -> Broker:
        """Return the running instance of a broker."""
        broker = self.members[number].broker
        assert broker is not None
        return broker

    def partition(self, number: int, name: str, index: int = 0) -> Partition:
        """Return a broker's replica."""
        return self.broker(number).replicas.partitions[TopicPartition(name, index)]

    @property
    def alive(self) -> list[int]:
        """The numbers of the running brokers."""
        return [it.number for it in self.members if not it.ended.is_set()]

    def know_each_other(self) -> bool:
        """Return whether every broker's metadata has all running brokers."""
        brokers = [self.broker(it) for it in self.alive]
        ids = {each.replicas.local_id for each in brokers}
        return all(set(each.metadata_cache.brokers) == ids for each in brokers)

    @property
    def controller(self) -> int | None:
        """The number of the controller, if there is exactly one."""
        found = [it for it in self.alive if self.members[it].is_controller]
        return found[0] if len(found) == 1 else None

    async def ask(self, number: int, key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request to a broker over a new connection; return the response."""
        stream = await self.connect("127.0.0.1", 9092 + number)
        answered = await ask(stream, key, version, **fields)
        await stream.aclose()
        return answered

    async def create(self, name: str, partitions: int = 1, **fields: Any) -> Any:
        """Create a topic with three replicas; return its row of the response."""
        await self.until(lambda: self.controller is not None)
        assert self.controller is not None
        given = {"replication_factor": 3, **fields}
        answered = await self.ask(
            self.controller,
            ApiKey.CREATE_TOPICS,
            7,
            topics=[new_topic(name, partitions, **given)],
            timeout=SECONDS_30,
        )
        return answered.topics[0]

    def leader(self, name: str, index: int = 0) -> int:
        """Return the leader in all live brokers' metadata; -1 if they differ."""
        told = set()
        for number in self.alive:
            topic = self.broker(number).metadata_cache.topic(name)
            state = None if topic is None else topic.partitions.get(index)
            told.add(-1 if state is None else state.leader)
        return told.pop() if len(told) == 1 else -1

    def leads(self, name: str, count: int) -> bool:
        """Return whether broker 0 leads ``count`` partitions, also in all metadata."""
        held = self.broker(0).replicas.partitions
        return all(
            key in held and held[key].is_leader and self.leader(*key) == 0
            for key in (TopicPartition(name, index) for index in range(count))
        )

    def leader_of_others(self, name: str, but: int) -> int:
        """Return the leader in the metadata of a live broker other than ``but``."""
        number = next(it for it in self.alive if it != but)
        topic = self.broker(number).metadata_cache.topic(name)
        return -1 if topic is None else topic.partitions[0].leader

    def isr(self, name: str, index: int = 0) -> set[int]:
        """Return the ISR in the leader's state."""
        leader = self.leader(name, index)
        return set() if leader < 0 else set(self.partition(leader, name, index).isr)

    async def until(self, condition: Callable[[], bool], within_s: float = 60) -> None:
        """Wait until a condition is true."""
        with trio.fail_after(within_s):
            # No event signals changes in three brokers; polling is free in virtual
            # time.
            while not condition():  # noqa: ASYNC110 see above
                await trio.sleep(0.01)

    # ---- clients --------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients."""
        return ",".join(f"127.0.0.1:{9092 + it.number}" for it in self.members)

    def producer(
        self, **settings: Any
    ) -> contextlib.AbstractAsyncContextManager[KafkaProducer]:
        """Open an idempotent producer."""
        return open_producer(
            self.bootstrap,
            connect=self.connect,
            rng=random.Random(self.rng.random()),
            now_ms=self._now_ms,
            **{"metadata_max_age_ms": 1000, **settings},
        )

    def consumer(
        self, **settings: Any
    ) -> contextlib.AbstractAsyncContextManager[KafkaConsumer]:
        """Open a consumer that starts at the beginning."""
        return open_consumer(
            self.bootstrap,
            connect=self.connect,
            rng=random.Random(self.rng.random()),
            auto_offset_reset="earliest",
            **{"metadata_max_age_ms": 1000, **settings},
        )

    async def session(self) -> ZooKeeperSession:
        """Return an operator's session with ZooKeeper."""
        session = ZooKeeperSession(
            SETTINGS["zookeeper.connect"],
            timeout_ms=SESSION_S * 1000,
            connect=self.connect,
            rng=random.Random(self.rng.random()),
        )
        await self.nursery.start(session.run)
        return session


@contextlib.asynccontextmanager
async def running(
    clock: VirtualClock, count: int, seed: int, settings: Mapping[str, str]
) -> AsyncIterator[Members]:
    """Serve until the body ends."""
    async with trio.open_nursery() as nursery:
        members = Members(clock, nursery, count, seed, settings)
        await nursery.start(members.network.run)
        server = memory_zookeeper(members.zookeeper, members.network, ZOOKEEPER)
        await nursery.start(server.run)
        for number in range(count):
            await members.start(number)
        await members.until(members.know_each_other)
        yield members
        nursery.cancel_scope.cancel()


def with_members(
    scenario: Callable[[Members], Awaitable[T]],
    *,
    count: int = 3,
    seed: int = 1,
    **settings: str,
) -> T:
    """Run ``scenario`` beside brokers in virtual time; settings with underscores."""
    dotted = {key.replace("_", "."): value for key, value in settings.items()}

    async def main(clock: VirtualClock) -> T:
        async with running(clock, count, seed, dotted) as members:
            with trio.fail_after(10_000):
                return await scenario(members)

    return run_virtual(main, seed=seed)


# ---- steps of scenarios ----


async def send(producer: KafkaProducer, values: list[bytes], topic: str = "t") -> None:
    receipts = [await producer.send(topic, value) for value in values]
    for receipt in receipts:
        await receipt.wait()


async def consumed(members: Members, count: int, topic: str = "t") -> list[bytes]:
    async with members.consumer() as consumer:
        consumer.assign(await consumer.partitions_for(topic))
        values: list[bytes] = []
        while len(values) < count:
            values += [each.value or b"" for each in await consumer.poll(timeout_s=5)]
        values += [each.value or b"" for each in await consumer.poll(timeout_s=1)]
        return values


async def in_sync(members: Members, topic: str = "t", index: int = 0) -> None:
    await members.until(lambda: members.isr(topic, index) == set(members.alive))


def leaders(members: Members, topic: str, count: int) -> list[int]:
    return [members.leader(topic, index) for index in range(count)]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]
