"""A whole broker in virtual time under peers that send arbitrary requests.

Each peer sends a request of `tests.fuzzing.frames`, followed by a request that is
always answered. The peer can thus distinguish an answer, a request without answer and a
closed connection. After a minute without an answer, it disconnects. At the end, all
deadlines expire and the broker must hold no resources. A plain client is served, and
another broker opens the disk and reads every log to its end.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from broker.assembly import assemble
from broker.config import BrokerConfig
from broker.disk.memory import MemoryStorage
from broker.handling.api_registry import APIS
from broker.handling.kafka_apis import KafkaApis
from broker.log.steps import run
from broker.log.upkeep import rounds
from broker.log.upkeep.log_cleaner import CleanerConfig, LogCleaner
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode_response
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.memory_network import MemoryStream
from tests.broker.apis.requests import (
    SECONDS_30,
    START_MS,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
    values_of,
)
from tests.fuzzing.extremes import Words
from tests.fuzzing.frames import Sent, request
from tests.fuzzing.known import Broken
from tests.fuzzing.readable import check_readable
from tests.virtual.hosting import Frames, Hosting
from tests.virtual.kafka import ask

_FOREVER = str(2**62)
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "doorkeeper.controller.listeners": "PLAINTEXT",
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "2",
    "socket.request.max.bytes": "1000000",
    "queued.max.request.bytes": "3000000",
    "queued.max.requests": "4",
    "num.network.threads": "1",
    "connections.max.idle.ms": "-1",
    # Upkeep is disabled: other tests cover it, and this one waits for all deadlines.
    "log.retention.check.interval.ms": _FOREVER,
    "log.cleaner.backoff.ms": _FOREVER,
    # Leaders would check for lagging followers at this interval.
    "replica.lag.time.max.ms": _FOREVER,
    "log.flush.offset.checkpoint.interval.ms": str(2**31 - 1),
    "offsets.retention.check.interval.ms": _FOREVER,
}
PEERS = 3
PATIENCE_S = 60
# Longer than any deadline that a request can name.
ALL_DEADLINES_S = 2**31 // 1000 + 60
SENTINEL = 0x5E4713
_MS = 1_000_000


@dataclass
class Outcome:
    """Outcomes of the requests of a run."""

    # By (API key, version).
    answered: Counter[tuple[int, int]] = field(default_factory=Counter)
    unanswered: int = 0
    closed: int = 0
    waited: int = 0

    def add(self, other: Outcome) -> None:
        """Add the outcomes of another run."""
        self.answered += other.answered
        self.unanswered += other.unanswered
        self.closed += other.closed
        self.waited += other.waited


class Onslaught(Hosting):
    """One broker, its disk, its network, and the last requests."""

    def __init__(self, clock: VirtualClock, seed: int, **settings: str) -> None:
        super().__init__(clock, seed)
        self.outcome = Outcome()
        self.last: list[Sent] = []
        self.storage = MemoryStorage()
        self.config = BrokerConfig.load(
            None, SETTINGS | {k.replace("_", "."): v for k, v in settings.items()}
        )
        self.broker = self.another_broker(self.storage)
        self.server = self.add(self.config, KafkaApis(self.broker), seed=seed)

    def another_broker(self, storage: MemoryStorage) -> Broker:
        """Return a broker over a disk, not opened yet."""
        rng = random.Random(5)
        return assemble(
            self.config,
            storage=storage,
            now_ns=self.clock.now_ns,
            now_ms=lambda: START_MS + self.clock.now_ms(),
            rng=rng,
        )

    def connect(self) -> MemoryStream:
        return self.open(self.server.ports["PLAINTEXT"])

    # ---- hostile peers --------------------------------------------------------------

    async def fire(
        self, rng: random.Random, words: Words, keys: Sequence[ApiKey], count: int
    ) -> None:
        """Send ``count`` requests as one peer."""
        stream = None
        for number in range(count):
            sent = request(rng, words, keys, number)
            self.last = [*self.last[-PEERS * 2 :], sent]
            if stream is None:
                stream = self.connect()
            if not await self._exchange(stream, sent):
                await stream.aclose()
                stream = None
        if stream is not None:
            await stream.aclose()

    async def _exchange(self, stream: MemoryStream, sent: Sent) -> bool:
        """Send a request; return whether the connection may be used further."""
        sentinel = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, SENTINEL, -1)
        with trio.move_on_after(PATIENCE_S):
            try:
                await stream.send_all(sent.frame + sentinel)
                return await self._receive(stream, sent)
            except trio.BrokenResourceError:
                self.outcome.closed += 1
                return False
        self.outcome.waited += 1
        return False

    async def _receive(self, stream: MemoryStream, sent: Sent) -> bool:
        answers = Frames(stream)
        first = await answers.next()
        if first is None:
            self.outcome.closed += 1
            return False
        if struct.unpack_from(">i", first)[0] == SENTINEL:
            self.outcome.unanswered += 1
            if sent.key != ApiKey.PRODUCE:
                raise Broken(f"{sent} was passed over")
            return True
        self.outcome.answered[sent.key, sent.version] += 1
        self._judge(sent, first)
        if await answers.next() is None:
            raise Broken(f"{sent} was answered, and its connection closed")
        return True

    def _judge(self, sent: Sent, frame: bytes) -> None:
        version = sent.version
        served = APIS[sent.key].served
        if sent.key == ApiKey.API_VERSIONS and version not in served:
            version = 0
        correlation_id, answer = decode_response(sent.key, version, frame)
        if correlation_id != sent.correlation_id:
            raise Broken(f"{sent} was answered as number {correlation_id}")
        if "unknown_server_error" in repr(answer):
            raise Broken(f"{sent} was answered with UNKNOWN_SERVER_ERROR")

    # ---- invariants at the end ------------------------------------------------------

    def at_rest(self) -> list[str]:
        """Return the resources still held when no request is in progress."""
        held = {
            "connections": self.server.quotas.total
            + sum(each.connections for each in self.server.socket_server.processors),
            "pool bytes": self.server.pool.used_bytes if self.server.pool else 0,
            "state change lock": self.broker.state_change_lock.holder is not None,
        }
        for purgatory in self.broker.replicas.purgatories:
            purgatory.check()
            held[f"in the purgatory {purgatory.name}"] = purgatory.size
        for plane in self.server.topology.planes:
            plane.check()
            held["requests in the plane"] = plane.queued + plane.seated + plane.away
        self.broker.check()
        return [f"{count} {what}" for what, count in held.items() if count]

    def living_tasks(self) -> int:
        """Return the number of Trio tasks without processors, which can be resized."""
        living = trio.lowlevel.current_statistics().tasks_living
        return living - len(self.server.socket_server.processors)

    def stop_following(self) -> None:
        """Stop the fetchers that controller commands have started."""
        for key in self.broker.replicas.partitions:
            self.broker.replication.fetchers.stop(key)

    async def plain_client(self, name: str) -> None:
        """Create a topic, produce to it and fetch from it."""
        stream = self.connect()
        fields = {"topics": [new_topic(name, 1)], "timeout": SECONDS_30}
        await ask(stream, ApiKey.CREATE_TOPICS, 5, **fields)
        told = await ask(
            stream, ApiKey.PRODUCE, 8, **produce_fields({(name, 0): batch(b"x", b"y")})
        )
        code = told.responses[0].partition_responses[0].error_code
        if code is not ErrorCode.none:
            raise Broken(f"a plain produce was answered with {code}")
        told = await ask(stream, ApiKey.FETCH, 11, **fetch_fields({(name, 0): 0}))
        found = values_of(told.responses[0].partitions[0].records)
        if found != [(0, b"x"), (1, b"y")]:
            raise Broken(f"a plain fetch got {found}")
        await stream.aclose()

    def opens_again(self) -> None:
        """Open the disk as after a kill, read every log, clean the logs, and stop."""
        broker = self.another_broker(self.storage.after_kill())
        broker.open(self.config.advertised)
        broker.check()
        for log in broker.logs.logs.values():
            log.check()
            check_readable(log)
        run(rounds.retention(broker.logs, _everything, _failed))
        cleaner = LogCleaner(broker.logs, CleanerConfig, _everything, _failed)
        while run(cleaner.round()):
            pass
        broker.close()


def _everything(_: TopicPartition) -> int:
    """Allow retention of all records, as if every replica had them."""
    return 2**62


def _failed(path: str, error: Exception) -> None:
    raise Broken(f"{path} cannot be cleaned up") from error


def onslaught(seed: int, keys: Sequence[ApiKey], count: int) -> Outcome:
    """Run peers that send ``count`` requests in all; raise if the broker fails."""

    async def main(clock: VirtualClock) -> Outcome:
        world = Onslaught(clock, seed)
        try:
            await _besiege(world, random.Random(seed), keys, count)
        except BaseException as error:
            for sent in world.last:
                error.add_note(f"seed {seed}, sent: {sent} {sent.frame[:200].hex()}")
            raise
        return world.outcome

    return run_virtual(main, seed=seed)


async def _besiege(
    world: Onslaught, rng: random.Random, keys: Sequence[ApiKey], count: int
) -> None:
    async with world.serving():
        words = await _prepared(world)
        await trio.sleep(1)
        tasks = world.living_tasks()
        async with trio.open_nursery() as peers:
            for _ in range(PEERS):
                own = random.Random(rng.getrandbits(64))
                peers.start_soon(world.fire, own, words, keys, count // PEERS)
        # Controller commands may have made followers, which fetch until stopped.
        world.stop_following()
        await trio.sleep(ALL_DEADLINES_S)
        held = world.at_rest()
        living = world.living_tasks()
        if living != tasks:
            held.append(f"{living - tasks} Trio tasks")
        if held:
            raise Broken(", ".join(held))
        await world.plain_client("afterwards")
        world.opens_again()


async def _prepared(world: Onslaught) -> Words:
    """Create the topics and records that the requests name."""
    words = Words()
    stream = world.connect()
    topics = [
        new_topic("t", 2),
        new_topic("c", 2, configs=[("cleanup.policy", "compact")]),
    ]
    await ask(stream, ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=SECONDS_30)
    told = await ask(stream, ApiKey.METADATA, 12, topics=[{"name": "t"}, {"name": "c"}])
    words.topic_ids += [topic.topic_id.bytes for topic in told.topics]
    records = {(name, index): batch(b"a", b"b") for name in "tc" for index in range(2)}
    await ask(stream, ApiKey.PRODUCE, 8, **produce_fields(records))
    await stream.aclose()
    return words
