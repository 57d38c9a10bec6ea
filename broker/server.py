"""A broker between its sockets and its application: planes, network, metrics.

`BrokerServer` builds and connects them from a configuration. The environment is an
argument, so the same broker runs as a process (process.py) and in virtual time. No
decision about a request is made here.
"""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger

import trio

from broker.application import Application
from broker.config import (
    DOORKEEPER_CLASS_LEVELS,
    DOORKEEPER_METRICS_PORT,
    DOORKEEPER_PRIORITY_AGEING_MS,
    DOORKEEPER_QUANTUM_US,
    DOORKEEPER_READER,
    DOORKEEPER_RECORD_SAMPLES_MS,
    DOORKEEPER_SASL_TIMEOUT_MS,
    DOORKEEPER_SLICE_MS,
    DOORKEEPER_UPKEEP_MS,
    DOORKEEPER_WFQ_WEIGHTS,
    NUM_IO_THREADS,
    SOCKET_REQUEST_MAX_BYTES,
    BrokerConfig,
    Listener,
)
from broker.network import settings as network_settings
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.handshakes import Compute, compute_here
from broker.network.intake import Intake
from broker.network.processor import Processor, ProcessorContext
from broker.network.request_channel import (
    BlindRequestChannel,
    ClassAwareRequestChannel,
    RequestChannel,
)
from broker.network.socket_server import Endpoint, SocketServer
from broker.network.tls_listener import TlsListener
from broker.network.transport import Network
from broker.observation.busy_time import BusyTime
from broker.observation.cpu_accounts import Accounts
from broker.observation.logs import fields
from broker.observation.metric import Metric
from broker.observation.metrics.acceptors import AcceptorMetrics
from broker.observation.metrics.collector import Collector, MoreMetrics, Sources
from broker.observation.metrics.endpoint import (
    ALL,
    OF_REQUESTS,
    Collect,
    open_port,
    serve_metrics,
)
from broker.observation.metrics.request_metrics import RequestMetrics
from broker.observation.recording.law_book import LawBook
from broker.observation.recording.recording import Recorder
from broker.observation.recording.sampler import Sampler
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import LogDirsLost, UncleanStop
from broker.quotas.client_quotas import client_windows
from broker.requests.entitlement import entitlement_of
from broker.requests.internal_tasks import InternalTasks
from broker.requests.request import Request
from broker.requests.timer import DeadlineTimer
from broker.requests.topology import (
    CONTROL_PLANE,
    Route,
    Topology,
    build,
    scheduler_settings,
)
from planes import PlaneCore, Task
from planes.clock import NowNs
from planes.dispatcher import Dispatcher
from planes.upkeep import Upkeep

logger = getLogger(__name__)

# Settings of policies that can be altered at runtime.
_OF_SCHEDULERS = (DOORKEEPER_WFQ_WEIGHTS.name, DOORKEEPER_PRIORITY_AGEING_MS.name)
# A stop waits up to a second for requests in progress.
_DRAIN_LOOK_S = 0.005
_DRAIN_LOOKS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEnvironment:
    """The environment of a broker: a network, a clock, a source of random numbers.

    ``now_ns`` is the clock of all timestamps. ``spend`` is called after each slice of a
    handler, and advances the clock where time is virtual. ``busy_time`` is Trio's
    clock, if the broker is a process of its own. ``compute`` runs the steps of
    handshakes.
    """

    network: Network
    now_ns: NowNs
    rng: random.Random
    spend: Callable[[Task], None] | None = None
    recorder: Recorder | None = None
    busy_time: BusyTime | None = None
    compute: Compute = compute_here


class BrokerServer:
    """A broker: planes, network, application. The constructor opens its sockets."""

    def __init__(
        self,
        config: BrokerConfig,
        application: Application,
        surroundings: BrokerEnvironment,
    ) -> None:
        self._config = self._in_force = config = application.in_force(config)
        self._application = application
        self._surroundings = surroundings
        self._now_ns = surroundings.now_ns
        self._stop = trio.Event()
        self.supervisor = Supervisor()
        self.topology = build(config, surroundings.rng)
        self.upkeep = Upkeep(
            application.next_upkeep_ns,
            application.upkeep,
            patience_ns=config[DOORKEEPER_UPKEEP_MS] * 1_000_000,
            settled=self._timer_moved,
        )
        self.dispatcher = _dispatcher(config, self.topology, surroundings, self.upkeep)
        self.classifier = network_settings.classifier(
            config, application.apis, application.authorizer
        )
        self.quotas = ConnectionQuotas(
            network_settings.connection_limits(config, application.addresses),
            self._now_ns,
            client_windows(config),
            application.address_rates,
        )
        self.pool = network_settings.memory_pool(config)
        self.request_metrics = RequestMetrics()
        self.laws = LawBook(self.topology.planes, config, self._now_ns)
        self.accounts = Accounts(
            self.topology.planes,
            self.dispatcher.ledger,
            surroundings.busy_time,
        )
        self.metrics_port: int | None = None
        port = config[DOORKEEPER_METRICS_PORT]
        # Opened here, like the listeners, so that a port in use stops the start.
        self._metrics = None if port is None else open_port(port)
        # The error of the logs, once `run` has returned.
        self.unclean: UncleanStop | LogDirsLost | None = None
        self.request_channels = {
            plane: _request_channel(config, plane, self.dispatcher)
            for plane in self.topology.planes
        }
        numbers, levels = itertools.count(), config[DOORKEEPER_CLASS_LEVELS]
        self.internal_tasks = InternalTasks(
            self.dispatcher,
            self.topology.planes[0],
            numbers=numbers,
            levels=levels,
        )
        self._tls = {
            route.listener.name: TlsListener(route.listener, config)
            for route in self.topology.routes
            if route.listener.uses_tls
        }
        self.socket_server = self._socket_server(numbers)
        for processor in self.socket_server.processors:
            self.dispatcher.on_empty(processor.poll)
        self.timer = DeadlineTimer(
            application.next_expiry_ns, self._expire, self._now_ns
        )
        application.config_listeners.append(self._reconfigure)
        self.upkeep_timer = DeadlineTimer(
            self.upkeep.next_ns,
            lambda now_ns: self.dispatcher.begin_upkeep(),
            self._now_ns,
        )
        application.open(self.advertised, self._timer_moved, self.internal_tasks.submit)

    @property
    def ports(self) -> Mapping[str, int]:
        """Return the port of each listener by its name."""
        return self.socket_server.ports

    @property
    def listeners(self) -> Sequence[Listener]:
        """Return the open listeners, with their actual ports."""
        return [
            replace(route.listener, port=self.ports[route.listener.name])
            for route in self.topology.routes
        ]

    @property
    def advertised(self) -> Sequence[Listener]:
        """Return the listeners as clients receive them."""
        advertised = {listener.name: listener for listener in self._config.advertised}
        return [
            _reachable(advertised.get(listener.name, listener), listener)
            for listener in self.listeners
        ]

    @property
    def processors(self) -> Mapping[PlaneCore, Sequence[Processor]]:
        """Return the processors that feed each plane."""
        of_listener = {
            acceptor.listener: acceptor.processors
            for acceptor in self.socket_server.acceptors
        }
        return {
            plane: [
                processor
                for route in self.topology.routes
                if route.plane is plane
                for processor in of_listener[route.listener.name]
            ]
            for plane in self.topology.planes
        }

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop` is called, or until cancelled."""
        self.accounts.begin()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.dispatcher.run)
                await nursery.start(self.socket_server.run)
                keep = self.supervisor.keep
                nursery.start_soon(keep, "timer", self.timer.run)
                cluster = partial(
                    self._application.run, self.dispatcher.ledger.of("replication")
                )
                nursery.start_soon(keep, "cluster", cluster)
                nursery.start_soon(keep, "upkeep timer", self.upkeep_timer.run)
                self._start_sampler(nursery)
                await self._start_metrics(nursery)
                task_status.started()
                await self._stop.wait()
                with self.supervisor.contained("withdrawal"):
                    await self._application.withdraw()
                self.socket_server.stop_accepting()
                await self._drain()
                with self.supervisor.contained("leaving"):
                    await self._application.leave()
                nursery.cancel_scope.cancel()
        finally:
            accounts = self.accounts.totals()
            try:
                self._application.close()
            except UncleanStop as unclean:
                self.unclean = self.unclean or unclean
            if self._surroundings.recorder is not None:
                self._surroundings.recorder.violations(self.laws.totals())
                self._surroundings.recorder.accounts(accounts)
                self._surroundings.recorder.close()

    def stop(self) -> None:
        """Hand over leadership, accept no request, answer the accepted, end `run`."""
        self._stop.set()

    def _timer_moved(self) -> None:
        """Read the next deadlines again."""
        self.timer.moved()
        self.upkeep_timer.moved()

    def _expire(self, now_ns: int) -> None:
        """Expire deadlines; their CPU time is recorded as ``deadlines``."""
        try:
            with self.dispatcher.ledger.of("deadlines"):
                self._application.expire(now_ns)
        except LogDirsLost as lost:
            logger.critical(
                "all log directories have failed; the broker stops",
                extra=fields(fault=lost),
            )
            self.unclean = lost
            self.stop()

    def _reconfigure(self, config: BrokerConfig) -> None:
        """Apply the dynamic settings of seats, policies and network."""
        data = self.topology.planes[0]
        before, self._in_force = self._in_force, config
        if any(config.values[it] != before.values[it] for it in _OF_SCHEDULERS):
            settings = scheduler_settings(config, self._surroundings.rng)
            data.scheduler.reconfigure(settings)
            self.laws.reconfigure(config)
        if config[NUM_IO_THREADS] != data.seats:
            self.dispatcher.resize(data, config[NUM_IO_THREADS])
        self.quotas.configure(
            network_settings.connection_limits(config, self._application.addresses)
        )
        for tls in self._tls.values():
            tls.reconfigure(config)

    async def _drain(self) -> None:
        """Wait for requests in progress, except those in purgatory."""
        for _ in range(_DRAIN_LOOKS):
            if not self._in_progress():
                return
            await trio.sleep(_DRAIN_LOOK_S)

    def _in_progress(self) -> bool:
        """Return whether any request is in the broker, or any response unwritten."""
        tasks = sum(
            plane.seated + len(plane.scheduler) for plane in self.topology.planes
        )
        return tasks > self.internal_tasks.pending or any(
            processor.busy for processor in self.socket_server.processors
        )

    def _socket_server(self, numbers: Iterator[int]) -> SocketServer:
        context = ProcessorContext(
            now_ns=self._now_ns,
            intake=Intake(
                self._application.serve,
                self.classifier,
                self._application.apis,
                network_settings.deadline(self._config),
                numbers,
            ),
            quotas=self.quotas,
            pool=self.pool,
            finished=self._finished(),
            frame_bytes_max=self._config[SOCKET_REQUEST_MAX_BYTES],
            idle_ns_max=network_settings.idle_ns_max(self._config),
            debit=self.dispatcher.debit,
            ledger=self.dispatcher.ledger,
            authentication_ns_max=self._config[DOORKEEPER_SASL_TIMEOUT_MS] * 1_000_000,
            supervisor=self.supervisor,
        )
        endpoints = [
            Endpoint(
                listener=route.listener.name,
                host=route.listener.host,
                port=route.listener.port,
                processors=route.processors,
                request_channel=self.request_channels[route.plane],
                entitlement=entitlement_of(self._config, route.listener.name),
                authenticate=self._application.authentication(route.listener.name),
                tls=self._tls.get(route.listener.name),
            )
            for route in sorted(self.topology.routes, key=self._start_order)
        ]
        limits = network_settings.handshake_limits(
            self._config, self._surroundings.compute
        )
        return SocketServer(endpoints, self._surroundings.network, context, limits)

    def _start_order(self, route: Route) -> int:
        """Return the place in Kafka's start order: controllers, brokers, others."""
        if route.plane.name == CONTROL_PLANE:
            return 0
        name = self._config.inter_broker_listener_name
        return 1 if route.listener.name.upper() == name else 2

    def _finished(self) -> list[Callable[[Request], None]]:
        """Return the observers of finished requests."""
        recorder = self._surroundings.recorder
        scraped = self._config[DOORKEEPER_METRICS_PORT] is not None
        observers: list[Callable[[Request], None]] = [self.classifier.learn]
        if recorder is not None or scraped:
            observers.append(self.laws.observe)
        if recorder is not None:
            observers.append(recorder.record)
        if scraped:
            observers.append(self.request_metrics.observe)
        self._application.observe(observers)
        return observers

    async def _start_metrics(self, nursery: trio.Nursery) -> None:
        if self._metrics is None:
            return
        acceptors = AcceptorMetrics(
            self.quotas,
            {route.listener.name: route.plane.name for route in self.topology.routes},
            self._now_ns,
        )
        info = self._application.info
        collectors = {
            ALL: self._scrape(
                info,
                acceptors.collect,
                self.laws.metrics,
                self.accounts.metrics,
                self._application.metrics,
                self.supervisor.metrics,
            ),
            OF_REQUESTS: self._scrape(info),
        }
        self.metrics_port = await nursery.start(
            serve_metrics, self._metrics, collectors, self.supervisor
        )

    def _scrape(self, *more: MoreMetrics) -> Collect:
        """Return a function that reads the metrics of requests and ``more``."""
        collector = Collector(
            Sources(
                requests=self.request_metrics,
                channels=tuple(self.request_channels.values()),
                processors=self.processors,
                pool=self.pool,
                now_ns=self._now_ns,
                more=more,
            )
        )

        def scrape() -> Iterator[list[Metric]]:
            samples = collector.collect()
            ended = False
            while not ended:
                piece = []
                with self.dispatcher.ledger.of("scrapes"):
                    for sample in samples:
                        if sample is None:
                            break
                        piece.append(sample)
                    else:
                        ended = True
                yield piece

        return scrape

    def _start_sampler(self, nursery: trio.Nursery) -> None:
        recorder = self._surroundings.recorder
        if recorder is None:
            return
        sampler = Sampler(
            tuple(self.request_channels.values()),
            self.processors,
            recorder,
            self._now_ns,
            self.dispatcher.ledger,
        )
        period_ns = self._config[DOORKEEPER_RECORD_SAMPLES_MS] * 1_000_000
        nursery.start_soon(
            self.supervisor.keep, "sampler", partial(sampler.run, period_ns)
        )


def _dispatcher(
    config: BrokerConfig,
    topology: Topology,
    surroundings: BrokerEnvironment,
    upkeep: Upkeep,
) -> Dispatcher:
    quantum_ns = config[DOORKEEPER_QUANTUM_US] * 1000
    for plane in topology.planes:
        plane.share_cpu(config[DOORKEEPER_SLICE_MS] * 1_000_000 or None)
    return Dispatcher(
        topology.planes,
        now_ns=surroundings.now_ns,
        quantum_ns=quantum_ns,
        spend=surroundings.spend,
        upkeep=upkeep,
    )


def _request_channel(
    config: BrokerConfig, plane: PlaneCore, dispatcher: Dispatcher
) -> RequestChannel:
    if config[DOORKEEPER_READER] == "class-aware":
        return ClassAwareRequestChannel(plane, dispatcher)
    return BlindRequestChannel(plane, dispatcher)


def _reachable(advertised: Listener, opened: Listener) -> Listener:
    """Return an advertised listener, with defaults for an empty host or port 0."""
    return replace(
        advertised,
        host=advertised.host or socket.getfqdn(),
        port=advertised.port or opened.port,
    )
