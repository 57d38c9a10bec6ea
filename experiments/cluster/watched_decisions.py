"""Decisions of the controller, as ZooKeeper reports them to a watcher.

A decision is the write of a partition's state with a new leader epoch. Its time is the
earlier of ZooKeeper's, in milliseconds, and the watch event's. A watcher without CPU
time therefore does not delay decisions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from broker.controller.leadership import Leadership
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.topic_records import read_leadership
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.protocol.topic_partition import TopicPartition
from broker.zookeeper.znodes import SessionEvent
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from experiments.cluster.cluster_under_test import ClusterUnderTest
from experiments.processes.children import RunFailed

_SESSION_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A partition's leader in a new epoch, and the time of the decision."""

    key: TopicPartition
    leader: int
    decided_ns: int


class Decisions:
    """Follows partitions from their creation on.

    ``made`` are all decisions on followed partitions, in order.
    """

    def __init__(self, under_test: ClusterUnderTest, rng: random.Random) -> None:
        self.made: list[Decision] = []
        self._under_test = under_test
        self._session = ZooKeeperSession(
            under_test.zookeeper,
            timeout_ms=_SESSION_MS,
            connect=under_test.connect,
            rng=rng,
        )
        self._znodes = RetryingZnodes(self._session)
        self._known: dict[TopicPartition, Leadership] = {}
        self._paths: dict[str, TopicPartition] = {}

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Watch until cancelled.

        :raises RunFailed: if the ZooKeeper session expires.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self._session.run)
            task_status.started()
            async for event in self._session.events:
                if event is SessionEvent.EXPIRED:
                    raise RunFailed("ZooKeeper has not seen this process in time")
                if not isinstance(event, SessionEvent) and event.path in self._paths:
                    await self._read(event.path, self._under_test.now_ns())

    async def follow(self, keys: Iterable[TopicPartition]) -> None:
        """Watch partitions from now on."""
        for key in keys:
            path = paths.partition_state(key)
            self._paths[path] = key
            await self._read(path, self._under_test.now_ns())

    def standing(self, key: TopicPartition) -> Leadership:
        """Return the last known state of a followed partition."""
        return self._known[key]

    def leader_of(self, key: TopicPartition) -> int:
        """Return a partition's last known leader, negative if there is none."""
        return self._known[key].leader

    async def _read(self, path: str, notified_ns: int) -> None:
        key = self._paths[path]
        data, stat = await self._znodes.get(path, watch=True)
        found = read_leadership(data, stat.version)
        known = self._known.get(key)
        self._known[key] = found
        if known is not None and known.leader_epoch < found.leader_epoch:
            # The write happened before the end of its millisecond.
            written_ns = self._under_test.zookeeper_ns(stat.mtime_ms + 1)
            decided_ns = min(notified_ns, written_ns)
            self.made.append(
                Decision(key=key, leader=found.leader, decided_ns=decided_ns)
            )
