"""Proposals of ISRs to the controller, and its responses.

Kafka's ``AlterPartitionManager`` and ``isr-expiration``: one request in flight, with
the first `BATCH` proposals. Undecided proposals are sent again after a pause. The
address of the controller is taken from the metadata. A response is valid only under the
leader epoch of its request. After an error that means that the controller has a newer
state, the proposal is kept until the next LeaderAndIsr, as in Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

import trio

from broker.client.backoff import Backoff
from broker.client.network_client import Address, NetworkClient
from broker.client.signals import Signal
from broker.cluster.partition import Partition
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from broker.protocol.topic_partition import TopicPartition

# Kafka's pause before a proposal is sent again; the pause grows while responses are
# missing.
RETRY_S, RETRY_MAX_S = 0.05, 1.0
# Partitions checked in one piece of a round.
PIECE: Final = 256
# Largest number of proposals in one request. A failed broker causes one per follower,
# and each request and response is processed in one step.
BATCH: Final = 512
# Shortest time between two rounds, even with a short replica.lag.time.max.ms.
_REST_NS: Final = 10_000_000
_WITHDRAWN: Final = frozenset(
    {ErrorCode.operation_not_attempted, ErrorCode.ineligible_replica}
)
_CONTROLLER_KNOWS_BETTER: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)


class Proposal(NamedTuple):
    """An ISR proposed by the leader of a partition, in one leader epoch."""

    partition: Partition
    leader_epoch: int
    isr: tuple[int, ...]

    @property
    def stands(self) -> bool:
        """Return whether the proposal is current, so that a response is valid."""
        partition = self.partition
        return (
            partition.is_leader
            and partition.leader_epoch == self.leader_epoch
            and partition.proposed_isr == self.isr
        )


class IsrProposals:
    """Undecided proposals.

    ``changed`` is called with a partition whose ISR has changed: requests that wait for
    its high watermark may complete.
    """

    def __init__(self, changed: Callable[[Partition], None]) -> None:
        self._changed = changed
        self._waiting: dict[TopicPartition, Partition] = {}
        self.submitted = Signal()
        # Decisions of the controller: shrunk, expanded and rejected ISRs.
        self.shrinks = self.expands = self.refusals = 0

    def submit(self, partition: Partition) -> None:
        """Queue a partition's ``proposed_isr`` for the controller."""
        self._waiting[partition.key] = partition
        self.submitted.notify()

    def open(self) -> list[Proposal]:
        """Return the first current proposals, at most `BATCH`; drop others.

        A proposal without a topic id, which the controller has not assigned yet, is
        withdrawn. It is proposed again at the next check of the followers.
        """
        proposals = []
        for each in tuple(islice(self._waiting.values(), BATCH)):
            if each.is_leader and each.proposed_isr is not None and each.topic_id:
                proposals.append(Proposal(each, each.leader_epoch, each.proposed_isr))
                continue
            del self._waiting[each.key]
            if each.is_leader and each.proposed_isr is not None:
                each.withdraw_proposal()
        return proposals

    def put_back(self, batch: Iterable[Proposal]) -> bool:
        """Requeue undecided proposals after the others; return whether any remain."""
        undecided = [
            each.partition
            for each in batch
            if self._waiting.get(each.partition.key) is each.partition
        ]
        for partition in undecided:
            self._waiting[partition.key] = self._waiting.pop(partition.key)
        return bool(undecided)

    @property
    def waiting(self) -> int:
        """Return the number of proposals that are neither decided nor dropped."""
        return len(self._waiting)

    def request(
        self, batch: Iterable[Proposal], broker_id: int, broker_epoch: int
    ) -> AlterPartitionRequest:
        """Return an AlterPartition (v2) with these proposals."""
        topics: dict[UUID | None, list[RequestPartitionData]] = {}
        for partition, leader_epoch, isr in batch:
            proposed = RequestPartitionData(
                partition_index=partition.key.partition,
                leader_epoch=leader_epoch,
                new_isr=isr,
                leader_recovery_state=0,
                partition_epoch=partition.partition_epoch,
            )
            topics.setdefault(partition.topic_id, []).append(proposed)
        return AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            topics=tuple(
                RequestTopicData(topic_id=topic_id, partitions=tuple(rows))
                for topic_id, rows in topics.items()
            ),
        )

    def take(self, batch: Iterable[Proposal], answer: AlterPartitionResponse) -> None:
        """Apply the controller's decisions.

        Undecided proposals, and later proposals in a new leader epoch, stay open.
        """
        if answer.error_code is not ErrorCode.none:
            return
        by_id = {
            (each.partition.topic_id, each.partition.key.partition): each
            for each in batch
        }
        for topic in answer.topics:
            for decided in topic.partitions:
                each = by_id.get((topic.topic_id, decided.partition_index))
                if each is not None and each.stands:
                    self._decide(each.partition, decided)

    def _decide(self, partition: Partition, decided: ResponsePartitionData) -> None:
        code = decided.error_code
        if code is ErrorCode.none:
            self._waiting.pop(partition.key, None)
            self._accept(partition, decided)
            return
        self.refusals += 1
        if code in _WITHDRAWN:
            self._waiting.pop(partition.key, None)
            partition.withdraw_proposal()
        elif code in _CONTROLLER_KNOWS_BETTER:
            self._waiting.pop(partition.key, None)

    def _accept(self, partition: Partition, decided: ResponsePartitionData) -> None:
        before = set(partition.isr)
        isr = tuple(int(each) for each in decided.isr)
        if partition.accept_isr(decided.leader_epoch, isr, decided.partition_epoch):
            self.shrinks += not before <= set(isr)
            self.expands += not before >= set(isr)
            self._changed(partition)


@dataclass(slots=True)
class IsrExpiration:
    """Rounds in which leaders check for lagging followers.

    As in Kafka, a round starts every half ``replica.lag.time.max.ms``, but at most
    every 10 ms. It checks `PIECE` partitions at a time.
    """

    led: Callable[[], Iterator[Partition]]
    lag_ns: Callable[[], int]
    submit: Callable[[Partition], None]
    _next_ns: int = 0
    _round: Iterator[Partition] | None = None

    def next_ns(self) -> int:
        """Return when the next piece is due."""
        return self._next_ns

    def work(self, now_ns: int) -> None:
        """Do a piece of a round."""
        if self._round is None:
            self._round = self.led()
        piece = list(islice(self._round, PIECE))
        for partition in piece:
            self._propose_shrinking(partition)
        if len(piece) < PIECE:
            self._round = None
            self._next_ns = now_ns + max(self.lag_ns() // 2, _REST_NS)

    def _propose_shrinking(self, partition: Partition) -> None:
        if len(partition.isr) > 1 and partition.propose_shrinking():
            self.submit(partition)


async def bring(
    proposals: IsrProposals,
    client: NetworkClient,
    controller: Callable[[], tuple[str, int] | None],
    identity: Callable[[], tuple[int, int]],
    billed: AbstractContextManager[object],
    rng: random.Random,
) -> None:
    """Send proposals to the controller until cancelled.

    ``identity`` returns this broker's id and its registered epoch.
    """
    backoff = Backoff(RETRY_S, RETRY_MAX_S, rng)
    failures = 0
    while True:
        batch = proposals.open()
        if not batch and proposals.waiting:
            await trio.lowlevel.checkpoint()
            continue
        if not batch:
            await proposals.submitted.wait()
            continue
        address = controller()
        failures += 1
        if address is not None:
            with billed:
                request = proposals.request(batch, *identity())
            where = Address(*address, purpose="controller")
            # The controller may have stopped or moved meanwhile.
            with suppress(KafkaError):
                answer = await client.call(where, request)
                failures = 0
                with billed:
                    proposals.take(batch, answer)
        undecided = proposals.put_back(batch)
        go_on = len(batch) == BATCH and not failures and not undecided
        if not go_on and proposals.open():
            await trio.sleep(backoff.after(max(failures, 1)))
