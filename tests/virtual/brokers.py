"""Several real brokers on one memory network, with the test as their controller."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import trio

from broker.cluster.partition import Partition
from broker.config import BrokerConfig
from broker.handling.kafka_apis import KafkaApis
from broker.log.log_reading import read
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import encode_request
from simulation.virtual_time.apis import kafka_apis
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.memory_network import MemoryStream
from tests.broker.apis.requests import (
    batch,
    fetch_fields,
    leader_and_isr,
    produce_fields,
    update_metadata,
)
from tests.virtual.controller import CONTROLLER, PORT, FakeController
from tests.virtual.hosting import Hosting
from tests.virtual.kafka import answer, ask

T = TypeVar("T")
KEY = ("t", 0)
TOPIC_ID = UUID(int=7)
# Larger than any broker's epoch, so commands are accepted.
BROKER_EPOCH = 2**62
SETTINGS = {
    "doorkeeper.controller.listeners": "PLAINTEXT",
    "log.dirs": "/data",
    "num.network.threads": "1",
    "num.io.threads": "1",
    "offsets.topic.num.partitions": "1",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "replica.lag.time.max.ms": "1000",
}


class Brokers(Hosting):
    """Running brokers 0, 1, ...; `word` sends one a LeaderAndIsr."""

    def __init__(
        self, clock: VirtualClock, count: int, seed: int, settings: Mapping[str, str]
    ) -> None:
        super().__init__(clock, seed, latency_ns=(20_000, 400_000))
        self.applications: list[KafkaApis] = []
        for number in range(count):
            keys = {
                **SETTINGS,
                "node.id": str(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{9092 + number}",
            }
            config = BrokerConfig.load(None, {**keys, **settings})
            apis = self.apis_of(config, clock, number)
            self.applications.append(apis)
            self.add(config, apis, seed=number)
        self.controller = FakeController()

    def apis_of(
        self, config: BrokerConfig, clock: VirtualClock, number: int
    ) -> KafkaApis:
        """Make the APIs of a broker."""
        return kafka_apis(config, clock, random.Random(number), self.network)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Brokers]:
        """Serve until the body ends."""
        async with self.serving() as nursery:
            nursery.start_soon(self.controller.run, self.network)
            yield self

    def connect(self, broker: int) -> MemoryStream:
        """Open a connection to a broker."""
        return self.open(9092 + broker)

    def partition(self, broker: int) -> Partition:
        """Return a broker's replica."""
        return self.applications[broker].broker.replicas.partitions[KEY]

    # ---- the controller -----------------------------------------------------------

    async def word(
        self, to: int, *, leader: int, epoch: int, isr: Sequence[int]
    ) -> None:
        """Announce the leader to one broker; all brokers are replicas."""
        self.controller.leader_epoch = max(self.controller.leader_epoch, epoch)
        replicas = range(len(self.servers))
        command = leader_and_isr(
            KEY,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            replicas=tuple(replicas),
            topic_id=TOPIC_ID,
            broker_epoch=BROKER_EPOCH,
        )
        await self._command(to, ApiKey.LEADER_AND_ISR, 6, command)

    async def tell_addresses(
        self,
        to: int,
        brokers: Sequence[int],
        *,
        elsewhere: Mapping[int, int] = {},
        hosts: Mapping[int, str] = {},
    ) -> None:
        """Announce the brokers' addresses to one broker; some may be wrong."""
        command = update_metadata(
            ("elsewhere", 0),
            leader=0,
            brokers={
                CONTROLLER: ("127.0.0.1", PORT),
                **{
                    number: (
                        hosts.get(number, "127.0.0.1"),
                        elsewhere.get(number, 9092 + number),
                    )
                    for number in brokers
                },
            },
        )
        await self._command(to, ApiKey.UPDATE_METADATA, 6, command)

    async def elect(self, leader: int, epoch: int, isr: Sequence[int]) -> None:
        """Announce a leader to all brokers, in random order."""
        everybody = list(range(len(self.servers)))
        self.rng.shuffle(everybody)
        for number in everybody:
            await self.word(number, leader=leader, epoch=epoch, isr=isr)

    async def introduce(self) -> None:
        """Announce all brokers to all."""
        everybody = range(len(self.servers))
        for number in everybody:
            await self.tell_addresses(number, everybody)

    async def _command(self, to: int, key: ApiKey, version: int, command: Any) -> None:
        stream = self.connect(to)
        body = command.to_wire(version)
        await stream.send_all(encode_request(key, version, 1, "controller", body))
        answered = await answer(stream, key, version)
        assert answered.error_code is ErrorCode.none, answered
        await stream.aclose()

    # ---- clients --------------------------------------------------------------------

    async def produce(
        self, to: int, *values: bytes, acks: int = -1, timeout_ms: int = 30_000
    ) -> tuple[ErrorCode, int]:
        """Send a batch; return its error code and base offset."""
        stream = self.connect(to)
        fields = produce_fields({KEY: batch(*values)}, acks, timeout_ms)
        answered = await ask(stream, ApiKey.PRODUCE, 8, **fields)
        await stream.aclose()
        (row,) = answered.responses[0].partition_responses
        return row.error_code, row.base_offset

    async def fetch(self, of: int, offset: int = 0) -> Any:
        """Fetch from a leader or a follower as a consumer does."""
        stream = self.connect(of)
        answered = await ask(stream, ApiKey.FETCH, 11, **fetch_fields({KEY: offset}))
        await stream.aclose()
        return answered.responses[0].partitions[0]

    def stored(self, broker: int) -> bytes:
        """Return the content of a broker's log."""
        log = self.partition(broker).log
        content, offset = b"", log.log_start_offset
        while offset < log.log_end_offset:
            region = read(log, offset, 1 << 24, log.log_end_offset, True)
            assert region is not None
            piece = region.read()
            content += piece
            at = 0
            while at < len(piece):
                (base,) = (int.from_bytes(piece[at : at + 8], "big"),)
                delta = int.from_bytes(piece[at + 23 : at + 27], "big")
                offset = base + delta + 1
                at += 12 + int.from_bytes(piece[at + 8 : at + 12], "big")
        return content

    async def until(self, condition: Callable[[], bool], within_s: float = 20) -> None:
        """Wait until a condition is true."""
        with trio.fail_after(within_s):
            # No event signals that a log has grown; polling is free in virtual time.
            while not condition():  # noqa: ASYNC110 see above
                await trio.sleep(0.001)


def with_brokers(
    scenario: Callable[[Brokers], Awaitable[T]],
    *,
    count: int = 2,
    seed: int = 1,
    **settings: str,
) -> T:
    """Run ``scenario`` beside brokers in virtual time; settings with underscores."""
    dotted = {key.replace("_", "."): value for key, value in settings.items()}

    async def main(clock: VirtualClock) -> T:
        brokers = Brokers(clock, count, seed, dotted)
        async with brokers.running():
            with trio.fail_after(10_000):
                return await scenario(brokers)

    return run_virtual(main, seed=seed)
