"""The replicas of this broker, and a controller's changes of them.

Kafka's ``ReplicaManager``; the fetchers of followers are an argument. LeaderAndIsr and
StopReplica are fenced by controller epoch, leader epoch and topic id exactly as in
Kafka 3.9 (KIP-380, KIP-516). When a partition gets another leader, its requests in
purgatories complete at once (as KAFKA-4453 does for Produces that cannot succeed).

Kafka runs the state-changing requests under ``replicaStateChangeLock``, and so do the
coroutines here. They can be preempted between two partitions, which other tasks may
observe, but no other state change is interleaved. A task that waits for the lock lends
its turns to the holder (``planes.lock``), so a controller waits only for the change
itself. The methods that do not suspend are for holders of the lock, and for start-up.

Unlike in Kafka, a replica becomes a follower even if the metadata cache does not list
its leader as live: the fetcher waits for the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from broker.cluster.cluster_topics import check_name
from broker.cluster.follower import NO_OTHERS
from broker.cluster.partition import Partition
from broker.cluster.replica_commands import (
    leadership_answer,
    states_of,
    stop_answer,
    stops_of,
)
from broker.cluster.replica_parts import (
    Fetchers,
    IsrChanges,
    Logs,
    NoFetchers,
    NoIsrChanges,
)
from broker.disk.disk_failures import LogStorageError, LogUnavailable
from broker.log.log import Log
from broker.log.steps import Steps
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.sentinels import EPOCH_DURING_DELETE, NO_EPOCH
from broker.protocol.topic_partition import TopicPartition
from broker.requests.purgatory import Purgatory
from planes.lock import TaskLock
from planes.slices import preempt


class ReplicaManager:
    """Partitions by (topic, index), and the epoch of the last controller.

    ``controller_epoch`` is set by `Broker.is_meant`, which checks it; a command of an
    earlier controller is stale.
    """

    def __init__(
        self,
        logs: Logs,
        *,
        local_id: int,
        min_insync: Callable[[str], int],
        is_known: Callable[[TopicPartition], bool] = lambda key: False,
        on_earlier_deadline: Callable[[], None] = lambda: None,
        inherits: bool = True,
    ) -> None:
        self.state_change_lock = TaskLock("replica state change", inherits=inherits)
        # Held during decompression with a large window, since preempted requests keep
        # the window in memory.
        self.large_windows = TaskLock("large windows", inherits=inherits)
        self.local_id = local_id
        self.controller_epoch = 0
        self.partitions: dict[TopicPartition, Partition] = {}
        # Replicas whose logs could not be opened.
        self.offline: set[TopicPartition] = set()
        # Replicas whose creation failed at a device, which may have been full.
        self.without_room: set[TopicPartition] = set()
        self.produce_purgatory = Purgatory("Produce", on_earlier_deadline)
        self.fetch_purgatory = Purgatory("Fetch", on_earlier_deadline, tries_here=False)
        self.delete_records_purgatory = Purgatory("DeleteRecords", on_earlier_deadline)
        # Called for leaderships won and lost: (partition, is_leader).
        self.leadership_listeners: list[Callable[[Partition, bool], None]] = []
        self.fetchers: Fetchers = NoFetchers()
        self.isr_changes: IsrChanges = NoIsrChanges()
        self.sync_rules = NO_OTHERS
        self._logs = logs
        self._min_insync = min_insync
        self._is_known = is_known

    # ---- finding a partition ----------------------------------------------------

    def leader(
        self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH
    ) -> Partition:
        """Return a partition that this broker leads in an epoch, or raise."""
        partition = self.get(key)
        partition.check_epoch(current_leader_epoch)
        return partition

    def get(self, key: TopicPartition) -> Partition:
        """Return a partition that this broker holds, or raise."""
        partition = self.partitions.get(key)
        if partition is not None and not partition.is_offline:
            return partition
        if partition is not None or key in self.offline:
            raise KafkaError(
                ErrorCode.kafka_storage_error, "its log directory is offline"
            )
        code = ErrorCode.unknown_topic_or_partition
        if self._is_known(key):
            # Other brokers have a replica: the client has to find the leader again.
            code = ErrorCode.not_leader_or_follower
        topic, index = key
        raise KafkaError(code, f"no replica of {topic}-{index}")

    def led(self) -> Iterator[Partition]:
        """Iterate over the partitions that this broker leads."""
        return (
            each
            for each in tuple(self.partitions.values())
            if each.is_leader and not each.is_offline
        )

    def high_watermark(self, key: TopicPartition) -> int | None:
        """Return a partition's high watermark; None if it is not held."""
        partition = self.partitions.get(key)
        if partition is None or partition.is_offline:
            return None
        return partition.high_watermark

    def take_offline(self, keys: Iterable[TopicPartition]) -> None:
        """Stop fetchers and complete requests of partitions with closed logs."""
        for key in keys:
            self.fetchers.stop(key)
            partition = self.partitions.get(key)
            if partition is not None and partition.is_leader:
                for listener in self.leadership_listeners:
                    listener(partition, False)
            self.note_change(key)

    def take_log(self, key: TopicPartition, log: Log) -> None:
        """Replace a partition's log."""
        partition = self.partitions.get(key)
        if partition is not None:
            partition.take_log(log)

    # ---- purgatories ------------------------------------------------------------

    def note_append(self, partition: Partition) -> None:
        """Try the requests that wait for records or the high watermark."""
        if self.fetch_purgatory.size:
            self.fetch_purgatory.check_and_complete(partition.key)
        if self.produce_purgatory.size:
            self.produce_purgatory.check_and_complete(partition.key)

    def concerns_many(self, key: TopicPartition) -> bool:
        """Return whether so many requests are waiting that they are woken in steps."""
        return self.fetch_purgatory.size > 0 and self.fetch_purgatory.are_many(key)

    def noting_append(self, partition: Partition) -> Steps[None]:
        """Try the requests as `note_append`, in steps."""
        yield from self.fetch_purgatory.completing(partition.key)
        if self.produce_purgatory.size:
            self.produce_purgatory.check_and_complete(partition.key)

    def note_flush(self, partition: Partition) -> None:
        """Advance the high watermark after a flush, if this is still the leader."""
        if partition.is_leader and partition.advance_high_watermark():
            self.note_append(partition)

    def note_follower(self, partition: Partition, replica: int) -> None:
        """Propose to add a follower to the ISR if its fetch has caught up."""
        if replica not in partition.isr and partition.propose_expansion(replica):
            self.isr_changes.submit(partition)

    def note_change(self, key: TopicPartition) -> None:
        """Try all requests that wait for a partition."""
        for purgatory in self.purgatories:
            purgatory.check_and_complete(key)

    @property
    def purgatories(self) -> tuple[Purgatory, ...]:
        """The purgatories of all partitions."""
        return (
            self.produce_purgatory,
            self.fetch_purgatory,
            self.delete_records_purgatory,
        )

    # ---- LeaderAndIsr -----------------------------------------------------------

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        """Apply the controller's leaderships; errors are per partition."""
        if self._is_stale(request.controller_epoch):
            return LeaderAndIsrResponse(error_code=ErrorCode.stale_controller_epoch)
        return leadership_answer(
            [self._changed(request, *it) for it in states_of(request)]
        )

    async def change_leadership(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        """Apply the controller's leaderships, preemptibly, under the lock."""
        async with self.state_change_lock:
            if self._is_stale(request.controller_epoch):
                return LeaderAndIsrResponse(error_code=ErrorCode.stale_controller_epoch)
            errors: list[LeaderAndIsrPartitionError] = []
            for topic, state in states_of(request):
                if errors:
                    await preempt()
                errors.append(self._changed(request, topic, state))
            return leadership_answer(errors)

    def _is_stale(self, controller_epoch: int) -> bool:
        """Return whether this broker has received a later controller epoch."""
        return controller_epoch < self.controller_epoch

    def _changed(
        self,
        request: LeaderAndIsrRequest,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
    ) -> LeaderAndIsrPartitionError:
        return LeaderAndIsrPartitionError(
            topic_name=topic.topic_name,
            topic_id=topic.topic_id,
            partition_index=state.partition_index,
            error_code=self._change(request, topic, state),
        )

    def _change(
        self,
        request: LeaderAndIsrRequest,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
    ) -> ErrorCode:
        """Change one partition's leadership, and return its error code."""
        key = TopicPartition(topic.topic_name, state.partition_index)
        partition = self.partitions.get(key)
        if partition is not None and partition.is_offline:
            return ErrorCode.kafka_storage_error
        known_id = partition.topic_id if partition else self._logs.topic_id(key)
        if topic.topic_id and known_id and topic.topic_id != known_id:
            return ErrorCode.inconsistent_topic_id
        current_epoch = partition.leader_epoch if partition else NO_EPOCH
        if state.leader_epoch < current_epoch or (
            state.leader_epoch == current_epoch and not request.is_kraft_controller
        ):
            return ErrorCode.stale_controller_epoch
        if self.local_id not in state.replicas:
            return ErrorCode.unknown_topic_or_partition
        if partition is None:
            try:
                partition = self._create(key, topic.topic_id, is_new=state.is_new)
            except (OSError, LogStorageError, LogUnavailable) as error:
                self._note_refused(key, error, is_new=state.is_new)
                return ErrorCode.kafka_storage_error
            except KafkaError as error:
                return error.code
            self.offline.discard(key)
            self.without_room.discard(key)
        elif partition.topic_id is None:
            partition.topic_id = topic.topic_id
        self._lead_or_follow(partition, state)
        return ErrorCode.none

    def _note_refused(
        self, key: TopicPartition, error: Exception, *, is_new: bool
    ) -> None:
        """Record that a replica could not be created, and whether it may be later."""
        if not is_new:
            self.offline.add(key)
        if isinstance(error, LogUnavailable):
            self.without_room.discard(key)
        else:
            self.without_room.add(key)

    def _create(
        self, key: TopicPartition, topic_id: UUID | None, *, is_new: bool
    ) -> Partition:
        topic, index = key
        # The name becomes a part of a path, so it is checked again.
        check_name(topic)
        if index < 0:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        partition = self.partitions[key] = Partition(
            key,
            topic_id or self._logs.topic_id(key),
            self._logs.open_log(key, topic_id, is_new=is_new),
            local_id=self.local_id,
            min_insync=lambda: self._min_insync(topic),
            sync=self.sync_rules,
            high_watermark=self._logs.high_watermarks.get(key, 0),
        )
        return partition

    def _lead_or_follow(
        self, partition: Partition, state: LeaderAndIsrPartitionState
    ) -> None:
        led = partition.is_leader
        if state.leader == self.local_id:
            self.fetchers.stop(partition.key)
            partition.make_leader(state)
        else:
            partition.make_follower(state)
            self.fetchers.follow(partition)
        if led or partition.is_leader:
            for listener in self.leadership_listeners:
                listener(partition, partition.is_leader)
        self.note_change(partition.key)

    # ---- StopReplica ------------------------------------------------------------

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those with ``delete_partition``."""
        if self._is_stale(request.controller_epoch):
            return StopReplicaResponse(error_code=ErrorCode.stale_controller_epoch)
        return stop_answer([self._stopped(*it) for it in stops_of(request)])

    async def stop_under_lock(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop and delete replicas, preemptibly, under the lock."""
        async with self.state_change_lock:
            if self._is_stale(request.controller_epoch):
                return StopReplicaResponse(error_code=ErrorCode.stale_controller_epoch)
            errors: list[StopReplicaPartitionError] = []
            for key, state in stops_of(request):
                if errors:
                    await preempt()
                errors.append(self._stopped(key, state))
            return stop_answer(errors)

    def _stopped(
        self, key: TopicPartition, state: StopReplicaPartitionState
    ) -> StopReplicaPartitionError:
        return StopReplicaPartitionError(
            topic_name=key.topic,
            partition_index=state.partition_index,
            error_code=self._stop(key, state),
        )

    def _stop(self, key: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        partition = self.partitions.get(key)
        requested_epoch = state.leader_epoch
        if (
            partition is not None
            and requested_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE)
            and requested_epoch < partition.leader_epoch
        ):
            return ErrorCode.fenced_leader_epoch
        if state.delete_partition:
            return self.delete(key)
        # The replica and its role are kept.
        self.fetchers.stop(key)
        self.note_change(key)
        return ErrorCode.none

    def delete(self, key: TopicPartition) -> ErrorCode:
        """Remove a replica and its log, and complete the requests that wait for it.

        A replica in an offline directory is kept, since its log would come back with
        the directory.
        """
        held = self.partitions.get(key)
        if self._logs.may_be_offline(key) or (held is not None and held.is_offline):
            return ErrorCode.kafka_storage_error
        self.offline.discard(key)
        self.without_room.discard(key)
        self.fetchers.stop(key)
        partition = self.partitions.pop(key, None)
        if partition is not None and partition.is_leader:
            for listener in self.leadership_listeners:
                listener(partition, False)
        self.note_change(key)
        try:
            self._logs.delete_log(key)
        except OSError:
            return ErrorCode.kafka_storage_error
        return ErrorCode.none

    def check(self) -> None:
        """Assert that every partition is consistent and under its own key."""
        for key, partition in self.partitions.items():
            assert partition.key == key, (key, partition)
            partition.check()
        for purgatory in self.purgatories:
            purgatory.check()
