"""Looks at all replicas of a simulated cluster, again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import trio

from broker.protocol.topic_partition import TopicPartition
from experiments.simulation.cluster import Cluster, SimulatedBroker
from experiments.simulation.histories import History, Replica

_LOOK_S: Final = 0.02


class Watcher:
    """Notes each replica whenever it differs from the last look at it."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._last: dict[tuple[int, TopicPartition], Replica] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for each in self._cluster.up:
                self._look_at(each)
            await trio.sleep(_LOOK_S)

    def _look_at(self, each: SimulatedBroker) -> None:
        now_ns = self._cluster.clock.now_ns()
        for key, partition in each.broker.replicas.partitions.items():
            if partition.is_offline:
                continue
            look = Replica(
                broker=each.id,
                life=each.life,
                partition=key,
                is_leader=partition.is_leader,
                leader_epoch=partition.leader_epoch,
                high_watermark=partition.high_watermark,
                log_start_offset=partition.log.log_start_offset,
                log_end_offset=partition.log.log_end_offset,
                isr=partition.isr,
                at_ns=now_ns,
            )
            last = self._last.get((each.id, key))
            if last is None or replace(last, at_ns=now_ns) != look:
                self._last[each.id, key] = look
                self._history.replicas.append(look)
