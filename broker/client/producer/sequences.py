"""The numbers that keep a partition free of duplicates and gaps (KIP-98, KIP-360).

Kafka's ``TransactionManager`` and ``TxnPartitionMap``, for the idempotent producer. A
batch gets its sequence when it is first sent, and keeps it in every repetition. An
error that says that a number is not the next one means one of two things: an earlier
batch is still on its way again, and this one has to come after it; or there is no
earlier one, and the broker lacks something that failed or that it has lost. Then
numbering starts again at 0 under the next epoch, once nothing of the partition is on
the wire any more.

A broker that does not know a producer takes any number as its first (KIP-360). If the
second batch were under way with the first, and the first refused for a moment, they
would be written in the wrong order. Nothing therefore follows the first batch of a
partition until that one has been written; Kafka's producer takes the risk.

Unlike Kafka, which bumps as soon as a batch fails, this waits until the broker has
refused the batch after it: only then is it certain that nothing that is numbered anew
has been written under its old number. And epochs belong to a partition, since the
broker compares them by partition; in Kafka all partitions share the one that was bumped
last.
"""

from __future__ import annotations

import bisect
from typing import Final

from broker.client.producer.producer_batch import ANONYMOUS, Identity, ProducerBatch
from broker.protocol.errors import ErrorCode

EPOCH_MAX: Final = 2**15 - 1
_SEQUENCES: Final = 2**31
# The broker does not have what comes before the batch.
GAPS: Final = frozenset(
    {ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id}
)


class Sequences:
    """The numbering of one partition's batches.

    ``outstanding`` are the batches that have a number and no final answer, in order;
    ``used_up`` is the producer id that has no more epochs here, -1 for none. ``bumps``:
    the client raises epochs. Those of transactions the coordinator raises: a real gap
    is the failure of its batch then.
    """

    def __init__(self, *, bumps: bool = True) -> None:
        self._bumps = bumps
        self._next: Identity | None = None
        self.outstanding: list[ProducerBatch] = []
        self.used_up = -1
        self._broken = False
        # Whether the broker has written something of this producer id.
        self._is_known = False

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id is needed before anything can be sent."""
        return self._next is None

    def identify(self, producer_id: int, epoch: int) -> None:
        """Number from 0 for a producer that the broker has just named."""
        self._next = Identity(producer_id, epoch, 0)
        self._is_known = False
        self._renumber()

    def forget(self) -> None:
        """Forget the identity: the producer has another one from now on.

        A batch that has expired on the wire is refused for its old epoch.
        """
        self._next = None
        self.outstanding.clear()

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether the batch may go now, numbering it if it has no number."""
        if self._broken and not self._mend():
            return False
        if self._next is None:
            return False
        if batch.identity is not ANONYMOUS:
            # Repetitions go one by one: the next one has to wait for this answer.
            return self.outstanding[0] is batch
        if self.outstanding and not self._is_known:
            return False
        batch.identity = self._next
        self._next = _after(self._next, batch.count)
        self.outstanding.append(batch)
        return True

    def is_gap(self, code: ErrorCode, batch: ProducerBatch) -> bool:
        """Return whether an error needs patience or new numbers, and arrange them."""
        if code not in GAPS:
            return False
        is_first = bool(self.outstanding) and self.outstanding[0] is batch
        if not self._bumps:
            return not is_first
        self._broken = self._broken or is_first
        return True

    def finish(self, batch: ProducerBatch, *, written: bool) -> None:
        """Forget a batch that has its final answer."""
        self._is_known = self._is_known or written
        if batch in self.outstanding:
            self.outstanding.remove(batch)

    def replace(self, batch: ProducerBatch, halves: tuple[ProducerBatch, ...]) -> None:
        """Give the numbers of a batch that was too large to its halves."""
        if batch.identity is ANONYMOUS:
            return
        at = self.outstanding.index(batch)
        self.outstanding[at : at + 1] = halves
        identity = batch.identity
        for half in halves:
            half.identity = identity
            identity = _after(identity, half.count)

    def insert(self, queue: list[ProducerBatch], batch: ProducerBatch) -> None:
        """Put a batch that is sent again where its number belongs."""
        places = {id(each): at for at, each in enumerate(self.outstanding)}
        last = len(places)
        keys = [places.get(id(each), last) for each in queue]
        queue.insert(bisect.bisect(keys, places.get(id(batch), -1)), batch)

    def _mend(self) -> bool:
        """Number anew under the next epoch, unless something is on the wire."""
        if any(batch.on_wire for batch in self.outstanding):
            return False
        assert self._next is not None
        self._broken = False
        producer_id, epoch, _ = self._next
        if epoch == EPOCH_MAX:
            self._next, self.used_up = None, producer_id
            return False
        self._next = Identity(producer_id, epoch + 1, 0)
        self._renumber()
        return True

    def _renumber(self) -> None:
        for batch in self.outstanding:
            assert self._next is not None
            batch.identity = self._next
            self._next = _after(self._next, batch.count)


def _after(identity: Identity, count: int) -> Identity:
    return identity._replace(sequence=(identity.sequence + count) % _SEQUENCES)
