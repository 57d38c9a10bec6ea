"""A broker without its sockets: configuration, logs, replicas, groups, coordination.

It opens from bottom to top: whose directories these are, their logs, what the
coordinator remembers, then leadership of everything, then the groups. Handlers act on
it; time is handed in, and nothing here waits but for a flush strategy.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from uuid import UUID

from broker.cluster.embedded import EmbeddedCoordinator
from broker.cluster.fetch_sessions import FetchSessions
from broker.cluster.maintenance import Maintenance
from broker.cluster.metadata_cache import LiveBroker, MetadataCache
from broker.cluster.partition import NO_EPOCH, Key
from broker.cluster.registry import Registry
from broker.cluster.replica_manager import ReplicaManager
from broker.cluster.topic_configs import (
    ConfigSource,
    DescribedConfig,
    Synonym,
    describe_topic_configs,
    log_config,
    topic_value,
)
from broker.cluster.topics import GROUP_METADATA_TOPIC
from broker.config import (
    BROKER_RACK,
    DOORKEEPER_LOCK_INHERITANCE,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    BrokerConfig,
    Listener,
)
from broker.errors import ConfigError, ErrorCode
from broker.groups.messages import Instant
from broker.groups.offset_store import TopicPartition
from broker.groups.start import start_groups
from broker.log.checkpoints import MalformedCheckpoint
from broker.log.config import LogConfig
from broker.log.identity import claim
from broker.log.log import Log
from broker.log.manager import LogManager
from broker.log.storage import Storage
from broker.wire.controller.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.wire.controller.stop_replica import StopReplicaRequest, StopReplicaResponse
from broker.wire.controller.update_metadata import UpdateMetadataRequest
from planes.lock import TaskLock

# Makes a log durable; raises KAFKA_STORAGE_ERROR.
Flush = Callable[[Log], Awaitable[None]]


async def flush_here(log: Log) -> None:
    """Flush on this thread: for storage in memory, where it costs nothing."""
    log.flush()


class Broker:
    """The state of one broker. It can be served once `open` has returned.

    ``now_ns`` is the clock of deadlines, ``now_ms`` the wall clock of records.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        storage: Storage,
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
        rng: random.Random,
        flush: Flush = flush_here,
    ) -> None:
        self.config = config
        self.now_ns = now_ns
        self.now_ms = now_ms
        self.flush = flush
        # Called with the configuration whenever it has changed.
        self.config_listeners: list[Callable[[BrokerConfig], None]] = []
        self._static_config = config
        self._storage = storage
        self._rng = rng
        self._topic_settings: dict[str, tuple[LogConfig, int]] = {}
        self._producer_ids: Iterator[int] = iter(())

    # ---- start and stop ---------------------------------------------------------

    def open(
        self,
        listeners: Sequence[Listener],
        timer_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the logs, lead what there is to lead, and load the groups.

        ``listeners`` are what clients are told; ``timer_moved`` is called when
        `next_expiry_ns` has come nearer. Raises `ConfigError`.
        """
        try:
            self._open(listeners, timer_moved)
        except OSError as error:
            found = ",".join(self._static_config.log_dirs)
            expected = f"directories to read, to write and with room: {error}"
            raise ConfigError("log.dirs", found, expected) from error
        except MalformedCheckpoint as damage:
            # What it says of the logs cannot be guessed; nothing was changed.
            raise ConfigError(
                "log.dirs", str(damage), "files as a broker leaves them"
            ) from damage

    def _open(
        self, listeners: Sequence[Listener], timer_moved: Callable[[], None]
    ) -> None:
        config, node_id = self._static_config, self._static_config.node_id
        directories = config.log_dirs
        self.cluster_id = claim(self._storage, directories, node_id, self._new_id)
        self.logs = LogManager(
            directories, self._storage, config_of=self.log_config, now_ms=self.now_ms
        )
        self.replicas = ReplicaManager(
            self.logs,
            local_id=node_id,
            min_insync=self.min_insync,
            on_earlier_deadline=timer_moved,
            inherits=config[DOORKEEPER_LOCK_INHERITANCE],
        )
        endpoints = {each.name: (each.host, each.port) for each in listeners}
        local = LiveBroker(id=node_id, endpoints=endpoints, rack=config[BROKER_RACK])
        self.metadata_cache = MetadataCache(local, controller_id=node_id)
        self.fetch_sessions = FetchSessions(
            config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], self._rng
        )
        registry = Registry(self._storage, directories[0])
        self.coordinator = EmbeddedCoordinator(
            registry, self, broker_id=node_id, new_id=self._new_id
        )
        self.config = self._effective_config()
        self.logs.open()
        offsets_topic = self.coordinator.topics.get(GROUP_METADATA_TOPIC)
        self.groups = start_groups(
            self.config,
            self.replicas,
            partitions=len(offsets_topic.leader_epochs)
            if offsets_topic
            else config[OFFSETS_TOPIC_NUM_PARTITIONS],
            clock=lambda: Instant(self.now_ns(), self.now_ms()),
            rng=self._rng,
            on_earlier_deadline=timer_moved,
        )
        self.maintenance = Maintenance(
            self.logs, self.replicas, lambda: self.config, now_ns=self.now_ns()
        )
        self.coordinator.open(self._latest_epoch)
        self.groups.load_all()

    def close(self) -> None:
        """Flush and close all logs, so that the next start need not recover them.

        Raises `UncleanStop` if a disk refuses.
        """
        self.logs.close(self.replicas.high_watermarks())

    def _new_id(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)

    def _latest_epoch(self, key: Key) -> int:
        log = self.logs.logs.get(key)
        return NO_EPOCH if log is None else log.epochs.latest

    # ---- time -------------------------------------------------------------------

    def next_expiry_ns(self) -> int | None:
        """Return when `expire` has something to do."""
        due_ns = (
            *(each.next_expiry_ns() for each in self.replicas.purgatories),
            self.groups.next_event_ns(),
            self.maintenance.next_ns(),
        )
        return min(at_ns for at_ns in due_ns if at_ns is not None)

    def expire(self, now_ns: int) -> None:
        """Complete what has waited long enough, and do a piece of what is due."""
        for purgatory in self.replicas.purgatories:
            purgatory.expire(now_ns)
        due_ns = self.groups.next_event_ns()
        # What loads is due at whatever moment it is asked: after ``now_ns``.
        if due_ns is not None and due_ns <= self.now_ns():
            self.groups.work()
        if self.maintenance.next_ns() <= now_ns:
            self.maintenance.work(now_ns)

    # ---- configs ----------------------------------------------------------------

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs."""
        return self._settings(topic)[0]

    def min_insync(self, topic: str) -> int:
        """Return ``min.insync.replicas`` of a topic."""
        return self._settings(topic)[1]

    def _settings(self, topic: str) -> tuple[LogConfig, int]:
        known = self._topic_settings.get(topic)
        if known is None:
            found = self.coordinator.topics.get(topic)
            configs: Mapping[str, str] = found.configs if found else {}
            known = self._topic_settings[topic] = (
                log_config(configs, self.config),
                topic_value("min.insync.replicas", configs, self.config),
            )
        return known

    def topic_configs(self, configs: Mapping[str, str]) -> list[DescribedConfig]:
        """Return all configs of a topic that overrides ``configs``."""
        return describe_topic_configs(configs, self.config, self.written_as)

    def written_as(self, key: str) -> list[Synonym]:
        """Return what the broker's key was set to and where, the strongest first."""
        dynamic = self.coordinator.broker_configs
        own, every = dynamic.get(str(self.replicas.local_id), {}), dynamic.get("", {})
        return [
            Synonym(key, configs[key], source)
            for configs, source in (
                (own, ConfigSource.DYNAMIC_BROKER_CONFIG),
                (every, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
                (self._static_config.written, ConfigSource.STATIC_BROKER_CONFIG),
            )
            if key in configs
        ]

    def topic_changed(self, name: str) -> None:
        """Take the topic's configs into effect."""
        self._topic_settings.pop(name, None)
        self.logs.configure(name)

    def broker_configs_changed(self) -> None:
        """Take the dynamic broker configs into effect."""
        self.config = self._effective_config()
        self._topic_settings.clear()
        for name in {name for name, _ in self.logs.logs}:
            self.logs.configure(name)
        for listener in self.config_listeners:
            listener(self.config)

    def _effective_config(self) -> BrokerConfig:
        dynamic = self.coordinator.broker_configs
        own = dynamic.get(str(self._static_config.node_id), {})
        changes = {**dynamic.get("", {}), **own}
        return self._static_config.updated(changes) if changes else self._static_config

    # ---- what a coordinator commands ----------------------------------------------

    @property
    def controller_epoch(self) -> int:
        """The last controller epoch that this broker heard of."""
        return self.replicas.controller_epoch

    @property
    def state_change_lock(self) -> TaskLock:
        """What a change of several replicas holds: Kafka's replicaStateChangeLock."""
        return self.replicas.state_change_lock

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        """Lead and follow partitions."""
        return self.replicas.become_leader_or_follower(request)

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop or delete replicas."""
        return self.replicas.stop_replicas(request)

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Tell clients this from now on, unless an old controller says it."""
        if request.controller_epoch < self.replicas.controller_epoch:
            return ErrorCode.stale_controller_epoch
        self.replicas.controller_epoch = request.controller_epoch
        deleted = self.metadata_cache.update(request)
        self.groups.offsets.delete_topics(TopicPartition(*key) for key in deleted)
        return ErrorCode.none

    async def update_metadata_under_lock(
        self, request: UpdateMetadataRequest
    ) -> ErrorCode:
        """Tell clients this between two state changes, as Kafka does."""
        async with self.state_change_lock:
            return self.update_metadata(request)

    def is_stale(self, broker_epoch: int) -> bool:
        """Tell whether a request is addressed to an earlier life of this broker."""
        return NO_EPOCH < broker_epoch < self.coordinator.broker_epoch

    # ---- what handlers ask --------------------------------------------------------

    def current_leader(self, key: Key) -> tuple[int, int] | None:
        """Return (leader, epoch) of a partition held here, if it has a leader."""
        partition = self.replicas.partitions.get(key)
        if partition is None or partition.leader < 0:
            return None
        return partition.leader, partition.leader_epoch

    async def next_producer_id(self) -> int:
        """Return an id that no producer was ever given; raise `KafkaError`."""
        producer_id = next(self._producer_ids, None)
        while producer_id is None:
            self._producer_ids = iter(await self.coordinator.producer_id_block())
            producer_id = next(self._producer_ids, None)
        return producer_id

    def check(self) -> None:
        """Assert that all parts are sound."""
        self.replicas.check()
        self.metadata_cache.check()
        self.groups.check()
