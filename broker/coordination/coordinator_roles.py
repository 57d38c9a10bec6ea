"""The interface of a coordinator by role, and the commands that it gives a broker.

A `Coordinator` holds the state that one broker cannot know alone, in three roles:

* `AdminManager` stores the cluster's metadata: topics, configs, producer ids. Any
  broker serves it. Further metadata of the cluster (credentials, ACLs) belongs here.
* `Membership` is this broker's part in the cluster: registration, epochs, shutdown.
* `ControllerApi` decides for the whole cluster; only the controller serves it.

`LocalState` is a fourth role, of a coordinator that stores the metadata on the broker's
own disks. Broker and coordinator communicate by Kafka's controller requests
(`CoordinatedBroker`): a decision of this process and one received over the wire change
the same state by the same path. Verbs are coroutines where another implementation has
to wait for a quorum.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from broker.authorization.acls import AclEntry, ResourcePattern
from broker.cluster.cluster_topics import Topic
from broker.cluster.metadata_cache import MetadataCache
from broker.config import BrokerConfig, Listener
from broker.controller.assignment import ReplicaAssignment
from broker.controller.elections import ElectionType
from broker.controller.isr_proposals import IsrProposal, Judgement
from broker.coordination.features import FeatureUpdate, FinalizedFeatures
from broker.log.steps import Steps
from broker.observation.metric import Metric
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.topic_partition import TopicPartition
from broker.quotas.entity import USER, path_of
from planes.lock import TaskLock

# Values set, by key.
Configs: TypeAlias = Mapping[str, str]
# From the present entries of a pattern to the new ones.
AlterAcls: TypeAlias = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]


class ConfigKind(enum.StrEnum):
    """A kind of configs but topics' own, by its key in the registry of one broker.

    Names are ids of brokers as text, "" being the default of all; users, who have SCRAM
    credentials by mechanism, and quotas; paths of all other entities with quotas
    (`broker.quotas.entity`); paths of groups and client-metrics subscriptions
    (`broker.coordination.resource_paths`).
    """

    BROKER = "broker_configs"
    USER = "user_configs"
    CLIENT = "client_configs"
    RESOURCE = "resource_configs"


class BrokerRack(NamedTuple):
    """A live broker, and the rack that it stands in, if that is known."""

    id: int
    rack: str | None = None


class Quorum(NamedTuple):
    """The metadata quorum of a cluster of one: its only voter is the leader.

    ``epoch`` grows with each start, ``end_offset`` with each stored change.
    """

    leader: int
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create, checked already; ``assignment`` is replicas by partition."""

    name: str
    assignment: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """The state of one partition on disk; -1 for an unknown epoch or producer."""

    topic_id: UUID | None
    is_empty: bool
    latest_epoch: int
    latest_producer_id: int


class CoordinatedBroker(Protocol):
    """A broker's side towards its coordinator: commands, and the state it may read."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration that is in force."""

    @property
    def advertised(self) -> Sequence[Listener]:
        """The addresses at which clients and brokers reach the broker."""

    @property
    def metadata_cache(self) -> MetadataCache:
        """The broker's metadata for clients."""

    @property
    def controller_epoch(self) -> int:
        """The last controller epoch that the broker received."""

    @property
    def state_change_lock(self) -> TaskLock:
        """The lock of changes of several replicas, so that no other comes between."""

    def holds(self, key: TopicPartition, topic_id: UUID | None) -> bool:
        """Return whether the broker has this partition; None: of any topic id."""

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        """Lead and follow partitions."""

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop or delete replicas."""

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Publish metadata to clients."""

    def updating_metadata(self, request: UpdateMetadataRequest) -> Steps[ErrorCode]:
        """Do as `update_metadata`, in steps, for a caller that holds the lock."""

    async def settle_deletions(self) -> None:
        """Make durable that logs are gone, and that groups forgot their offsets.

        Raises KAFKA_STORAGE_ERROR.
        """

    async def forget_deleted_logs(self) -> None:
        """Take deleted logs out of the checkpoints, before their names come again."""

    def led_with_others(self) -> Sequence[TopicPartition]:
        """Return the led partitions that have other replicas, too."""

    def settle_deletions_now(self) -> None:
        """Do the same at once, at a start. Raises KAFKA_STORAGE_ERROR or OSError."""

    def acls_changed(self, patterns: Collection[ResourcePattern] | None) -> None:
        """Take the entries of some patterns into effect; None: of all."""

    def quotas_changed(self, entities: Collection[str] | None) -> None:
        """Take the quotas of some entities into effect, by path; None: of all."""

    async def topic_changed(self, name: str) -> None:
        """Take the topic's configs into effect."""

    async def broker_configs_changed(self) -> None:
        """Take the dynamic broker configs into effect."""


async def put_into_effect(
    broker: CoordinatedBroker, kind: ConfigKind, name: str
) -> None:
    """Take changed configs into effect; those of resources are read at each use."""
    if kind is ConfigKind.BROKER:
        await broker.broker_configs_changed()
    elif kind is ConfigKind.USER:
        broker.quotas_changed([path_of({USER: name})])
    elif kind is ConfigKind.CLIENT:
        broker.quotas_changed([name])


class AdminManager(Protocol):
    """The cluster's topics, configs and producer ids; errors are `KafkaError`.

    Kafka's ``ZkAdminManager``. Every write is durable before its effect is visible.
    """

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist, by name: a view that changes with them."""

    @property
    def configs(self) -> Mapping[ConfigKind, Mapping[str, Configs]]:
        """Configs by kind and name; names without any may be missing."""

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """The access control lists, by pattern: a view that changes with them."""

    @property
    def finalized_features(self) -> FinalizedFeatures:
        """The finalized levels of features."""

    def configs_of(self, topic: str) -> Mapping[str, str] | None:
        """Return a topic's own configs; None if it is unknown."""

    def internal_partitions(self, topic: str) -> int | None:
        """Return an internal topic's partition count at the start; None: no topic."""

    async def begin_topic(self, new: NewTopic) -> ErrorCode:
        """Begin to create a topic, without waiting for others.

        Returns the error that Kafka answers to a request that made it do so.
        """

    async def create_topic(self, new: NewTopic, timeout_ms: int = 0) -> Topic:
        """Create a topic; raise TOPIC_ALREADY_EXISTS.

        Waits at most ``timeout_ms`` until brokers lead it, then raises
        REQUEST_TIMED_OUT; the topic is created all the same. Deletions and new
        partitions wait in the same way.
        """

    async def delete_topic(self, name: str, timeout_ms: int = 0) -> None:
        """Delete a topic; raise UNKNOWN_TOPIC_OR_PARTITION."""

    async def create_partitions(
        self,
        name: str,
        first: int,
        assignment: tuple[tuple[int, ...], ...],
        timeout_ms: int = 0,
    ) -> bool:
        """Add partitions from ``first`` on; ``assignment`` is that of the new ones.

        Returns False, and does nothing, if the topic has another number of partitions
        than ``first``: it has changed meanwhile.
        """

    async def set_topic_configs(
        self, name: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace a topic's configs.

        Returns False, and does nothing, if they are not ``instead_of`` any more: they
        were altered meanwhile, and the caller reads them again. None: any.
        """

    async def set_configs(
        self,
        kind: ConfigKind,
        name: str,
        configs: Configs,
        instead_of: Configs | None = None,
    ) -> bool:
        """Replace configs of another kind in that way.

        Raises INVALID_REQUEST where those of resources are not stored.
        """

    async def alter_acls(
        self, changes: Mapping[ResourcePattern, AlterAcls]
    ) -> Mapping[ResourcePattern, KafkaError]:
        """Replace the entries of patterns; return those that failed.

        An alteration receives the present entries and returns the new ones; it may be
        called again where others have altered them meanwhile.
        """

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validates_only: bool
    ) -> None:
        """Finalize levels of supported features, all of them or none.

        Raises INVALID_UPDATE_VERSION, or INVALID_REQUEST where no level is stored.
        """

    async def producer_id_block(self) -> range:
        """Reserve producer ids that are never given twice."""


class Membership(Protocol):
    """One broker's part in the cluster; errors are `KafkaError`.

    `prepare` comes first, then `open`; everything else may be called afterwards.
    """

    async def prepare(self) -> None:
        """Learn what others know of the cluster.

        :raises ConfigError: if they do not answer, or do not take this broker.
        """

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, None if the broker's directories know it."""

    def open(self, broker: CoordinatedBroker) -> None:
        """Begin a new broker epoch, and command ``broker`` from now on.

        Leader epochs go on above those found: another controller may have raised them
        beyond the stored ones. Raises OSError.
        """

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration (KIP-380); it grows with starts."""

    async def present_epoch(self) -> int:
        """Return it once there is one; for handlers."""

    async def has_elected(self, controller_epoch: int) -> bool:
        """Return whether a controller of this epoch is known to have been elected."""

    def live_brokers(self) -> Sequence[BrokerRack]:
        """Return the brokers that replicas can be placed on, by id."""

    async def learn_topics(self, names: Iterable[str]) -> None:
        """Learn the configs of topics of which the broker is about to get replicas."""

    def replicas_failed(self, lost: Sequence[TopicPartition]) -> None:
        """Learn that replicas of the broker are offline with their directory."""

    def start_again(self, refused: Sequence[TopicPartition]) -> None:
        """Command the replicas again that the broker refused for lack of room."""

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Take part in the cluster until cancelled; ``billed`` is entered for work."""

    async def withdraw(self) -> None:
        """Move the broker's leaderships elsewhere, as it is about to stop."""

    async def leave(self) -> None:
        """Deregister the broker; `run` is over then."""

    def metrics(self) -> Iterator[Metric | None]:
        """Iterate over the coordinator's metrics of the cluster."""


class ControllerApi(Protocol):
    """Decisions of the cluster's controller; all others raise NOT_CONTROLLER."""

    def check_is_controller(self) -> None:
        """Raise NOT_CONTROLLER unless this broker decides for the cluster."""

    def quorum(self) -> Quorum:
        """Return the metadata quorum; raise UNSUPPORTED_VERSION if there is none."""

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> Sequence[TopicPartition]:
        """Move leaderships off a broker that stops, as far as other replicas allow.

        Returns those that remain of partitions with other replicas. Raises
        BROKER_NOT_AVAILABLE and STALE_BROKER_EPOCH.
        """

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic."""

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        proposals: Mapping[TopicPartition, IsrProposal],
    ) -> Mapping[TopicPartition, Judgement]:
        """Judge a leader's ISR proposals; raise STALE_BROKER_EPOCH."""

    async def elect_leaders(
        self,
        keys: Collection[TopicPartition] | None,
        kind: ElectionType,
        timeout_ms: int = 0,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Elect leaders of partitions, None meaning all; return each one's outcome."""

    async def alter_partition_reassignments(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        keep_replication_factor: bool = False,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Begin reassignments, or with None cancel them; return the refusals."""

    def reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Return the reassignments that are under way."""


class LocalState(Protocol):
    """The cluster's metadata on the broker's own disks.

    `load` comes before the logs are opened with their topics' configs, `reconcile`
    after that, and both before `Membership.open`.
    """

    def load(self) -> None:
        """Load the stored state; raise OSError or `MalformedCheckpoint`."""

    def reconcile(
        self, found: Mapping[TopicPartition, FoundLog]
    ) -> Mapping[TopicPartition, str]:
        """Compare the stored state with the logs on disk.

        Unknown topics are added to it. Returns the logs that belong to no topic, each
        with the reason, for the broker to set aside.
        """

    def add_first_users(self, configs: Mapping[str, Configs]) -> None:
        """Add configs of users at a start, where they have none of the name.

        Raises OSError.
        """

    @property
    def needs_compaction(self) -> bool:
        """Return whether `compaction` has something to do."""

    def compaction(self) -> Steps[None]:
        """Store the same state in less space; raise OSError. One at a time."""


@dataclass(frozen=True, kw_only=True)
class Coordinator:
    """The roles of one coordinator; ``local`` is None if ZooKeeper stores the state."""

    admin: AdminManager
    membership: Membership
    controller: ControllerApi
    local: LocalState | None = None
