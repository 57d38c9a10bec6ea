"""Leaders and replicas in sync: decisions of a controller with complete knowledge.

Kafka's rules for a cluster without reassignments. A broker that is gone leaves every
ISR that has another member, and leads nothing. A leader is elected from the ISR, in the
order of the assignment. Every such change increases the leader epoch. A leader's ISR
proposal is checked against the epochs and the live brokers (``KafkaController.
processAlterPartition``), and increases the partition epoch only.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """Decision of a controller about one partition."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(slots=True)
class Elections:
    """All partitions, and the live brokers."""

    live: set[int] = field(default_factory=set)
    states: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)

    def create(self, key: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Add a partition, led by its first live replica."""
        isr = tuple(each for each in replicas if each in self.live)
        assert isr, (replicas, self.live)
        self.states[key] = LeaderAndIsr(
            replicas=replicas, leader=isr[0], leader_epoch=0, isr=isr, partition_epoch=0
        )

    def remove(self, broker: int) -> list[TopicPartition]:
        """Remove a broker from all ISRs and leaderships; return the changed ones."""
        self.live.discard(broker)
        changed = []
        for key, state in self.states.items():
            if broker in state.isr or state.leader == broker:
                # The last member stays: no other replica may lead.
                isr = tuple(it for it in state.isr if it != broker) or state.isr
                self._lead(key, replace(state, isr=isr))
                changed.append(key)
        return changed

    def arrived(self, broker: int) -> list[TopicPartition]:
        """Elect leaders that a new broker makes possible; return the changed ones."""
        self.live.add(broker)
        return self._elected(
            key for key, state in self.states.items() if state.leader == NO_LEADER
        )

    def prefer(self, key: TopicPartition) -> list[TopicPartition]:
        """Elect the first replica if it is in sync; return the changed partitions."""
        state = self.states[key]
        first = state.replicas[0]
        if state.leader == first or first not in self.live or first not in state.isr:
            return []
        self.states[key] = _next_epoch(replace(state, leader=first))
        return [key]

    def alter(
        self,
        key: TopicPartition,
        *,
        leader_epoch: int,
        isr: tuple[int, ...],
        partition_epoch: int,
    ) -> ErrorCode:
        """Decide on a leader's proposal."""
        state = self.states[key]
        if leader_epoch != state.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if isr == state.isr:
            # As in Kafka: a repeated proposal after a lost answer.
            return ErrorCode.none
        if partition_epoch != state.partition_epoch:
            return ErrorCode.invalid_update_version
        if not self.live.issuperset(isr):
            return ErrorCode.ineligible_replica
        epoch = state.partition_epoch + 1
        self.states[key] = replace(state, isr=isr, partition_epoch=epoch)
        return ErrorCode.none

    def _elected(self, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        changed = []
        for key in list(keys):
            self._lead(key, self.states[key])
            if self.states[key].leader != NO_LEADER:
                changed.append(key)
        return changed

    def _lead(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        """Keep the leader if it is live and in sync, or choose the first such one."""
        able = [each for each in state.replicas if each in state.isr]
        able = [each for each in able if each in self.live]
        leader = state.leader
        if leader not in able:
            leader = able[0] if able else NO_LEADER
        self.states[key] = _next_epoch(replace(state, leader=leader))


def _next_epoch(state: LeaderAndIsr) -> LeaderAndIsr:
    return replace(
        state,
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )
