"""Decisions about ISR proposals of leaders (AlterPartition, KIP-497).

The checks are those of Kafka 3.9's controller in ZooKeeper mode, and three of its KRaft
controller (INVALID_REQUEST): only the leader proposes, it stays in its ISR, and all
members are replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from broker.controller.batches import RequestBatch
from broker.controller.context import ControllerContext
from broker.controller.decisions import Decisions, pausing, scan
from broker.controller.leadership import RECOVERED, RECOVERING, Leadership
from broker.controller.partition_reassignment import Reassignments
from broker.controller.writing import write_leaderships
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """A proposal of the leader of one partition."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    recovery_state: int = RECOVERED


Judgement: TypeAlias = Leadership | ErrorCode


class IsrJudge:
    """Checks proposals and writes the accepted ones."""

    def __init__(
        self,
        context: ControllerContext,
        batch: RequestBatch,
        reassignments: Reassignments,
    ) -> None:
        self._context = context
        self._batch = batch
        self._reassignments = reassignments

    def propose(
        self,
        broker_id: int,
        broker_epoch: int,
        proposals: Mapping[TopicPartition, IsrProposal],
    ) -> Decisions[dict[TopicPartition, Judgement]]:
        """Return the new leadership of each partition, or an error code.

        Reassignments that a new ISR completes are finished first; if that moves the
        leader, the result is NEW_LEADER_ELECTED. Raises STALE_BROKER_EPOCH.
        """
        context = self._context
        registered = context.brokers.get(broker_id)
        if registered is None or registered.epoch != broker_epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch)
        outcome: dict[TopicPartition, Judgement] = {}
        wanted: dict[TopicPartition, Leadership] = {}
        for count, (key, proposal) in enumerate(proposals.items(), 1):
            outcome[key] = current = self._judge(broker_id, key, proposal)
            if isinstance(current, Leadership) and not _holds(proposal, current):
                wanted[key] = current.with_isr(
                    context.epoch, proposal.isr, proposal.recovery_state
                )
            yield from pausing(count)
        written = yield from write_leaderships(context, wanted)
        for count, key in enumerate(wanted, 1):
            outcome[key] = written.get(key, ErrorCode.invalid_update_version)
            yield from pausing(count)
        yield from self._announce(wanted)
        yield from self._reassignments.complete(
            key for key, it in outcome.items() if isinstance(it, Leadership)
        )
        for count, key in enumerate(proposals, 1):
            yield from pausing(count)
            if isinstance(outcome[key], Leadership) and self._has_new_leader(
                broker_id, key
            ):
                outcome[key] = ErrorCode.new_leader_elected
        return outcome

    def changed(self, found: Mapping[TopicPartition, Leadership]) -> Decisions[None]:
        """Apply ISRs that leaders have written to ZooKeeper, as before KIP-497."""
        context = self._context
        known = yield from scan(found, lambda it: bool(context.replicas(it)))
        for count, key in enumerate(known, 1):
            context.put_leadership(key, found[key])
            yield from pausing(count)
        yield from self._announce(known)
        yield from self._reassignments.complete(known)

    def _announce(self, keys: Collection[TopicPartition]) -> Decisions[None]:
        if keys:
            yield from self._batch.send_all_metadata(self._context.brokers, keys)
            yield from self._batch.flush()

    def _has_new_leader(self, broker_id: int, key: TopicPartition) -> bool:
        current = self._context.leadership(key)
        return current is None or current.leader != broker_id

    def _judge(
        self, broker_id: int, key: TopicPartition, proposal: IsrProposal
    ) -> Judgement:
        """Return the current leadership if the proposal is valid or already applied."""
        current = self._context.leadership(key)
        if current is None:
            return ErrorCode.unknown_topic_or_partition
        if (
            proposal.partition_epoch > current.version
            or proposal.leader_epoch > current.leader_epoch
        ):
            # The leader has newer decisions of another controller.
            return ErrorCode.not_controller
        if proposal.leader_epoch < current.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if broker_id != current.leader:
            return ErrorCode.invalid_request
        if _holds(proposal, current):
            # A retry of an accepted proposal whose response was lost.
            return current
        if proposal.partition_epoch < current.version:
            return ErrorCode.invalid_update_version
        return self._judge_isr(key, proposal, current)

    def _judge_isr(
        self, key: TopicPartition, proposal: IsrProposal, current: Leadership
    ) -> Judgement:
        isr = proposal.isr
        if proposal.recovery_state == RECOVERING and (
            len(isr) > 1 or current.recovery_state == RECOVERED
        ):
            return ErrorCode.invalid_request
        others = set(self._context.replicas(key)) - {current.leader}
        if sorted(isr) != sorted({current.leader} | others.intersection(isr)):
            return ErrorCode.invalid_request
        if not self._context.live_brokers.issuperset(isr):
            # KIP-841: brokers that are shutting down or lost do not rejoin an ISR.
            return ErrorCode.ineligible_replica
        return current


def _holds(proposal: IsrProposal, current: Leadership) -> bool:
    return proposal.isr == current.isr and (
        proposal.recovery_state == current.recovery_state
    )
