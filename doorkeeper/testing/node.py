"""One broker in a test's process, with real sockets and a disk that may be memory."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from broker.assembly import assemble
from broker.client.client_login import unsigned_login
from broker.client.client_sasl import Login, PlainLogin, ScramLogin, authenticated
from broker.client.client_tls import over_tls
from broker.client.network_client import Connect, connect_tcp
from broker.cluster.blocking import call_here
from broker.config import (
    OAUTHBEARER,
    PLAIN,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    BrokerConfig,
)
from broker.config.sasl_checks import jaas_key
from broker.config.tls_keys import listener_tls
from broker.disk.files import RealStorage
from broker.disk.memory import MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.network import settings as network_settings
from broker.network.epoll import TcpNetwork
from broker.node.broker import Broker
from broker.node.call_shell import CallThreads, call_in_thread
from broker.protocol.errors import ConfigError
from broker.protocol.sasl.scram import SCRAM_MECHANISMS
from broker.server import BrokerEnvironment, BrokerServer
from broker.tls.contexts import trusting_context
from doorkeeper.local_cluster.cluster_settings import DATA, listeners
from doorkeeper.testing.advancing_clock import AdvancingClock
from doorkeeper.testing.memory_files import CopyingNetwork
from doorkeeper.testing.observed_apis import OWN_CLIENT_ID, ObservedApis, WakeLater
from doorkeeper.testing.received import ReceivedRequest
from doorkeeper.testing.request_faults import FaultTable

HOST = "127.0.0.1"
_DEVICE_THREADS: Final = 2
# Requests kept; older ones are dropped.
REQUESTS_KEPT: Final = 10_000


class BrokerNode:
    """A broker that can be started again; its disk, its port and its faults remain."""

    def __init__(
        self,
        keys: Mapping[str, str],
        *,
        data: Path | None,
        port: int,
        clock: AdvancingClock,
        connect: Connect,
        wake_later: WakeLater,
    ) -> None:
        self.port = port
        self.faults = FaultTable()
        self.received: deque[ReceivedRequest] = deque(maxlen=REQUESTS_KEPT)
        self._broker: Broker | None = None
        self._keys = {**keys, "log.dirs": "/data" if data is None else str(data)}
        self._storage = MemoryStorage() if data is None else RealStorage()
        self._clock = clock
        self._connect = connect
        # Opens the test's own connections to the clients' listener.
        self.own_connect: Connect = connect_tcp
        self._wake_later = wake_later
        self._server: BrokerServer | None = None
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    @property
    def is_running(self) -> bool:
        """Whether there is a broker."""
        return self._broker is not None

    @property
    def broker(self) -> Broker:
        """The broker that runs."""
        assert self._broker is not None, "the broker is stopped"
        return self._broker

    async def live(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop` or `kill`.

        :raises ConfigError: if a setting prevents the start.
        """
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        try:
            with self._scope:
                self._server = server = await self._opened()
                async with trio.open_nursery() as nursery:
                    await nursery.start(server.run)
                    self.port = server.ports[DATA]
                    task_status.started()
                if server.unclean is not None:
                    raise server.unclean
        finally:
            self._server = self._broker = None
            self._ended.set()

    async def stop(self) -> None:
        """Stop cleanly; no effect on a stopped broker."""
        if self._server is not None:
            self._server.stop()
            await self._ended.wait()

    async def kill(self) -> None:
        """End as a crash does: data in memory that is not written is lost.

        :raises ValueError: if the data is on disk.
        """
        if not isinstance(self._storage, MemoryStorage):
            raise ValueError("kill: a broker with data= on disk can only be stopped")
        if self._server is not None:
            self._storage = self._storage.after_kill()
            self._scope.cancel()
            await self._ended.wait()

    async def _opened(self) -> BrokerServer:
        config = BrokerConfig.load(
            None, {**self._keys, "listeners": listeners(self._keys, HOST, self.port)}
        )
        self.own_connect = _own_connect(config)
        options = network_settings.socket_options(config)
        in_memory = isinstance(self._storage, MemoryStorage)
        broker = assemble(
            config,
            storage=self._storage,
            now_ns=self._clock.now_ns,
            now_ms=self._clock.now_ms,
            rng=random.Random(),
            blocking=call_here if in_memory else call_in_thread,
            threads=None if in_memory else CallThreads(_DEVICE_THREADS),
            connect=self._connect,
        )
        apis = ObservedApis(
            KafkaApis(broker), self.received, self.faults, self._wake_later
        )
        await apis.prepare()
        environment = BrokerEnvironment(
            network=CopyingNetwork(options) if in_memory else TcpNetwork(options),
            now_ns=self._clock.now_ns,
            rng=random.Random(),
            compute=call_in_thread,
        )
        server = BrokerServer(config, apis, environment)
        self._broker = broker
        return server


def _own_connect(config: BrokerConfig) -> Connect:
    """Return a connector to this process's broker, with TLS and a login if needed."""
    data = next(each for each in config.listeners if each.name == DATA)
    connect: Connect = connect_tcp
    if data.uses_tls:
        context = trusting_context(listener_tls(config, DATA))
        connect = over_tls(connect, lambda: context)
    if data.uses_sasl:
        connect = authenticated(connect, _own_login(config), OWN_CLIENT_ID)
    return connect


def _own_login(config: BrokerConfig) -> Login:
    """Return the login of a configured user.

    :raises ConfigError: if there is none.
    """
    for mechanism in config.on_listener(DATA, SASL_ENABLED_MECHANISMS):
        module = config.of_mechanism(DATA, mechanism, SASL_JAAS_CONFIG)
        users = {} if module is None else module.users
        for name, password in users.items():
            if mechanism == PLAIN:
                return PlainLogin(name=name, password=password)
            scram = SCRAM_MECHANISMS[mechanism]
            return ScramLogin(scram_mechanism=scram, name=name, password=password)
    keys = config.on_listener(DATA, SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
    enabled = config.on_listener(DATA, SASL_ENABLED_MECHANISMS)
    if OAUTHBEARER in enabled and keys is None:
        return unsigned_login(OWN_CLIENT_ID)
    key = jaas_key(DATA, enabled[0])
    raise ConfigError(key, "", "a user_NAME, for the requests of doorkeeper.testing")
