"""Kafka's APIs in virtual time, and the reading of answers from a memory network.

Used by every broker in virtual time: those of the virtual world and of the tests.
"""

from __future__ import annotations

import random

import trio

from broker.assembly import assemble
from broker.cluster.blocking import Blocking, call_here
from broker.config import BrokerConfig
from broker.disk.memory import MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.log.upkeep.periodic_task import Calls
from simulation.virtual_time.determinism import VirtualClock
from simulation.virtual_time.memory_network import MemoryNetwork, MemoryStream

# The broker's wall clock at the start of virtual time.
START_MS = 1_700_000_000_000


def kafka_apis(
    config: BrokerConfig,
    clock: VirtualClock,
    rng: random.Random,
    network: MemoryNetwork,
    *,
    storage: MemoryStorage | None = None,
    blocking: Blocking = call_here,
    threads: Calls | None = None,
) -> KafkaApis:
    """Create Kafka's APIs over a disk in memory, by default an empty one."""

    async def connect(host: str, port: int) -> MemoryStream:
        await trio.lowlevel.checkpoint()
        # A resolver raises `UnicodeError` for a name that cannot be encoded.
        host.encode("idna")
        return MemoryStream(network.connect(port))

    broker = assemble(
        config,
        storage=storage or MemoryStorage(),
        now_ns=clock.now_ns,
        now_ms=lambda: START_MS + clock.now_ms(),
        rng=rng,
        connect=connect,
        blocking=blocking,
        threads=threads,
    )
    return KafkaApis(broker)


async def receive_frame(stream: MemoryStream) -> bytes:
    """Return the next frame without its size; raises EOFError at the stream's end."""
    size = int.from_bytes(await _exactly(stream, 4))
    return await _exactly(stream, size)


async def _exactly(stream: MemoryStream, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = await stream.receive_some(size - len(received))
        if not piece:
            raise EOFError("the peer closed the connection")
        received += piece
    return bytes(received)
