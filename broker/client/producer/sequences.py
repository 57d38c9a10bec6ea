"""Sequence numbers against duplicates and gaps in a partition (KIP-98, KIP-360).

Kafka's ``TransactionManager`` and ``TxnPartitionMap``, for the idempotent producer. A
batch gets its sequence number when it is first sent, and keeps it in every retry. The
broker refuses a number that is not the next one in two cases. Either an earlier batch
is being retried, and this one has to follow it. Or there is no earlier batch, and the
broker lacks a batch that has failed or that it has lost. Numbers then start again at 0
in the next epoch, once no batch of the partition is in flight.

A broker that does not know a producer accepts any first number (KIP-360). If the second
batch were in flight together with the first, and the first were refused temporarily,
their order would change. No batch is therefore sent before the first one of a partition
has been written; Kafka's producer does not wait.

Kafka increments the epoch when a batch fails. This producer waits until the broker has
refused the next batch: only then is it certain that no renumbered batch has been
written with its old number. Epochs belong to a partition, since the broker compares
them by partition; in Kafka all partitions share the latest epoch.
"""

from __future__ import annotations

import bisect
from typing import Final

from broker.client.producer.producer_batch import ANONYMOUS, Identity, ProducerBatch
from broker.protocol.errors import ErrorCode

EPOCH_MAX: Final = 2**15 - 1
_SEQUENCES: Final = 2**31
# Errors of a broker that lacks earlier batches.
GAPS: Final = frozenset(
    {ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id}
)


class Sequences:
    """The sequence numbers of one partition's batches.

    ``outstanding`` has the batches with a number and without an outcome, in order.
    ``used_up`` is a producer id whose epochs are exhausted in this partition, or -1.
    With ``bumps`` the client increments epochs. In transactions the coordinator does,
    and a real gap fails the batch.
    """

    def __init__(self, *, bumps: bool = True) -> None:
        self._bumps = bumps
        self._next: Identity | None = None
        self.outstanding: list[ProducerBatch] = []
        self.used_up = -1
        self._broken = False
        # Whether the broker has written a batch of this producer id.
        self._is_known = False

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id is required before a batch can be sent."""
        return self._next is None

    def identify(self, producer_id: int, epoch: int) -> None:
        """Start at 0 with a new producer id and epoch."""
        self._next = Identity(producer_id, epoch, 0)
        self._is_known = False
        self._renumber()

    def drop_identity(self) -> None:
        """Drop the identity, which the producer has replaced.

        A batch that has expired in flight is refused for its old epoch.
        """
        self._next = None
        self.outstanding.clear()

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether the batch may be sent now; number it if it has no number."""
        if self._broken and not self._mend():
            return False
        if self._next is None:
            return False
        if batch.identity is not ANONYMOUS:
            # Retries are sent one at a time, each after the outcome of the one before.
            return self.outstanding[0] is batch
        if self.outstanding and not self._is_known:
            return False
        batch.identity = self._next
        self._next = _after(self._next, batch.count)
        self.outstanding.append(batch)
        return True

    def is_gap(self, code: ErrorCode, batch: ProducerBatch) -> bool:
        """Return whether an error requires a retry, possibly after a renumbering."""
        if code not in GAPS:
            return False
        is_first = bool(self.outstanding) and self.outstanding[0] is batch
        if not self._bumps:
            return not is_first
        self._broken = self._broken or is_first
        return True

    def finish(self, batch: ProducerBatch, *, written: bool) -> None:
        """Remove a batch that has its outcome."""
        self._is_known = self._is_known or written
        if batch in self.outstanding:
            self.outstanding.remove(batch)

    def replace(self, batch: ProducerBatch, halves: tuple[ProducerBatch, ...]) -> None:
        """Replace a batch that was too large by its halves, with the same numbers."""
        if batch.identity is ANONYMOUS:
            return
        at = self.outstanding.index(batch)
        self.outstanding[at : at + 1] = halves
        identity = batch.identity
        for half in halves:
            half.identity = identity
            identity = _after(identity, half.count)

    def insert(self, queue: list[ProducerBatch], batch: ProducerBatch) -> None:
        """Insert a batch to be retried into a queue, in the order of numbers."""
        places = {id(each): at for at, each in enumerate(self.outstanding)}
        last = len(places)
        keys = [places.get(id(each), last) for each in queue]
        queue.insert(bisect.bisect(keys, places.get(id(batch), -1)), batch)

    def _mend(self) -> bool:
        """Restart numbers in the next epoch, unless a batch is in flight."""
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
