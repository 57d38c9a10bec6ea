"""A cluster in one Trio run: real brokers on hosts of one network, each with its disk.

A killed broker starts again on its disk; each start begins a new incarnation. Wall
clocks differ between brokers. The clock of deadlines is shared, and so is the CPU:
computation of any broker takes time for all. The controller is an argument.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from broker.client.network_client import Connect
from broker.cluster.blocking import Blocking
from broker.config import BrokerConfig
from broker.disk.storage import Storage
from broker.handling.kafka_apis import KafkaApis
from broker.node.broker import Broker
from broker.protocol.errors import ConfigError
from broker.protocol.topic_partition import TopicPartition
from broker.server import BrokerEnvironment, BrokerServer
from simulation.addresses import BROKERS, CLIENTS, port_of
from simulation.disks import SimulatedDisk
from simulation.virtual_time.apis import START_MS
from simulation.virtual_time.determinism import CostPerClass, VirtualClock, spender
from simulation.virtual_time.network_faults import Host, HostNetwork

LATENCY_NS: Final = (100_000, 2_000_000)
SLICE_NS: Final = 50_000
_RESTART_S: Final = 0.5
_START_S: Final = 60.0
_SETTINGS: Final = {
    "log.dirs": "/data",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of every simulated broker, independent of its controller."""

    storage: Storage
    now_ns: Callable[[], int]
    now_ms: Callable[[], int]
    rng: random.Random
    blocking: Blocking
    connect: Connect


class Standing(Protocol):
    """Decision about one partition; a negative leader means none."""

    @property
    def replicas(self) -> tuple[int, ...]:
        """Replicas, the preferred leader first."""

    @property
    def leader(self) -> int:
        """Leader of the partition."""

    @property
    def isr(self) -> tuple[int, ...]:
        """Replicas in sync."""


class Control(Protocol):
    """Controller of the cluster; brokers reach it at ``host``."""

    host: str

    def settings(self, broker: int) -> Mapping[str, str]:
        """Return the settings with which a broker reaches its controller."""

    def make(self, broker: int, config: BrokerConfig, parts: Parts) -> Broker:
        """Return a new broker of the cluster."""

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""

    def live(self) -> AbstractSet[int]:
        """Return the brokers that are considered alive."""

    def standings(self) -> Mapping[TopicPartition, Standing]:
        """Return the decision about each partition."""

    async def create(
        self,
        name: str,
        assignment: Sequence[tuple[int, ...]],
        configs: Mapping[str, str],
    ) -> None:
        """Create a topic on live brokers."""

    async def prefer(self, key: TopicPartition) -> None:
        """Elect a partition's preferred replica, if possible."""

    async def fail_over(self, until_s: float) -> None:
        """Replace the controller, or stop its decisions until an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallClock:
    """Deviation of a broker's wall clock from the true time."""

    ahead_ms: int = 0
    # Error of its rate in parts per million; positive if fast.
    drift_ppm: int = 0

    def now_ms(self, clock: VirtualClock) -> int:
        """Return the time of this clock."""
        true_ms = int(clock.now_ms())
        return (
            START_MS + true_ms + self.ahead_ms + true_ms * self.drift_ppm // 1_000_000
        )


class SimulatedBroker:
    """One broker over all its incarnations, which ``incarnation`` counts.

    With ``has_stopped`` the last incarnation stopped by itself, as for a failed disk.
    """

    def __init__(self, number: int, host: Host, disk: SimulatedDisk) -> None:
        self.id = number
        self.host = host
        self.disk = disk
        self.wall_clock = WallClock()
        self.incarnation = 0
        self.apis: KafkaApis | None = None
        self.has_stopped = False
        self.ended = trio.Event()
        self.scope = trio.CancelScope()

    @property
    def is_up(self) -> bool:
        """Return whether it runs."""
        return self.apis is not None

    @property
    def broker(self) -> Broker:
        """The running broker."""
        assert self.apis is not None
        return self.apis.broker


class Cluster:
    """Brokers 0, 1, ... and their network; all methods require a running `run`."""

    def __init__(
        self,
        clock: VirtualClock,
        rng: random.Random,
        *,
        count: int,
        control: Control,
        network: HostNetwork,
        settings: Mapping[str, str],
    ) -> None:
        self.clock = clock
        self.network = network
        self.control = control
        self._rng = rng
        self._settings = settings
        self._nursery: trio.Nursery
        self.brokers = [
            SimulatedBroker(
                number,
                network.host(f"broker-{number}"),
                SimulatedDisk(random.Random(rng.getrandbits(64))),
            )
            for number in range(count)
        ]

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses for clients."""
        return ",".join(
            f"{each.host.name}:{port_of(each.id, CLIENTS)}" for each in self.brokers
        )

    @property
    def up(self) -> list[SimulatedBroker]:
        """The running brokers."""
        return [each for each in self.brokers if each.is_up]

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Carry bytes and serve until cancelled; this starts no broker."""
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self.network.run)
            await self._nursery.start(self.control.run)
            task_status.started()
            await trio.sleep_forever()

    # ---- starts and ends ------------------------------------------------------------

    async def start(self, number: int) -> None:
        """Start a stopped broker on its disk.

        Returns when it serves, or was killed before that.
        """
        each = self.brokers[number]
        assert not each.is_up, number
        each.incarnation += 1
        each.has_stopped = False
        each.ended = trio.Event()
        self.network.bring_up(each.host.name)
        await self._nursery.start(self._live, each)

    async def kill(self, number: int, *, power_fails: bool = False) -> None:
        """Kill a broker immediately, and wait until its tasks have ended."""
        each = self.brokers[number]
        self._take_down(each, power_fails=power_fails)
        each.scope.cancel()
        await each.ended.wait()

    def _take_down(self, each: SimulatedBroker, *, power_fails: bool) -> None:
        """Disconnect a dying broker, so that its further actions have no effect."""
        each.apis = None
        self.network.take_down(each.host.name, power_fails=power_fails)
        each.disk.outlive(power_fails=power_fails)

    async def _live(
        self, each: SimulatedBroker, task_status: trio.TaskStatus[None]
    ) -> None:
        """Run one incarnation of a broker, to its end."""
        incarnation, has_started = each.incarnation, False
        try:
            with trio.CancelScope() as each.scope:
                server, each.apis = await self._started(each)
                async with trio.open_nursery() as nursery:
                    await nursery.start(server.run)
                    has_started = True
                    task_status.started()
        finally:
            if each.is_up and each.incarnation == incarnation:
                self._take_down(each, power_fails=False)
                each.has_stopped = True
            each.ended.set()
        if not has_started:
            # A kill or a failed disk ended it before it served.
            task_status.started()

    async def _started(self, each: SimulatedBroker) -> tuple[BrokerServer, KafkaApis]:
        """Start a broker as a supervisor does: repeat a failed start."""
        gives_up_s = trio.current_time() + _START_S
        while True:
            try:
                return await self._server(each)
            except ConfigError:
                # ZooKeeper is unreachable, or the disk fails.
                if trio.current_time() > gives_up_s:
                    raise
            await trio.sleep(_RESTART_S)

    async def _server(self, each: SimulatedBroker) -> tuple[BrokerServer, KafkaApis]:
        name = each.host.name
        keys = {
            **_SETTINGS,
            **self._settings,
            **self.control.settings(each.id),
            "broker.id": str(each.id),
            "listeners": ",".join(
                f"{listener}://{name}:{port_of(each.id, listener)}"
                for listener in (CLIENTS, BROKERS)
            ),
        }
        config = BrokerConfig.load(None, keys)
        rng = random.Random(self._rng.getrandbits(64))
        parts = Parts(
            storage=each.disk.storage,
            now_ns=self.clock.now_ns,
            now_ms=lambda: each.wall_clock.now_ms(self.clock),
            rng=rng,
            blocking=each.disk.blocking,
            connect=each.host.connect,
        )
        surroundings = BrokerEnvironment(
            network=each.host,
            now_ns=self.clock.now_ns,
            rng=random.Random(self._rng.getrandbits(64)),
            spend=spender(self.clock, CostPerClass(by_class={}, default_ns=SLICE_NS)),
        )
        apis = KafkaApis(self.control.make(each.id, config, parts))
        await apis.prepare()
        return BrokerServer(config, apis, surroundings), apis
