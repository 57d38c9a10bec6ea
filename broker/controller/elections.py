"""Elections on request: preferred, unclean, and to balance leaders.

KIP-183 and KIP-460 (ElectLeaders), ``/admin/preferred_replica_election``, and
``auto.leader.rebalance.enable``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from broker.controller.context import ControllerContext
from broker.controller.decisions import Decisions, pausing, scan
from broker.controller.partition_states import Election, PartitionStateMachine
from broker.controller.selectors import preferred_leader
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class ElectionType(IntEnum):
    """The election types of ElectLeaders, with their numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class Elections:
    """Elections on request.

    ``imbalance_percentage`` is ``leader.imbalance.per.broker.percentage``.
    """

    def __init__(
        self,
        context: ControllerContext,
        partitions: PartitionStateMachine,
        imbalance_percentage: int,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._imbalance_percentage = imbalance_percentage

    def elect(
        self, keys: Iterable[TopicPartition], kind: ElectionType
    ) -> Decisions[dict[TopicPartition, ErrorCode]]:
        """Elect leaders; return each partition's outcome."""
        outcome = {}
        for count, key in enumerate(keys, 1):
            outcome[key] = self._refusal(key, kind)
            yield from pausing(count)
        needed = yield from scan(outcome, lambda it: outcome[it] is ErrorCode.none)
        if kind is ElectionType.PREFERRED:
            election = Election.PREFERRED
            failure = ErrorCode.preferred_leader_not_available
        else:
            election = Election.UNCLEAN
            failure = ErrorCode.eligible_leaders_not_available
        elected = yield from self._partitions.elect(needed, election)
        failed = yield from scan(needed, lambda it: it not in elected)
        outcome.update(dict.fromkeys(failed, failure))
        return outcome

    def _refusal(self, key: TopicPartition, kind: ElectionType) -> ErrorCode:
        context = self._context
        replicas = context.replicas(key)
        if not replicas:
            return ErrorCode.unknown_topic_or_partition
        if key.topic in context.to_delete:
            return ErrorCode.invalid_topic_exception
        leadership = context.leadership(key)
        if leadership is None:
            return ErrorCode.none
        if kind is ElectionType.PREFERRED:
            needed = leadership.leader != replicas[0]
        else:
            needed = not context.is_live(leadership.leader)
        return ErrorCode.none if needed else ErrorCode.election_not_needed

    def rebalance(self) -> Decisions[None]:
        """Elect preferred leaders for brokers whose imbalance is above the bound.

        The imbalance is the share of partitions with another leader, among those whose
        preferred (first) replica the broker has. O(partitions).
        """
        context = self._context
        preferring: dict[int, list[TopicPartition]] = {}
        for count, key in enumerate(context.all_partitions(), 1):
            if key.topic not in context.to_delete:
                preferring.setdefault(context.replicas(key)[0], []).append(key)
            yield from pausing(count)
        for broker in sorted(preferring):
            keys, astray = preferring[broker], []
            for count, key in enumerate(keys, 1):
                if self._is_led_by_another(key, broker):
                    astray.append(key)
                yield from pausing(count)
            if 100 * len(astray) > self._imbalance_percentage * len(keys):
                able = []
                for count, key in enumerate(astray, 1):
                    if self._may_lead(key):
                        able.append(key)
                    yield from pausing(count)
                yield from self._partitions.elect(able, Election.PREFERRED)

    def _is_led_by_another(self, key: TopicPartition, broker: int) -> bool:
        leadership = self._context.leadership(key)
        return leadership is not None and leadership.leader != broker

    def _may_lead(self, key: TopicPartition) -> bool:
        context = self._context
        leadership = context.leadership(key)
        online = context.online_replicas(key)
        return leadership is not None and (
            preferred_leader(context.replicas(key), leadership.isr, online) is not None
        )
