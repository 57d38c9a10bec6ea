"""Periodic observation of all replicas of a simulated cluster."""

from __future__ import annotations

from typing import Final

import trio

from broker.protocol.topic_partition import TopicPartition
from simulation.cluster import Cluster, SimulatedBroker
from simulation.histories import UNKNOWN_OFFSET, History, Replica

_LOOK_S: Final = 0.02
# Incarnation, is leader, leader epoch, high watermark, log start, log end, ISR,
# partition epoch, ISR size that acks=all requires, and a leader's last stable offset.
_State = tuple[int, bool, int, int, int, int, tuple[int, ...], int, int, int]


class Watcher:
    """Records a replica whenever it differs from its last observation."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._last: dict[tuple[int, TopicPartition], _State] = {}

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            for each in self._cluster.up:
                self._observe(each)
            await trio.sleep(_LOOK_S)

    def _observe(self, each: SimulatedBroker) -> None:
        now_ns = self._cluster.clock.now_ns()
        for key, partition in each.broker.replicas.partitions.items():
            if partition.is_offline:
                continue
            log = partition.log
            state = (
                each.incarnation,
                partition.is_leader,
                partition.leader_epoch,
                partition.high_watermark,
                log.log_start_offset,
                log.log_end_offset,
                partition.isr,
                partition.partition_epoch,
                partition.effective_min_isr,
                partition.last_stable_offset if partition.is_leader else UNKNOWN_OFFSET,
            )
            # Observed fifty times per second, and rarely changed.
            if self._last.get((each.id, key)) != state:
                self._last[each.id, key] = state
                self._history.replicas.append(_replica(each.id, key, state, now_ns))


def _replica(broker: int, key: TopicPartition, state: _State, at_ns: int) -> Replica:
    incarnation, is_leader, epoch, high_watermark, start, end = state[:6]
    isr, version, least, stable = state[6:]
    return Replica(
        broker=broker,
        incarnation=incarnation,
        partition=key,
        is_leader=is_leader,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        log_start_offset=start,
        log_end_offset=end,
        isr=isr,
        partition_epoch=version,
        min_isr=least,
        last_stable_offset=stable,
        at_ns=at_ns,
    )
