"""Producers of a simulated cluster: our Trio client, and notes of what it is told."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from broker.client.producer.producer import KafkaProducer, open_producer
from broker.client.producer.producer_batch import Receipt
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from simulation.clients.client_context import ClientContext
from simulation.histories import Outcome, Send

_SETTINGS: Final = {
    "request_timeout_ms": 2_000,
    "delivery_timeout_ms": 8_000,
    "max_block_ms": 4_000,
    "metadata_max_age_ms": 5_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """Plan of one producer: each record ``pause_ms`` after the last, on average."""

    acks: int
    idempotent: bool
    linger_ms: int
    pause_ms: int


@dataclass(frozen=True, slots=True)
class _Sent:
    """A record whose outcome is not known yet."""

    number: int
    partition: TopicPartition
    value: bytes
    invoked_ns: int


@dataclass(slots=True)
class RecordingProducer:
    """A producer that notes every record with what became of it.

    ``name`` is unique. What is under way when it is cancelled has an unknown outcome.
    """

    context: ClientContext
    name: str
    plan: ProducerPlan
    topic: str
    partitions: int
    rng: random.Random
    _open: dict[int, _Sent] = field(default_factory=dict)
    _number: int = 0

    async def run(self, until_s: float) -> None:
        """Send until a moment of Trio's clock, and wait for all answers."""
        settings: dict[str, Any] = {**_SETTINGS, "linger_ms": self.plan.linger_ms}
        try:
            async with (
                open_producer(
                    self.context.bootstrap,
                    connect=self.context.host.connect,
                    rng=self.rng,
                    now_ms=self.context.now_ms,
                    client_id=self.name,
                    acks="all" if self.plan.acks == -1 else str(self.plan.acks),
                    enable_idempotence=self.plan.idempotent,
                    **settings,
                ) as producer,
                trio.open_nursery() as nursery,
            ):
                while trio.current_time() < until_s:
                    await self._send(producer, nursery)
                    await trio.sleep(self.rng.expovariate(1000 / self.plan.pause_ms))
        finally:
            for sent in self._open.values():
                self._note(sent, "unknown")

    async def _send(self, producer: KafkaProducer, nursery: trio.Nursery) -> None:
        self._number += 1
        sent = _Sent(
            self._number,
            TopicPartition(self.topic, self.rng.randrange(self.partitions)),
            f"{self.name}-{self._number}".encode(),
            self.context.now_ns(),
        )
        self._open[sent.number] = sent
        index = sent.partition.partition
        try:
            receipt = await producer.send(self.topic, sent.value, partition=index)
        except KafkaError:
            # The client has not even taken it.
            self._settle(sent, "fail")
        else:
            nursery.start_soon(self._wait, sent, receipt)

    async def _wait(self, sent: _Sent, receipt: Receipt) -> None:
        try:
            written = await receipt.wait()
        except KafkaError:
            # An attempt whose answer was lost may have been carried out.
            self._settle(sent, "unknown")
        else:
            self._settle(sent, "ok", written.offset)

    def _settle(self, sent: _Sent, outcome: Outcome, offset: int = -1) -> None:
        del self._open[sent.number]
        self._note(sent, outcome, offset)

    def _note(self, sent: _Sent, outcome: Outcome, offset: int = -1) -> None:
        self.context.history.sends.append(
            Send(
                producer=self.name,
                number=sent.number,
                partition=sent.partition,
                value=sent.value,
                acks=self.plan.acks,
                idempotent=self.plan.idempotent,
                invoked_ns=sent.invoked_ns,
                answered_ns=self.context.now_ns(),
                outcome=outcome,
                offset=offset,
            )
        )
