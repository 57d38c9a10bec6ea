"""Bugs planted in the real code, one at a time, for the swarm to find.

Each is a failure of brokers, controllers or clients of other projects. ``kinds`` are
the anomalies that reveal it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from broker.apis import fetch
from broker.client.producer.accumulator import RecordAccumulator
from broker.client.producer.producer_batch import ANONYMOUS, ProducerBatch
from broker.cluster.partition import Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.coordination.zookeeper import session_loop
from broker.coordination.zookeeper.carrying_out import ControllerMoved
from broker.coordination.zookeeper.election import Term, elect
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.coordination.zookeeper.session_loop import SessionLoop
from broker.log.producers import Producers
from broker.log.steps import Steps
from broker.node.broker import Broker
from broker.node.replicated_shard_log import ReplicatedShardLog
from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.replication.replica_fetcher import ReplicaFetcher
from broker.zookeeper.in_memory.watch_table import WatchTable
from broker.zookeeper.znodes import WatchEvent
from simulation.control.scripted_controller import ScriptedController

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Planted:
    """A bug: its patch, the anomalies that reveal it, and a seed that finds it."""

    plant: Callable[[Patch], None]
    kinds: frozenset[str]
    seed: int
    zookeeper: bool = False


def skip_truncation(patch: Patch) -> None:
    """A follower does not detect where its log diverges from its leader's."""
    request = ReplicaFetcher._request

    def without_epochs(self: ReplicaFetcher, due: Any) -> Any:
        asked = request(self, due)
        for topic in asked.topics:
            for wanted in topic.partitions:
                wanted.last_fetched_epoch = -1
        return asked

    patch.setattr(ReplicaFetcher, "_request", without_epochs)


def acknowledge_early(patch: Patch) -> None:
    """A leader acknowledges before all in-sync replicas have the records."""

    def acknowledged(self: Partition, required_offset: int) -> ErrorCode:
        leads = self.is_leader
        return ErrorCode.none if leads else ErrorCode.not_leader_or_follower

    patch.setattr(Partition, "acknowledged", acknowledged)


def forget_the_epoch_of_a_fetch(patch: Patch) -> None:
    """A leader ignores the epoch of the last record that a follower has."""
    patch.setattr(fetch, "_divergence", lambda partition, target: None)


def lose_order_on_resume(patch: Patch) -> None:
    """A producer retries a failed batch after later batches."""

    def put_back(
        self: RecordAccumulator, batch: ProducerBatch, retry_at_s: float
    ) -> None:
        queue = self._queues[batch.partition]
        if queue.sequences is not None and batch.identity is not ANONYMOUS:
            queue.sequences.outstanding.remove(batch)
            batch.identity = ANONYMOUS
        batch.retry_at_s = retry_at_s
        queue.batches.append(batch)

    patch.setattr(RecordAccumulator, "put_back", put_back)


def keep_a_bounced_broker_in_sync(patch: Patch) -> None:
    """A controller does not notice a broker's restart between two checks."""

    def lose(self: ScriptedController, broker: int, registration: Any) -> None:
        lost = registration.channel
        registration.channel = None
        if lost is not None:
            lost.to_send.clear()
            lost.close()

    patch.setattr(ScriptedController, "_lose", lose)


def lose_offsets_on_a_move(patch: Patch) -> None:
    """A new group coordinator does not replay its predecessor's records."""

    def replay(self: ReplicatedShardLog, partition: int) -> Iterator[Any]:
        return iter(())

    patch.setattr(ReplicatedShardLog, "replay_all", replay)


def move_the_high_watermark_back(patch: Patch) -> None:
    """A new leader uses its followers' positions before their first fetch."""

    def advance(self: Partition) -> bool:
        before = self.high_watermark
        ends = [
            self.followers[each].log_end_offset
            for each in self.maximal_isr
            if each in self.followers
        ]
        least = min(ends, default=self.log.log_end_offset)
        self.high_watermark = max(least, self.log.log_start_offset)
        return self.high_watermark != before

    patch.setattr(Partition, "advance_high_watermark", advance)


def commit_with_too_few(patch: Patch) -> None:
    """A leader ignores min.insync.replicas when it commits, as before Kafka 3.7."""
    advance = Partition.advance_high_watermark

    def regardless(self: Partition) -> bool:
        needed, self._min_insync = self._min_insync, lambda: 1
        moved = advance(self)
        self._min_insync = needed
        return moved

    patch.setattr(Partition, "advance_high_watermark", regardless)


def forget_producers_on_a_fail_over(patch: Patch) -> None:
    """A follower keeps no producer state for the batches that it copies."""
    patch.setattr(Producers, "replay", lambda self, header, marker: None)


def drop_a_watch(patch: Patch) -> None:
    """ZooKeeper fires no watch on broker ids once all brokers have registered."""
    triggered, heard = WatchTable.triggered, Counter[WatchTable[Any]]()

    def forgetful(self: WatchTable[Any], event: WatchEvent) -> list[Any]:
        watchers = triggered(self, event)
        if event.path == paths.BROKER_IDS:
            heard[self] += bool(watchers)
            return watchers if heard[self] <= _BROKERS else []
        return watchers

    patch.setattr(WatchTable, "triggered", forgetful)


def two_controllers(patch: Patch) -> None:
    """A controller continues after its session has expired, and brokers obey it.

    ZooKeeper refuses its writes by the epoch, but no broker refuses its requests.
    """
    terms: dict[SessionLoop, Term] = {}

    async def stand(self: SessionLoop, znodes: RetryingZnodes) -> None:
        member = self._member
        while True:
            if self not in terms:
                term = await elect(znodes, member.broker_id, member.now_ms())
                if term is None:
                    await self._controller_changed.wait()
                    continue
                terms[self] = term
            try:
                await self._govern(znodes, terms[self])
            except* ControllerMoved:
                del terms[self]

    async def believe(znodes: RetryingZnodes) -> bool:
        return True

    def update(self: Broker, request: UpdateMetadataRequest) -> Steps[ErrorCode]:
        self.replicas.controller_epoch = request.controller_epoch
        return updating_metadata(self, request)

    updating_metadata = Broker.updating_metadata
    patch.setattr(SessionLoop, "_stand_for_election", stand)
    patch.setattr(session_loop, "is_controller", believe)
    patch.setattr(Broker, "updating_metadata", update)
    patch.setattr(ReplicaManager, "_is_stale", lambda self, epoch: False)


# Number of brokers of the cluster whose watch is dropped.
_BROKERS: Final = 3
_LOST: Final = frozenset({"lost-write", "unseen", "dirty-read", "inconsistent-offsets"})

PLANTED = {
    "skip truncation": Planted(skip_truncation, _LOST | {"replicas-differ"}, 20),
    "acknowledge before the ISR has it": Planted(acknowledge_early, _LOST, 27),
    "forget an epoch check": Planted(
        forget_the_epoch_of_a_fetch, _LOST | {"replicas-differ"}, 20
    ),
    "lose order on resume": Planted(
        lose_order_on_resume, frozenset({"reordered", "nonmonotonic-send"}), 12
    ),
    "stale ISR after a restart": Planted(keep_a_bounced_broker_in_sync, _LOST, 53),
    "offsets lost on move": Planted(
        lose_offsets_on_a_move, frozenset({"lost-commit"}), 0
    ),
    "high watermark back": Planted(
        move_the_high_watermark_back, frozenset({"high-watermark-back"}), 0
    ),
    "drop a watch": Planted(
        drop_a_watch,
        frozenset({"not-in-sync", "not-writable", "producers-stuck"}),
        0,
        zookeeper=True,
    ),
    "two controllers": Planted(
        two_controllers,
        _LOST | {"two-leaders", "not-in-sync"},
        217,
        zookeeper=True,
    ),
    "duplicate after fail-over": Planted(
        forget_producers_on_a_fail_over, frozenset({"duplicate"}), 8
    ),
}
