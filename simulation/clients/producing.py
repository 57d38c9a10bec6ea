"""Producers of a simulated cluster: the Trio client, and records of its answers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

import trio

from broker.client.producer.producer import open_producer
from broker.protocol.topic_partition import TopicPartition
from simulation.clients.client_context import ClientContext
from simulation.clients.send_notes import SendNotes

PRODUCER_SETTINGS: Final = {
    "request_timeout_ms": 2_000,
    "delivery_timeout_ms": 8_000,
    "max_block_ms": 4_000,
    "metadata_max_age_ms": 5_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """Plan of one producer: records follow each other after ``pause_ms`` on average."""

    acks: int
    idempotent: bool
    linger_ms: int
    pause_ms: int


@dataclass(slots=True)
class RecordingProducer:
    """A producer that records every send with its outcome.

    ``name`` is unique. Sends in flight at cancellation have an unknown outcome.
    """

    context: ClientContext
    name: str
    plan: ProducerPlan
    topic: str
    partitions: int
    rng: random.Random

    async def run(self, until_s: float) -> None:
        """Send until an instant of Trio's clock, and wait for all answers."""
        plan = self.plan
        settings: dict[str, Any] = {**PRODUCER_SETTINGS, "linger_ms": plan.linger_ms}
        notes = SendNotes(self.context, self.name, plan.acks, plan.idempotent)
        try:
            async with (
                open_producer(
                    self.context.bootstrap,
                    connect=self.context.host.connect,
                    rng=self.rng,
                    now_ms=self.context.now_ms,
                    client_id=self.name,
                    acks="all" if plan.acks == -1 else str(plan.acks),
                    enable_idempotence=plan.idempotent,
                    **settings,
                ) as producer,
                trio.open_nursery() as nursery,
            ):
                while trio.current_time() < until_s:
                    index = self.rng.randrange(self.partitions)
                    partition = TopicPartition(self.topic, index)
                    await notes.send(producer, nursery, partition)
                    await trio.sleep(self.rng.expovariate(1000 / plan.pause_ms))
        finally:
            notes.give_up()
