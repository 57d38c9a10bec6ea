"""The coordinator of a broker that is a member of a cluster under ZooKeeper.

The broker that receives a request about topics and configs writes Kafka's znodes, where
the controller sees the change. Decisions of a controller alone go to the core of this
broker's term, where it is controller; otherwise the answer is NOT_CONTROLLER. A member
leads nothing, and deletes nothing, until a controller commands it.
"""

from __future__ import annotations

import random
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import inf
from typing import Final, TypeVar
from uuid import UUID

import trio

from broker.client.network_client import Connect
from broker.client.signals import Changes
from broker.cluster.metadata_cache import NO_CONTROLLER
from broker.cluster.topics import Topic
from broker.config import CONTROLLED_SHUTDOWN_ENABLE, BrokerConfig
from broker.controller.alter_partition import IsrProposal, Judgement
from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.controller.controller import KafkaController
from broker.controller.decisions import Decisions
from broker.controller.elections import ElectionType
from broker.coordination.controller_events import ControllerState
from broker.coordination.coordinator import (
    BrokerRack,
    Configs,
    CoordinatedBroker,
    FoundLog,
    NewTopic,
)
from broker.coordination.zookeeper import topic_writes
from broker.coordination.zookeeper.cluster_discovery import join
from broker.coordination.zookeeper.configs import broker_entity
from broker.coordination.zookeeper.controlled_shutdown import hand_over
from broker.coordination.zookeeper.election import latest_epoch
from broker.coordination.zookeeper.governing import Governing
from broker.coordination.zookeeper.handler_tasks import HandlerTasks
from broker.coordination.zookeeper.known_topics import KnownTopics
from broker.coordination.zookeeper.member import Member
from broker.coordination.zookeeper.retrying import RetryingZnodes, in_session
from broker.coordination.zookeeper.session_loop import SessionLoop
from broker.log.steps import Steps
from broker.observation.metric import Metric
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.sentinels import NO_EPOCH, NO_LEADER
from broker.protocol.topic_partition import TopicPartition
from broker.zookeeper.session import ZooKeeperSession
from planes.slices import STEP_ITEMS, in_steps

R = TypeVar("R")

# Creations that requests have begun: the most at a time, and how long they are tried
# while ZooKeeper is away. Clients that still want a topic then ask again.
_BEGUN_MAX: Final = 1000
_BEGUN_S: Final = 30.0
# Time-outs for ZooKeeper: of a request that names no time of its own, and of one that
# waits for nothing.
_WRITE_MS: Final = 30_000
_NO_TIME_MS: Final = 1_000


class ZooKeeperCoordinator:
    """One member, ``config.node_id``.

    ``open_session`` begins a session with ZooKeeper, ``connect`` reaches other brokers,
    ``new_id`` draws ids of topics, ``now_ms`` is the wall clock, ``now_ns`` the other.
    """

    _broker: CoordinatedBroker

    def __init__(
        self,
        config: BrokerConfig,
        *,
        open_session: Callable[[], ZooKeeperSession],
        connect: Connect,
        new_id: Callable[[], UUID],
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._id = config.node_id
        self.cluster_id: str | None = None
        self.offsets_partitions: int | None = None
        self._config = config
        self._open_session = open_session
        self._connect = connect
        self._new_id = new_id
        self._rng = rng
        self._supervisor = Supervisor()
        self._member = Member(
            config,
            connect=connect,
            new_id=new_id,
            now_ns=now_ns,
            now_ms=now_ms,
            rng=rng,
            supervisor=self._supervisor,
        )
        self._configs = self._member.configs
        self._membership = SessionLoop(self._member, open_session)
        self._tasks = HandlerTasks(self._supervisor)
        # Names of topics whose creation has begun, for Metadata and FindCoordinator.
        self._begun: set[str] = set()
        self._told = Changes()
        self._topics: Mapping[str, Topic] = {}

    # ---- before anything is open ------------------------------------------------

    async def prepare(self) -> None:
        """Read the cluster's id and its configs; raise `ConfigError`."""
        self.cluster_id, self.offsets_partitions = await join(
            self._open_session, self._configs, self._config, self._new_id
        )

    def load(self) -> None:
        """There is nothing on disk to learn from."""

    def reconcile(
        self, found: Mapping[TopicPartition, FoundLog]
    ) -> Mapping[TopicPartition, str]:
        """Leave every log as it is, as Kafka does under ZooKeeper."""
        return {}

    @property
    def remembers_at_length(self) -> bool:
        """ZooKeeper remembers."""
        return False

    def compaction(self) -> Steps[None]:
        """There is nothing to be written in less room."""
        yield from ()

    def open(self, broker: CoordinatedBroker) -> None:
        """Command nothing: the controller will."""
        self._broker = self._member.broker = broker
        cache = broker.metadata_cache
        cache.controller_id = NO_CONTROLLER
        cache.listeners.append(self._told.notify)
        self._topics = KnownTopics(cache, self.configs_of)

    # ---- what is known ----------------------------------------------------------

    @property
    def broker_epoch(self) -> int:
        """The czxid of the broker's registration."""
        return self._membership.broker_epoch

    async def present_epoch(self) -> int:
        """Return it once there is one."""
        if self.broker_epoch == NO_EPOCH:
            await self._tasks.run_for_handler(self._membership.registered)
        return self.broker_epoch

    async def has_elected(self, controller_epoch: int) -> bool:
        """Return whether ZooKeeper knows of a controller of this epoch.

        False, too, without a session, and where the server that is asked lags behind.
        """
        if self._membership.znodes is None:
            return False
        with suppress(KafkaError):
            return controller_epoch <= await self._write(latest_epoch)
        return False

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that a controller has sent."""
        return self._topics

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Dynamic broker configs by broker id; "" is every broker's default."""
        return self._configs.brokers

    def configs_of(self, topic: str) -> Mapping[str, str] | None:
        """Return a topic's own configs; None if it is unknown."""
        return self._configs.topics.get(topic)

    def live_brokers(self) -> Sequence[BrokerRack]:
        """Return the live brokers, by the controller's metadata."""
        brokers = self._broker.metadata_cache.brokers
        return [BrokerRack(it.id, it.rack) for _, it in sorted(brokers.items())]

    # ---- the life of a member; topics and configs -------------------------------

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Take part in the cluster until cancelled."""
        self._member.billed = billed
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tasks.run)
            await self._supervisor.keep("membership", self._membership.run)

    def metrics(self) -> Iterator[Metric | None]:
        """Iterate over the controller's metrics of the cluster, and of its work."""
        yield from self._member.metrics()
        yield from self._supervisor.metrics()

    async def withdraw(self) -> None:
        """Move this broker's leaderships to others."""
        config = self._config
        if not config[CONTROLLED_SHUTDOWN_ENABLE] or self._membership.znodes is None:
            return
        cache = self._broker.metadata_cache
        listener = config.inter_broker_listener_name
        await hand_over(
            config,
            lambda: self.broker_epoch,
            lambda: cache.endpoint(listener, cache.controller_id),
            connect=self._connect,
            rng=self._rng,
        )

    async def leave(self) -> None:
        """End the session, and with it the registration."""
        await self._membership.leave()

    async def learn_topics(self, names: Iterable[str]) -> None:
        """Read the configs of topics that the broker is about to have replicas of."""
        wanted = tuple(names)
        if wanted:
            # The controller also waits until this broker can receive requests.
            await self._write(lambda it: self._configs.read_topics(it, wanted), inf)
            for name in wanted:
                await self._broker.topic_changed(name)

    def replicas_failed(self, lost: Sequence[TopicPartition]) -> None:
        """Notify the controller, which then asks for the remaining logs (KIP-112)."""
        self._membership.log_dirs_changed.notify()

    start_again = replicas_failed  # Thereupon it commands all of them anew.

    async def begin_topic(self, new: NewTopic) -> ErrorCode:
        """Start the creation of a topic; a client's retry begins a failed one again."""
        if len(self._begun) < _BEGUN_MAX and new.name not in self._begun:
            self._begun.add(new.name)
            self._tasks.begin(partial(self._create_begun, new))
        governing = self._member.governing
        if governing is not None and governing.has_begun:
            return ErrorCode.leader_not_available
        return ErrorCode.unknown_topic_or_partition

    async def _create_begun(self, new: NewTopic) -> None:
        change = _creation(new, self._new_id())
        try:
            with (
                self._supervisor.contained("topic creation"),
                # Another broker may have created it, and the client asks again.
                suppress(KafkaError),
                trio.move_on_after(_BEGUN_S),
            ):
                await in_session(self._membership.present, change)
        finally:
            self._begun.discard(new.name)

    async def create_topic(self, new: NewTopic, timeout_ms: int = 0) -> Topic:
        """Create a topic, and wait until it is led; raise TOPIC_ALREADY_EXISTS."""
        topic_id = self._new_id()
        await self._write(_creation(new, topic_id), timeout_ms or _NO_TIME_MS)
        count = len(new.assignment)
        await self._seen(lambda: self._is_led(new.name, count), timeout_ms)
        return Topic(
            name=new.name,
            topic_id=topic_id,
            leader_epochs=(0,) * count,
            configs=dict(new.configs),
        )

    async def delete_topic(self, name: str, timeout_ms: int = 0) -> None:
        """Request the deletion of a topic, and wait until it is gone for clients."""
        cache = self._broker.metadata_cache
        if cache.topic(name) is None:
            # Also one that is being deleted: it is gone for clients.
            raise topic_writes.unknown(name)
        await self._write(
            lambda it: topic_writes.request_deletion(it, name),
            timeout_ms or _NO_TIME_MS,
        )
        await self._seen(lambda: cache.topic(name) is None, timeout_ms)

    async def create_partitions(
        self,
        name: str,
        first: int,
        assignment: tuple[tuple[int, ...], ...],
        timeout_ms: int = 0,
    ) -> bool:
        """Add partitions, and wait until they are led; False if it has changed."""
        done = await self._write(
            lambda it: topic_writes.create_partitions(it, name, first, assignment),
            timeout_ms or _NO_TIME_MS,
        )
        if done:
            count = first + len(assignment)
            await self._seen(lambda: self._is_led(name, count), timeout_ms)
        return done

    async def set_topic_configs(
        self, name: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace a topic's configs, and see that they take effect here."""
        write = partial(self._configs.write, f"topics/{name}", configs, instead_of)
        done = await self._write(write)
        # Values set by another broker are known now, too, and would be no news in a new
        # session.
        await self._broker.topic_changed(name)
        return done

    async def set_broker_configs(
        self, broker: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace dynamic broker configs, and see that they take effect here."""
        entity = broker_entity(broker)
        write = partial(self._configs.write, entity, configs, instead_of)
        done = await self._write(write)
        await self._broker.broker_configs_changed()
        return done

    async def producer_id_block(self) -> range:
        """Reserve the next thousand ids of the cluster."""
        return await self._write(
            lambda it: topic_writes.reserve_producer_ids(it, self._id)
        )

    async def _write(
        self,
        change: Callable[[RetryingZnodes], Awaitable[R]],
        timeout_ms: float = _WRITE_MS,
    ) -> R:
        """Change znodes in the present session; raise REQUEST_TIMED_OUT.

        ZooKeeper may be away, or the session may expire; it may be done all the same.
        """

        async def waiting() -> R:
            try:
                with trio.fail_after(timeout_ms / 1000):
                    return await in_session(self._membership.present, change)
            except trio.TooSlowError as away:
                why = f"ZooKeeper has not answered within {timeout_ms} ms"
                raise KafkaError(ErrorCode.request_timed_out, why) from away

        return await self._tasks.run_for_handler(waiting)

    def _is_led(self, name: str, count: int) -> bool:
        return all(
            self._leader(TopicPartition(name, index)) >= 0 for index in range(count)
        )

    async def _seen(self, condition: Callable[[], bool], timeout_ms: int) -> None:
        """Wait until the controller has sent it; raise REQUEST_TIMED_OUT.

        It is done all the same. A caller without time (0) does not wait.
        """

        async def waiting() -> None:
            with trio.move_on_after(timeout_ms / 1000):
                while not condition():
                    await self._told.next()

        if timeout_ms > 0 and not condition():
            await self._tasks.run_for_handler(waiting)
            if not condition():
                raise KafkaError(ErrorCode.request_timed_out)

    # ---- what a controller decides ----------------------------------------------

    def check_is_controller(self) -> None:
        """Raise NOT_CONTROLLER unless this broker is."""
        self._governing()

    def _governing(self) -> Governing:
        governing = self._member.governing
        if governing is None or not governing.has_begun:
            raise KafkaError(ErrorCode.not_controller)
        return governing

    async def _decided(
        self, state: ControllerState, steps: Callable[[KafkaController], Decisions[R]]
    ) -> R:
        governing = self._governing()
        return await self._tasks.run_for_handler(
            lambda: governing.ask(state, lambda: steps(governing.core))
        )

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> Sequence[TopicPartition]:
        """Move leaderships off a broker that stops; return those that remain."""
        return await self._decided(
            ControllerState.CONTROLLED_SHUTDOWN,
            lambda core: core.controlled_shutdown(broker_id, broker_epoch),
        )

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic that this controller knows."""
        return self._governing().core.context.topic_names.get(topic_id)

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        proposals: Mapping[TopicPartition, IsrProposal],
    ) -> Mapping[TopicPartition, Judgement]:
        """Judge a leader's ISR proposals."""
        return await self._decided(
            ControllerState.ISR_CHANGE,
            lambda core: core.alter_partition(broker_id, broker_epoch, proposals),
        )

    async def elect_leaders(
        self,
        keys: Collection[TopicPartition] | None,
        kind: ElectionType,
        timeout_ms: int = 0,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Elect leaders, of all partitions if none is named; return the outcomes."""
        core = self._governing().core
        wanted = list(core.context.all_partitions()) if keys is None else keys
        outcomes: dict[TopicPartition, ErrorCode] = await self._decided(
            ControllerState.MANUAL_LEADER_BALANCE,
            lambda it: it.elect_leaders(wanted, kind),
        )
        elected: dict[TopicPartition, int] = {}
        async for key in in_steps(outcomes):
            leadership = core.context.leadership(key)
            if outcomes[key] is ErrorCode.none and leadership is not None:
                elected[key] = leadership.leader
        await self._told_of(elected, timeout_ms)
        async for key, leader in in_steps(elected.items()):
            if self._leader(key) != leader:
                outcomes[key] = ErrorCode.request_timed_out
        return outcomes

    async def _told_of(
        self, elected: Mapping[TopicPartition, int], timeout_ms: int
    ) -> None:
        """Wait until this broker's metadata has these leaders, or for the time-out."""

        async def waiting() -> None:
            with trio.move_on_after(timeout_ms / 1000):
                for count, (key, leader) in enumerate(elected.items(), 1):
                    while self._leader(key) != leader:
                        await self._told.next()
                    if not count % STEP_ITEMS:
                        await trio.lowlevel.checkpoint()

        if timeout_ms > 0 and elected:
            await self._tasks.run_for_handler(waiting)

    def _leader(self, key: TopicPartition) -> int:
        """Return the leader by this broker's metadata."""
        topic = self._broker.metadata_cache.topic(key.topic)
        state = None if topic is None else topic.partitions.get(key.partition)
        return NO_LEADER if state is None else state.leader

    async def alter_partition_reassignments(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Begin reassignments, or cancel them (None)."""
        return await self._decided(
            ControllerState.ALTER_PARTITION_REASSIGNMENT,
            lambda core: core.alter_partition_reassignments(wanted),
        )

    def reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Return the reassignments that are under way."""
        return self._governing().core.reassignments


def _creation(
    new: NewTopic, topic_id: UUID
) -> Callable[[RetryingZnodes], Awaitable[None]]:
    """Return the change of znodes that creates a topic."""
    replicas = map(ReplicaAssignment, new.assignment)
    topic = TopicAssignment(topic_id, dict(enumerate(replicas)))
    return lambda it: topic_writes.create_topic(it, new.name, topic, new.configs)
