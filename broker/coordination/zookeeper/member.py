"""A broker as a member of the cluster: registration, configs, terms as controller."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from logging import getLogger
from typing import Any, Final
from uuid import UUID

from broker.client.network_client import Connect
from broker.cluster.topic_configs import topic_value
from broker.config import (
    AUTHORIZER_CLASS_NAME,
    AUTO_LEADER_REBALANCE_ENABLE,
    BROKER_RACK,
    CONTROLLER_SOCKET_TIMEOUT_MS,
    DELETE_TOPIC_ENABLE,
    DOORKEEPER_CONTROLLER_MERGES,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
    BrokerConfig,
)
from broker.controller.controller import ControllerConfig, KafkaController
from broker.coordination.controller_events import ControllerMeters, ControllerState
from broker.coordination.controller_metrics import controller_metrics, event_metrics
from broker.coordination.coordinator_roles import ConfigKind, CoordinatedBroker
from broker.coordination.zookeeper.channels import Answered, ControllerChannels
from broker.coordination.zookeeper.cluster_acls import ClusterAcls
from broker.coordination.zookeeper.configs import ClusterConfigs, entity_of
from broker.coordination.zookeeper.election import Term
from broker.coordination.zookeeper.governing import Governing
from broker.coordination.zookeeper.layout.broker_records import (
    BrokerRecord,
    write_broker,
)
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.observation.logs import fields
from broker.observation.metric import Metric
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ConfigError
from broker.quotas.entity import is_entity

logger = getLogger(__name__)

_UNCLEAN: Final = "unclean.leader.election.enable"


class Member:
    """The broker ``config.node_id``; `broker` is set once it is open.

    ``connect`` connects to controlled brokers, ``new_id`` draws ids of topics.
    ``now_ms`` is the wall clock, ``now_ns`` the clock of durations.
    """

    broker: CoordinatedBroker

    def __init__(
        self,
        config: BrokerConfig,
        *,
        connect: Connect,
        new_id: Callable[[], UUID],
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
        rng: random.Random,
        supervisor: Supervisor,
    ) -> None:
        self.supervisor = supervisor
        self.broker_id = config.node_id
        self._new_id = new_id
        # Value at the last check; a change to True triggers elections of leaders.
        self._is_unclean_by_default = False
        self.configs = ClusterConfigs()
        self.acls = ClusterAcls() if config[AUTHORIZER_CLASS_NAME] else None
        self.governing: Governing | None = None
        # Partition counts of internal topics when the broker started; None: no topic.
        self.internal_partitions: Mapping[str, int | None] = {}
        self.meters = ControllerMeters(now_ns)
        # Context for all work outside of requests.
        self.billed: AbstractContextManager[object] = nullcontext()
        self.now_ms = now_ms
        self._config = config
        self._connect = connect
        self._rng = rng
        # The session in which all configs have been read.
        self._read_in: RetryingZnodes | None = None
        # The session in which all access control lists have been read.
        self._acls_read_in: RetryingZnodes | None = None

    def metrics(self) -> Iterator[Metric | None]:
        """Iterate over the controller's metrics of the cluster, and of its work."""
        governing = self.governing
        if governing is None:
            yield from controller_metrics(None, {})
        else:
            yield from controller_metrics(governing.core.context, governing.queued)
        yield from event_metrics(self.meters, governing.waiting if governing else 0)

    def registration(self) -> bytes:
        """Return the data of the broker's registration."""
        record = BrokerRecord(
            listeners=tuple(self.broker.advertised), rack=self._config[BROKER_RACK]
        )
        return write_broker(record, self.now_ms())

    def open_term(self, znodes: RetryingZnodes, term: Term) -> Governing:
        """Create a term of this broker as controller."""
        config = self._config
        self._is_unclean_by_default = self._unclean_by_default()
        listener = config.inter_broker_listener_name
        control = config.control_plane_listener
        core = KafkaController(
            self.broker_id,
            term.epoch,
            ControllerConfig(
                inter_broker_listener=listener,
                unclean_election=self._is_unclean_election_enabled,
                delete_topic_enable=config[DELETE_TOPIC_ENABLE],
                leader_imbalance_per_broker_percentage=config[
                    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE
                ],
            ),
        )
        period_s = config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
        return Governing(
            core,
            znodes,
            term,
            self._open_channels,
            meters=self.meters,
            listeners=(control.name, listener) if control else (listener,),
            rebalance_s=period_s if config[AUTO_LEADER_REBALANCE_ENABLE] else None,
            read_configs=self.configs.read_topics,
            new_id=self._new_id,
            billed=self.billed,
        )

    def _open_channels(self, answered: Answered) -> ControllerChannels:
        return ControllerChannels(
            self.broker_id,
            self._connect,
            self._rng,
            timeout_ms=self._config[CONTROLLER_SOCKET_TIMEOUT_MS],
            merges=self._config[DOORKEEPER_CONTROLLER_MERGES],
            answered=answered,
            supervisor=self.supervisor,
        )

    def _is_unclean_election_enabled(self, topic: str) -> bool:
        configs = self.configs.of_topic(topic)
        return bool(topic_value(_UNCLEAN, configs, self.broker.config))

    async def configs_may_have_changed(self, znodes: RetryingZnodes) -> None:
        """Apply changed configs; read all of them in a new session."""
        if self._read_in is not znodes:
            news = await self.configs.read_all(znodes)
            self._read_in = znodes
            names = self.configs.topics if news else ()
            all_brokers = entity_of(ConfigKind.BROKER, "")
            changed = [all_brokers, *(f"topics/{name}" for name in names)]
            with self.billed:
                self.broker.quotas_changed(None)
        else:
            changed = await self.configs.read_changes(znodes, self.now_ms())
        for entity in changed:
            with self.billed:
                try:
                    self._take(entity)
                except Exception as fault:  # as in Kafka: apply the other entities
                    self.meters.failed("altered configs", fault)

    async def acls_may_have_changed(self, znodes: RetryingZnodes) -> None:
        """Apply changed access control lists; read all of them in a new session."""
        if self.acls is None:
            return
        changed = None
        if self._acls_read_in is not znodes:
            await self.acls.read_all(znodes)
            self._acls_read_in = znodes
        else:
            changed = await self.acls.read_changes(znodes, self.now_ms())
        with self.billed:
            self.broker.acls_changed(changed)

    def _take(self, entity: str) -> None:
        """Apply an entity's changed configs."""
        kind, _, name = entity.partition("/")
        if kind == "topics":
            _at_once(self.broker.topic_changed(name))
            if self._is_unclean_election_enabled(name):
                self._allow_unclean_election(name)
        elif is_entity(entity):
            self.broker.quotas_changed([entity])
        elif entity in [
            entity_of(ConfigKind.BROKER, name) for name in ("", str(self.broker_id))
        ]:
            try:
                _at_once(self.broker.broker_configs_changed())
            except ConfigError as fault:
                logger.error(
                    "altered configs are not in force", extra=fields(fault=fault)
                )
            before = self._is_unclean_by_default
            self._is_unclean_by_default = self._unclean_by_default()
            if self._is_unclean_by_default and not before:
                self._allow_unclean_election(None)

    def _unclean_by_default(self) -> bool:
        """Return whether topics without configs of their own allow unclean election."""
        return bool(topic_value(_UNCLEAN, {}, self.broker.config))

    def _allow_unclean_election(self, topic: str | None) -> None:
        """Queue the election of leaders of a topic's partitions (None: of all)."""
        governing = self.governing
        if governing is not None:
            core, states = governing.core, ControllerState
            governing.queue_event(
                states.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
                if topic is not None
                else states.UNCLEAN_LEADER_ELECTION_ENABLE,
                lambda: core.unclean_election_enabled(topic),
            )


def _at_once(verb: Coroutine[Any, Any, None]) -> None:
    """Run a preemptible coroutine to its end, as the caller has no seat."""
    try:
        while True:
            verb.send(None)
    except StopIteration:
        return
