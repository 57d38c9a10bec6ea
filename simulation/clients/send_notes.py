"""Log of one producer's records, written when the outcome of each is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from broker.client.producer.producer import KafkaProducer
from broker.client.producer.producer_batch import Receipt
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from simulation.clients.client_context import ClientContext
from simulation.histories import Outcome, Place, Send


@dataclass(frozen=True, slots=True)
class _Sent:
    """A record with a pending outcome."""

    number: int
    partition: TopicPartition
    value: bytes
    invoked_ns: int
    transaction: str
    source: Place | None


@dataclass(slots=True)
class SendNotes:
    """Sends the records of ``producer``, whose name is unique, and logs them."""

    context: ClientContext
    producer: str
    acks: int
    idempotent: bool
    _open: dict[int, _Sent] = field(default_factory=dict)
    _number: int = 0

    async def send(
        self,
        client: KafkaProducer,
        nursery: trio.Nursery,
        partition: TopicPartition,
        *,
        transaction: str = "",
        source: Place | None = None,
    ) -> bool:
        """Send a record with a unique value; False if the client refuses it."""
        self._number += 1
        sent = _Sent(
            self._number,
            partition,
            f"{self.producer}-{self._number}".encode(),
            self.context.now_ns(),
            transaction,
            source,
        )
        self._open[sent.number] = sent
        topic, index = partition
        try:
            receipt = await client.send(topic, sent.value, partition=index)
        except KafkaError:
            # The client did not accept the record.
            self._settle(sent, "fail")
            return False
        nursery.start_soon(self._wait, sent, receipt)
        return True

    def give_up(self) -> None:
        """Log the pending records with an unknown outcome."""
        for sent in self._open.values():
            self._note(sent, "unknown")

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
                producer=self.producer,
                number=sent.number,
                partition=sent.partition,
                value=sent.value,
                acks=self.acks,
                idempotent=self.idempotent,
                invoked_ns=sent.invoked_ns,
                answered_ns=self.context.now_ns(),
                outcome=outcome,
                offset=offset,
                transaction=sent.transaction,
                source=sent.source,
            )
        )
