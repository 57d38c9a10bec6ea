"""A broker without its sockets: configuration, logs, replicas, groups, coordination.

A broker opens from bottom to top: the owner of the directories, the coordinator's
state, the logs, the leaderships, then the groups. Handlers call its methods.
Coordinator, disk, network and time are passed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from broker.authorization.acls import ResourcePattern
from broker.client.network_client import Connect
from broker.cluster.blocking import Blocking, call_here, carried_out
from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from broker.cluster.config_overrides import DescribedConfig
from broker.cluster.fetch_sessions import FetchSessions
from broker.cluster.metadata_cache import LiveBroker, MetadataCache
from broker.cluster.replica_manager import ReplicaManager
from broker.cluster.replication_quota import replication_quotas
from broker.cluster.topic_configs import describe_topic_configs
from broker.cluster.topic_settings import TopicSettings
from broker.config import (
    BROKER_RACK,
    DOORKEEPER_CLIENT_QUOTAS,
    DOORKEEPER_LOCK_INHERITANCE,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    BrokerConfig,
    Listener,
)
from broker.coordination.coordinator_roles import ConfigKind, Coordinator
from broker.coordination.resource_paths import GROUPS, resource_path
from broker.disk.directory_locks import DirectoryLocks
from broker.disk.identity import claim, draw_uuid
from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage
from broker.log.flush_times import FlushTimes
from broker.log.steps import Steps, run
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.periodic_task import Calls, CallsHere
from broker.node.alterations import Alterations
from broker.node.background import Duty, PlaneDuty
from broker.node.broker_calls_shell import BrokerCalls
from broker.node.configured_authorizer import authorizer_of
from broker.node.deletions import Deletions
from broker.node.flush_shell import QueuedFlushes, SharedFlush
from broker.node.found_logs import found_logs, log_loss, operators_fault, set_aside
from broker.node.group_coordination import group_duties, start_groups
from broker.node.group_topics import GroupTopics
from broker.node.hosts import Hosts, LookUp, look_up_here
from broker.node.listener_authentication import Authentication
from broker.node.maintenance import Maintenance
from broker.node.producer_id_blocks import ProducerIds
from broker.node.replication_shell import Replication, connect_nowhere
from broker.node.transaction_coordination import (
    Verification,
    connect_markers,
    start_transactions,
    transaction_duties,
)
from broker.node.transaction_markers import TransactionMarkers
from broker.node.transaction_verification import VerifyTransaction
from broker.protocol.errors import ErrorCode, LogDirsLost
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.sentinels import NO_EPOCH
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.hot import CurrentLeader
from broker.quotas.address_rates import AddressRates
from broker.quotas.client_quotas import ClientQuotas, client_windows
from broker.quotas.entity import USER, path_of, user_of
from broker.requests.internal_tasks import Submit, submit_here
from broker.requests.purgatory import Purgatory
from broker.shards.effects import Instant
from planes.lock import TaskLock
from planes.slices import preempt


class Broker:
    """The state of one broker; requests can be served once `open` has returned.

    ``now_ns`` is the clock of deadlines, ``now_ms`` the wall clock of records.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        coordinator: Coordinator,
        log_dirs: LogDirs,
        storage: Storage,
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
        rng: random.Random,
        blocking: Blocking = call_here,
        look_up: LookUp = look_up_here,
        threads: Calls | None = None,
        connect: Connect = connect_nowhere,
    ) -> None:
        self.config = config
        self.coordinator = coordinator
        self.authorizer = authorizer_of(config, now_ns)
        self.log_dirs = log_dirs
        self.now_ns = now_ns
        self.now_ms = now_ms
        self.blocking = blocking
        self.flush = SharedFlush(now_ms, blocking)
        self.flush_times = FlushTimes(now_ns)
        self.hosts = Hosts(look_up)
        self.alterations = Alterations(config, coordinator.admin, self.hosts)
        self.cluster_id: str | None = None
        self._threads = threads or CallsHere()
        # Called with the configuration after each change.
        self.config_listeners: list[Callable[[BrokerConfig], None]] = []
        self._static_config = config
        self.storage = storage
        self._locks = DirectoryLocks(storage, log_dirs)
        self.rng = rng
        self._settings = TopicSettings(
            coordinator.admin.configs_of,
            lambda: self.config,
            config.node_id,
            is_here=lambda topic: self.logs.has_logs_of(topic),
        )
        self.quotas = replication_quotas(lambda: self.config, self._settings, now_ns)
        self.client_quotas = ClientQuotas(config, now_ns)
        self.address_rates = AddressRates(
            client_windows(config), config[DOORKEEPER_CLIENT_QUOTAS]
        )
        self.producer_ids = ProducerIds(coordinator.admin)
        self.authentication = Authentication(
            config, coordinator.admin, now_ns=now_ns, now_ms=now_ms
        )
        self._connect = connect

    # ---- start and stop ---------------------------------------------------------

    def in_force(self, config: BrokerConfig) -> BrokerConfig:
        """Return this broker's ``config`` with its dynamic alterations.

        Raises `ConfigError`.
        """
        assert config is self._static_config
        with operators_fault(self._static_config):
            self._load()
        return self.config

    def open(
        self,
        listeners: Sequence[Listener],
        timer_moved: Callable[[], None] = lambda: None,
        submit: Submit = submit_here,
    ) -> None:
        """Open the logs, lead this broker's partitions, and load the groups.

        Clients receive ``listeners``. ``timer_moved`` is called when `next_expiry_ns`
        or the time of upkeep has become earlier. ``submit`` runs work as tasks of a
        plane. Raises `ConfigError`.
        """
        with operators_fault(self._static_config):
            if self.cluster_id is None:
                self._load()
            self._open(listeners, timer_moved, submit)

    def _load(self) -> None:
        """Check the owner of the directories, and load the alterations."""
        self._locks.take()
        self.cluster_id = claim(
            self.storage,
            self.log_dirs,
            self._static_config.node_id,
            lambda: draw_uuid(self.rng),
            of_cluster=self.coordinator.membership.cluster_id,
        )
        if self.coordinator.local is not None:
            self.coordinator.local.load()
        if self.authorizer is not None:
            self.authorizer.replace_all(self.coordinator.admin.acls)
        self.quotas_changed(None)
        self.config = self.alterations.load()

    def _open(
        self,
        listeners: Sequence[Listener],
        timer_moved: Callable[[], None],
        submit: Submit,
    ) -> None:
        config = self.config
        self._make_replicas(listeners, timer_moved)
        self.fetch_sessions = FetchSessions(
            config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], self.rng
        )
        threads = config[NUM_RECOVERY_THREADS_PER_DATA_DIR] * len(self.log_dirs.all)
        self.logs.open(partial(self._threads.run_all, threads=threads))
        if not self.log_dirs.online:
            raise OSError(str(LogDirsLost(self.log_dirs.offline)))
        if self.coordinator.local is not None:
            found = found_logs(self.logs)
            self._set_aside(self.coordinator.local.reconcile(found))
            users = self.authentication.first_users()
            self.coordinator.local.add_first_users(users)
        clock = self._clock
        self._group_flushes = QueuedFlushes(self.now_ms, self._threads, timer_moved)
        self.groups = start_groups(
            self.config,
            self.replicas,
            self._group_flushes,
            partitions=self.coordinator.admin.internal_partitions(GROUP_METADATA_TOPIC)
            or config[OFFSETS_TOPIC_NUM_PARTITIONS],
            clock=clock,
            rng=self.rng,
            topics=GroupTopics(self.metadata_cache),
            own_configs=self._group_configs,
            on_earlier_deadline=timer_moved,
        )
        self.markers = TransactionMarkers(
            self.replicas,
            self._group_flushes,
            self.groups,
            clock,
        )
        self._start_transactions(timer_moved)
        flush = self.flush.by_handler
        self.deletions = Deletions(
            self.logs, self.groups, flush, self.blocking, timer_moved
        )
        self.maintenance = Maintenance(
            self.logs,
            self.replicas,
            self.coordinator,
            lambda: self.config,
            self.quotas.moves,
            now_ns=self.now_ns,
            calls=self._threads,
            moved=timer_moved,
        )
        self.duties = self._duties(submit, timer_moved)
        self.upkeep_duty = Duty(
            "upkeep", self.maintenance.next_ns, self.maintenance.work
        )
        self.coordinator.membership.open(self)
        self.groups.load_all()
        self.transactions.load_all()

    def _start_transactions(self, timer_moved: Callable[[], None]) -> None:
        config, node_id = self.config, self._static_config.node_id
        # Requests that wait to retry adding partitions to a transaction.
        self.addition_purgatory = Purgatory("AddPartitionsToTxn", timer_moved)
        self.calls = BrokerCalls(
            f"broker-{node_id}-transactions",
            partial(self.metadata_cache.endpoint, config.inter_broker_listener_name),
            self._connect,
            self.rng,
        )
        self.transactions = start_transactions(
            config,
            self.replicas,
            self._group_flushes,
            partitions=self.coordinator.admin.internal_partitions(
                TRANSACTION_STATE_TOPIC
            )
            or config[TRANSACTION_STATE_LOG_NUM_PARTITIONS],
            clock=self._clock,
            transaction_version=lambda: (
                self.coordinator.admin.finalized_features.transaction_version
            ),
            on_earlier_deadline=timer_moved,
        )
        connect_markers(
            self.transactions,
            self.markers,
            self.metadata_cache,
            self.calls,
            config[REQUEST_TIMEOUT_MS],
        )
        self.verify_transaction: VerifyTransaction = Verification(
            self.transactions, self.metadata_cache, self.calls
        )

    def _clock(self) -> Instant:
        return Instant(self.now_ns(), self.now_ms())

    def _make_replicas(
        self, listeners: Sequence[Listener], timer_moved: Callable[[], None]
    ) -> None:
        config, node_id = self.config, self._static_config.node_id
        self.log_dirs.on_failure = timer_moved
        self.logs = LogManager(
            self.log_dirs,
            self.storage,
            config_of=self._settings.log_config,
            now_ms=self.now_ms,
            report=log_loss,
            on_topic_removed=self._settings.discard,
            flush_times=self.flush_times,
        )
        self.advertised = tuple(listeners)
        endpoints = {each.name: (each.host, each.port) for each in listeners}
        local = LiveBroker(id=node_id, endpoints=endpoints, rack=config[BROKER_RACK])
        self.metadata_cache = MetadataCache(local, controller_id=node_id)
        self.replicas = ReplicaManager(
            self.logs,
            local_id=node_id,
            min_insync=self._settings.min_insync,
            is_known=self.metadata_cache.has_partition,
            on_earlier_deadline=timer_moved,
            inherits=config[DOORKEEPER_LOCK_INHERITANCE],
        )
        self.replication = Replication(
            lambda: self.config,
            self.replicas,
            self.metadata_cache,
            registered_epoch=lambda: self.coordinator.membership.broker_epoch,
            connect=self._connect,
            flush=self.flush,
            lower=self.logs.lowering,
            blocking=self.blocking,
            quota=self.quotas.follower,
            now_ns=self.now_ns,
            now_ms=self.now_ms,
            rng=self.rng,
        )

    def close(self) -> None:
        """Flush and close all logs, so that the next start need not recover them.

        Raises `UncleanStop` if a disk fails.
        """
        # Writes of threads must not follow the writes below.
        self._threads.close()
        self.deletions.remove_offsets_now()
        try:
            self.logs.close(self.replicas.high_watermark, self._threads.run_all)
        finally:
            self._locks.release()

    def _set_aside(self, strays: Mapping[TopicPartition, str]) -> None:
        set_aside(self.logs, strays)
        # Topics adopted meanwhile were unknown when the logs were opened.
        self._settings.discard()
        for topic in self.logs.topics():
            run(self.logs.configure(topic))

    # ---- time -------------------------------------------------------------------

    def next_expiry_ns(self) -> int | None:
        """Return when the next call of `expire` is due."""
        if self.log_dirs.has_failed:
            return self.now_ns()
        due_ns = (duty.due_ns() for duty in self.duties)
        return min((at_ns for at_ns in due_ns if at_ns is not None), default=None)

    def expire(self, now_ns: int) -> None:
        """Run the duties that are due.

        Raises `LogDirsLost` when the last log directory has failed.
        """
        if self.log_dirs.has_failed:
            self._leave_failed_directories()
        for duty in self.duties:
            duty.run(now_ns)

    def _duties(
        self, submit: Submit, timer_moved: Callable[[], None]
    ) -> tuple[Duty | PlaneDuty, ...]:
        flushes, expiration = self._group_flushes, self.replication.expiration
        return (
            *(
                Duty(f"{each.name} purgatory", each.next_expiry_ns, each.expire)
                for each in (*self.replicas.purgatories, self.addition_purgatory)
            ),
            Duty("group flushes", flushes.next_ns, flushes.work),
            *group_duties(
                self.groups,
                self.deletions,
                submit=submit,
                now_ns=self.now_ns,
                moved=timer_moved,
            ),
            *transaction_duties(
                self.transactions,
                submit=submit,
                now_ns=self.now_ns,
                moved=timer_moved,
            ),
            Duty("isr expiration", expiration.next_ns, expiration.work),
        )

    def _leave_failed_directories(self) -> None:
        """Take the logs of failed directories out of service (KIP-112)."""
        for directory in self.log_dirs.take_failed():
            lost = self.logs.close_directory(directory)
            self.replicas.take_offline(lost)
            self.coordinator.membership.replicas_failed(lost)
        if not self.log_dirs.online:
            raise LogDirsLost(self.log_dirs.offline)

    # ---- configs ----------------------------------------------------------------

    def topic_configs(self, configs: Mapping[str, str]) -> list[DescribedConfig]:
        """Return all configs of a topic with the overrides ``configs``."""
        return describe_topic_configs(configs, self.config, self.alterations.written_as)

    def _group_configs(self, group_id: str) -> Mapping[str, str] | None:
        path = resource_path(GROUPS, group_id)
        return self.coordinator.admin.configs[ConfigKind.RESOURCE].get(path)

    async def topic_changed(self, name: str) -> None:
        """Apply the topic's changed configs."""
        self._settings.discard(name)
        for _ in self.logs.configure(name):
            await preempt()

    async def broker_configs_changed(self) -> None:
        """Apply the changed dynamic broker configs."""
        self.config = self.alterations.in_force()
        self._settings.discard()
        for listener in self.config_listeners:
            listener(self.config)
        for name in self.logs.topics():
            for _ in self.logs.configure(name):
                await preempt()
        for _ in self.replication.fetchers.deal_anew():
            await preempt()

    def acls_changed(self, patterns: Collection[ResourcePattern] | None) -> None:
        """Apply the changed entries of some patterns; None: of all."""
        if self.authorizer is None:
            return
        acls = self.coordinator.admin.acls
        if patterns is None:
            self.authorizer.replace_all(acls)
        else:
            for pattern in patterns:
                self.authorizer.put(pattern, acls.get(pattern, ()))

    def quotas_changed(self, entities: Collection[str] | None) -> None:
        """Apply the changed quotas of some entities, by path; None: of all."""
        configs = self.coordinator.admin.configs
        users, clients = configs[ConfigKind.USER], configs[ConfigKind.CLIENT]
        if entities is None:
            of_users = {path_of({USER: user}): it for user, it in users.items()}
            self.client_quotas.replace_all({**of_users, **clients})
            self.address_rates.replace_all(clients)
            return
        for entity in entities:
            user = user_of(entity)
            own = clients.get(entity, {}) if user is None else users.get(user, {})
            self.client_quotas.put(entity, own)
            self.address_rates.put(entity, own)

    # ---- commands of a coordinator ------------------------------------------------

    @property
    def controller_epoch(self) -> int:
        """The last controller epoch that this broker received."""
        return self.replicas.controller_epoch

    @property
    def state_change_lock(self) -> TaskLock:
        """The lock of changes of several replicas: Kafka's replicaStateChangeLock."""
        return self.replicas.state_change_lock

    def holds(self, key: TopicPartition, topic_id: UUID | None) -> bool:
        """Return whether this broker has the partition with this id (None: any)."""
        partition = self.replicas.partitions.get(key)
        if partition is not None:
            return topic_id in (None, partition.topic_id)
        if self.logs.may_be_offline(key):
            return True
        # A log without a topic id and without a partition is an interrupted creation.
        known = self.logs.topic_id(key)
        return key in self.logs.logs and (known is None or topic_id in (None, known))

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        """Lead and follow partitions."""
        return self.replicas.become_leader_or_follower(request)

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop or delete replicas."""
        return self.replicas.stop_replicas(request)

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Publish metadata to clients, unless it is from an old controller."""
        if request.controller_epoch < self.replicas.controller_epoch:
            return ErrorCode.stale_controller_epoch
        self._note_deleted(self.metadata_cache.update(request))
        return ErrorCode.none

    def updating_metadata(self, request: UpdateMetadataRequest) -> Steps[ErrorCode]:
        """Publish metadata to clients in steps, for a caller that holds the lock."""
        if request.controller_epoch < self.replicas.controller_epoch:
            return ErrorCode.stale_controller_epoch
        self._note_deleted((yield from self.metadata_cache.updating(request)))
        return ErrorCode.none

    def _note_deleted(self, deleted: list[TopicPartition]) -> None:
        if deleted:
            self.deletions.note(deleted)

    def led_with_others(self) -> Sequence[TopicPartition]:
        """Return the partitions led by this broker that have further replicas."""
        return [it.key for it in self.replicas.led() if len(it.replicas) > 1]

    async def settle_deletions(self) -> None:
        """Make removals of logs and of the groups' offsets for them durable."""
        await self.deletions.settle()

    async def checkpoint_deletions(self) -> None:
        """Remove deleted logs from the checkpoints, before their names are reused."""
        # Errors of the device are reported by the log manager.
        with suppress(OSError):
            await carried_out(self.logs.checkpointing_deletions(), self.blocking)

    def settle_deletions_now(self) -> None:
        """Settle deletions on this thread, at a start."""
        self.deletions.settle_now()

    async def is_meant(self, controller_epoch: int, broker_epoch: int) -> bool:
        """Return whether a controller's command is for this run of the broker.

        A broker epoch above the present one belongs to a registration whose response
        has not arrived yet (KIP-380). Such a command is executed; the new epoch takes
        effect with the response of ZooKeeper. A later controller epoch fences earlier
        controllers from now on, if the coordinator knows of its election. Otherwise the
        command is executed and its controller epoch ignored.
        """
        if NO_EPOCH < broker_epoch < await self.coordinator.membership.present_epoch():
            return False
        replicas = self.replicas
        if (
            controller_epoch > replicas.controller_epoch
            and await self.coordinator.membership.has_elected(controller_epoch)
        ):
            # Another command may have brought a later epoch meanwhile.
            latest = max(replicas.controller_epoch, controller_epoch)
            replicas.controller_epoch = latest
        return True

    # ---- queries of handlers ------------------------------------------------------

    def current_leader(self, key: TopicPartition) -> CurrentLeader | None:
        """Return the leader of a partition held here, if it has one."""
        partition = self.replicas.partitions.get(key)
        return None if partition is None else partition.current_leader()

    def check(self) -> None:
        """Assert the invariants of all parts."""
        self._settings.check()
        self.replicas.check()
        self.metadata_cache.check()
        self.groups.check()
        self.transactions.check()
        self.addition_purgatory.check()
