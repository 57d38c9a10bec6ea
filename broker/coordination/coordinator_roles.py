"""The interface of a coordinator by role, and its commands to a broker.

A `Coordinator` holds the state of the cluster, in three roles:

* `AdminManager` stores the cluster's metadata: topics, configs, producer ids. Every
  broker serves it. Further metadata of the cluster (credentials, ACLs) belongs here.
* `Membership` is this broker's part in the cluster: registration, epochs, shutdown.
* `ControllerApi` decides for the whole cluster; only the controller serves it.

`LocalState` is a fourth role, of a coordinator that stores the metadata on the broker's
own disks. Broker and coordinator communicate by Kafka's controller requests
(`CoordinatedBroker`). Local decisions and requests received over the wire therefore
change the same state by the same path. Methods are coroutines if some implementation
has to wait for a quorum.
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

# Config values that were set explicitly, by key.
Configs: TypeAlias = Mapping[str, str]
# Maps the present entries of a pattern to the new entries.
AlterAcls: TypeAlias = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]


class ConfigKind(enum.StrEnum):
    """A kind of configs other than topic configs, by its key in the registry.

    Names are, by kind: ids of brokers as text, "" being the default of all; users, with
    their quotas and SCRAM credentials by mechanism; paths of all other entities with
    quotas (`broker.quotas.entity`); paths of groups and client-metrics subscriptions
    (`broker.coordination.resource_paths`).
    """

    BROKER = "broker_configs"
    USER = "user_configs"
    CLIENT = "client_configs"
    RESOURCE = "resource_configs"


class BrokerRack(NamedTuple):
    """A live broker and its rack, if known."""

    id: int
    rack: str | None = None


class Quorum(NamedTuple):
    """The metadata quorum of a single-broker cluster: the only voter is the leader.

    ``epoch`` grows with each start, ``end_offset`` with each stored change.
    """

    leader: int
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A validated topic to create; ``assignment`` is the replicas by partition."""

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
    """The interface of a broker for its coordinator: commands and readable state."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration in effect."""

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
        """The lock that makes changes of several replicas atomic."""

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
        """Publish metadata to clients in steps, for a caller that holds the lock."""

    async def settle_deletions(self) -> None:
        """Make removals of logs and of the groups' offsets for them durable.

        Raises KAFKA_STORAGE_ERROR.
        """

    async def checkpoint_deletions(self) -> None:
        """Remove deleted logs from the checkpoints, before their names are reused."""

    def led_with_others(self) -> Sequence[TopicPartition]:
        """Return the led partitions that have further replicas."""

    def settle_deletions_now(self) -> None:
        """Settle deletions at once, at a start.

        Raises KAFKA_STORAGE_ERROR or OSError.
        """

    def acls_changed(self, patterns: Collection[ResourcePattern] | None) -> None:
        """Apply the changed entries of some patterns; None: of all."""

    def quotas_changed(self, entities: Collection[str] | None) -> None:
        """Apply the changed quotas of some entities, by path; None: of all."""

    async def topic_changed(self, name: str) -> None:
        """Apply the topic's changed configs."""

    async def broker_configs_changed(self) -> None:
        """Apply the changed dynamic broker configs."""


async def put_into_effect(
    broker: CoordinatedBroker, kind: ConfigKind, name: str
) -> None:
    """Apply changed configs; configs of resources are read at each use."""
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
        """The existing topics by name: a live view."""

    @property
    def configs(self) -> Mapping[ConfigKind, Mapping[str, Configs]]:
        """Configs by kind and name; names without configs may be missing."""

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """The access control lists by pattern: a live view."""

    @property
    def finalized_features(self) -> FinalizedFeatures:
        """The finalized levels of features."""

    def configs_of(self, topic: str) -> Mapping[str, str] | None:
        """Return a topic's own configs; None if the topic is unknown."""

    def internal_partitions(self, topic: str) -> int | None:
        """Return an internal topic's partition count at the start; None: no topic."""

    async def begin_topic(self, new: NewTopic) -> ErrorCode:
        """Begin to create a topic, without waiting for other brokers.

        Returns the error that Kafka returns for a request that triggers the creation.
        """

    async def create_topic(self, new: NewTopic, timeout_ms: int = 0) -> Topic:
        """Create a topic; raise TOPIC_ALREADY_EXISTS.

        Waits at most ``timeout_ms`` until brokers lead it, then raises
        REQUEST_TIMED_OUT; the topic is created nevertheless. `delete_topic` and
        `create_partitions` wait in the same way.
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
        """Add partitions from ``first`` on, with their replicas in ``assignment``.

        Returns False, and does nothing, if the number of partitions is not ``first``:
        the topic has changed meanwhile.
        """

    async def set_topic_configs(
        self, name: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace a topic's configs if they still equal ``instead_of`` (None: any).

        Returns False, and does nothing, if they have been altered meanwhile; the caller
        reads them again.
        """

    async def set_configs(
        self,
        kind: ConfigKind,
        name: str,
        configs: Configs,
        instead_of: Configs | None = None,
    ) -> bool:
        """Replace configs of another kind, as `set_topic_configs` does.

        Raises INVALID_REQUEST if configs of resources are not supported.
        """

    async def alter_acls(
        self, changes: Mapping[ResourcePattern, AlterAcls]
    ) -> Mapping[ResourcePattern, KafkaError]:
        """Replace the entries of patterns; return the failures.

        An alteration receives the present entries and returns the new entries. It may
        be called again after a concurrent change.
        """

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validates_only: bool
    ) -> None:
        """Finalize levels of supported features, all of them or none.

        Raises INVALID_UPDATE_VERSION, or INVALID_REQUEST if levels are not supported.
        """

    async def producer_id_block(self) -> range:
        """Reserve a block of producer ids, which is never allocated again."""


class Membership(Protocol):
    """A broker's part in the cluster; errors are `KafkaError`.

    `prepare` is called first, then `open`; all other methods afterwards.
    """

    async def prepare(self) -> None:
        """Read the state of the cluster.

        :raises ConfigError: if the cluster does not respond or rejects this broker.
        """

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None if the broker's directories store it."""

    def open(self, broker: CoordinatedBroker) -> None:
        """Begin a new broker epoch, and command ``broker`` from now on.

        New leader epochs exceed those in the logs, because another controller may have
        raised them beyond the stored epochs. Raises OSError.
        """

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration (KIP-380); it grows with starts."""

    async def present_epoch(self) -> int:
        """Wait for the broker epoch and return it; for handlers."""

    async def has_elected(self, controller_epoch: int) -> bool:
        """Return whether a controller of this epoch is known to have been elected."""

    def live_brokers(self) -> Sequence[BrokerRack]:
        """Return the brokers that replicas can be placed on, by id."""

    async def read_topic_configs(self, names: Iterable[str]) -> None:
        """Read the configs of topics whose replicas the broker is about to receive."""

    def replicas_failed(self, lost: Sequence[TopicPartition]) -> None:
        """Handle replicas of the broker that are offline with their directory."""

    def start_again(self, refused: Sequence[TopicPartition]) -> None:
        """Command the replicas again that the broker refused for lack of disk space."""

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Run the membership until cancelled; its CPU is used within ``billed``."""

    async def withdraw(self) -> None:
        """Move the broker's leaderships to other brokers before it stops."""

    async def leave(self) -> None:
        """Deregister the broker, which ends `run`."""

    def metrics(self) -> Iterator[Metric | None]:
        """Iterate over the coordinator's metrics of the cluster."""


class ControllerApi(Protocol):
    """Decisions of the cluster's controller; other brokers raise NOT_CONTROLLER."""

    def check_is_controller(self) -> None:
        """Raise NOT_CONTROLLER unless this broker is the controller."""

    def quorum(self) -> Quorum:
        """Return the metadata quorum; raise UNSUPPORTED_VERSION if there is none."""

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> Sequence[TopicPartition]:
        """Move leaderships off a stopping broker, as far as other replicas allow.

        Returns the partitions with other replicas that it still leads. Raises
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
        """Accept or reject a leader's ISR proposals; raise STALE_BROKER_EPOCH."""

    async def elect_leaders(
        self,
        keys: Collection[TopicPartition] | None,
        kind: ElectionType,
        timeout_ms: int = 0,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Elect leaders of partitions (None: of all); return the outcomes."""

    async def alter_partition_reassignments(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        keep_replication_factor: bool = False,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Begin reassignments, or cancel them (None); return the outcomes."""

    def reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Return the reassignments in progress."""


class LocalState(Protocol):
    """The cluster's metadata on the broker's own disks.

    `load` is called before the logs are opened with their topics' configs, `reconcile`
    afterwards, and both before `Membership.open`.
    """

    def load(self) -> None:
        """Load the stored state; raise OSError or `MalformedCheckpoint`."""

    def reconcile(
        self, found: Mapping[TopicPartition, FoundLog]
    ) -> Mapping[TopicPartition, str]:
        """Compare the stored state with the logs on disk.

        Unknown topics are added to the state. Returns the logs without a topic, each
        with the reason; the broker sets them aside.
        """

    def add_first_users(self, configs: Mapping[str, Configs]) -> None:
        """Add configs of users at a start, unless they are set already.

        Raises OSError.
        """

    @property
    def needs_compaction(self) -> bool:
        """Return whether `compaction` would save space."""

    def compaction(self) -> Steps[None]:
        """Store the same state in less space; raise OSError. Not reentrant."""


@dataclass(frozen=True, kw_only=True)
class Coordinator:
    """The roles of one coordinator; ``local`` is None if ZooKeeper stores the state."""

    admin: AdminManager
    membership: Membership
    controller: ControllerApi
    local: LocalState | None = None
