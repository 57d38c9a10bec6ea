"""A broker's membership of a cluster under ZooKeeper, one session after another."""

from __future__ import annotations

import random
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractContextManager, suppress
from math import inf

import trio

from broker.client.network_client import Connect
from broker.cluster.metadata_cache import NO_CONTROLLER
from broker.config import CONTROLLED_SHUTDOWN_ENABLE, BrokerConfig
from broker.coordination.coordinator_roles import (
    BrokerRack,
    CoordinatedBroker,
)
from broker.coordination.zookeeper.cluster_discovery import Cluster
from broker.coordination.zookeeper.election import latest_epoch
from broker.coordination.zookeeper.handler_waits import HandlerWaits
from broker.coordination.zookeeper.member import Member
from broker.coordination.zookeeper.session_loop import SessionLoop
from broker.coordination.zookeeper.shutdown_request import request_shutdown
from broker.observation.metric import Metric
from broker.protocol.errors import KafkaError
from broker.protocol.sentinels import NO_EPOCH
from broker.protocol.topic_partition import TopicPartition


class ZooKeeperMembership:
    """The membership of one broker; ``join`` reads the cluster before registration."""

    def __init__(
        self,
        config: BrokerConfig,
        member: Member,
        sessions: SessionLoop,
        waits: HandlerWaits,
        *,
        join: Callable[[], Awaitable[Cluster]],
        connect: Connect,
        rng: random.Random,
    ) -> None:
        self.cluster_id: str | None = None
        self._config = config
        self._member = member
        self._sessions = sessions
        self._waits = waits
        self._join = join
        self._connect = connect
        self._rng = rng

    async def prepare(self) -> None:
        """Read the cluster's id and its configs; raise `ConfigError`."""
        self.cluster_id, self._member.internal_partitions = await self._join()

    def open(self, broker: CoordinatedBroker) -> None:
        """Command nothing: the controller will."""
        self._member.broker = broker
        cache = broker.metadata_cache
        cache.controller_id = NO_CONTROLLER
        cache.listeners.append(self._waits.changes.notify)

    @property
    def broker_epoch(self) -> int:
        """The czxid of the broker's registration."""
        return self._sessions.broker_epoch

    async def present_epoch(self) -> int:
        """Wait for the broker epoch and return it."""
        if self.broker_epoch == NO_EPOCH:
            await self._waits.tasks.run_for_handler(self._sessions.registered)
        return self.broker_epoch

    async def has_elected(self, controller_epoch: int) -> bool:
        """Return whether ZooKeeper has a controller of this epoch.

        Also False without a session, or if the queried server lags behind.
        """
        if self._sessions.znodes is None:
            return False
        with suppress(KafkaError):
            return controller_epoch <= await self._waits.write(latest_epoch)
        return False

    def live_brokers(self) -> Sequence[BrokerRack]:
        """Return the live brokers in the controller's metadata."""
        brokers = self._member.broker.metadata_cache.brokers
        return [BrokerRack(it.id, it.rack) for _, it in sorted(brokers.items())]

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Run the membership until cancelled."""
        self._member.billed = billed
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._waits.tasks.run)
            await self._member.supervisor.keep("membership", self._sessions.run)

    def metrics(self) -> Iterator[Metric | None]:
        """Iterate over the controller's metrics of the cluster, and of its work."""
        yield from self._member.metrics()
        yield from self._member.supervisor.metrics()

    async def withdraw(self) -> None:
        """Move this broker's leaderships to other brokers."""
        config = self._config
        if not config[CONTROLLED_SHUTDOWN_ENABLE] or self._sessions.znodes is None:
            return
        cache = self._member.broker.metadata_cache
        listener = config.inter_broker_listener_name
        await request_shutdown(
            config,
            lambda: self.broker_epoch,
            lambda: cache.endpoint(listener, cache.controller_id),
            connect=self._connect,
            rng=self._rng,
        )

    async def leave(self) -> None:
        """End the session, and with it the registration."""
        await self._sessions.leave()

    async def read_topic_configs(self, names: Iterable[str]) -> None:
        """Read the configs of topics whose replicas the broker is about to receive."""
        wanted = tuple(names)
        if wanted:
            # No time-out: the controller, too, waits until this broker responds.
            await self._waits.write(
                lambda it: self._member.configs.read_topics(it, wanted), inf
            )
            for name in wanted:
                await self._member.broker.topic_changed(name)

    def replicas_failed(self, lost: Sequence[TopicPartition]) -> None:
        """Notify the controller, which then queries the remaining logs (KIP-112)."""
        self._sessions.log_dirs_changed.notify()

    start_again = replicas_failed  # The controller then commands all replicas again.
