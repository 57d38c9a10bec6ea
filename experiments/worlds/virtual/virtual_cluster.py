"""Several brokers in one virtual run: real replication, separate seats.

Every broker is a complete one with its own disk, over one network in memory, and a
member of one ZooKeeper in memory. The first broker to register has no replicas and is
the controller. A request waits for its demand at a device, with its seat (``devices``),
so the work of brokers is concurrent: each seat of each plane is a separate server, like
a handler thread of Kafka on a machine with enough CPUs. Computing is free. A request's
time at a device is billed to it as CPU time, which policies share.

Each attempt of a PRODUCE has the cost that was drawn in the trace. An attempt for a
partition that the broker does not lead is rejected for ``virtual.refusal_us``. Other
requests (followers' fetches, metadata) cost ``virtual.slice_us`` of their class, and a
controller's request ``cluster.control_us``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import trio

from broker.assembly import assemble
from broker.config import BrokerConfig
from broker.disk.memory import MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.observation.recording.recording import open_recorder
from broker.protocol.api_keys import ApiKey
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import CONTROL
from broker.requests.request import Request
from broker.server import BrokerEnvironment, BrokerServer
from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.in_memory.zookeeper_server import ZooKeeperServer
from experiments.cluster.attempt_log import AttemptLog
from experiments.cluster.cluster_under_test import Address, ClusterUnderTest, Node
from experiments.cluster.loaded_cluster import ClusterOutcome, LoadedCluster, reasons
from experiments.cluster.member_keys import Endpoints, member_keys
from experiments.cluster.recorded import BrokerRecording, record_outcome
from experiments.load.frames import topic_of
from experiments.load.trace import Trace
from experiments.processes.children import UNKNOWN_CPU_TIME, CpuTime, RunFailed
from experiments.worlds.virtual.devices import Needs, OnDevices, in_pieces
from experiments.worlds.world import MachineTrial, RunFiles, RunResult
from simulation.virtual_time.apis import START_MS
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.memory_zookeeper import memory_zookeeper
from simulation.virtual_time.network_faults import Host, HostNetwork, between

_ZOOKEEPER_HOST, _ZOOKEEPER_PORT = "127.0.0.1", 2181
_FIRST_DATA_PORT, _FIRST_CONTROL_PORT = 9092, 10092
_TICK_MS_MAX = 500
_NS_PER_MS = 1_000_000


def run_cluster(
    trial: MachineTrial, replayed: Trace, out: RunFiles, scratch: Path, seed: int
) -> RunResult:
    """Run a trial on brokers in virtual time, and write its rows."""
    run = ClusterRun(trial, replayed, scratch)
    fault = ""
    try:
        outcome = run_virtual(run.run, seed=seed)
    except* RunFailed as failures:
        fault = reasons(failures)
    if fault:
        return RunResult(
            valid=False, reason=fault, recorded=False, trace_sha256=replayed.sha256
        )
    return record_outcome("virtual", trial, replayed, out, outcome, run.records)


@dataclass(slots=True, kw_only=True)
class VirtualBroker:
    """A broker over all its starts: its host, its disk, and its state."""

    number: int
    host: Host
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    factor: float = 1.0
    server: BrokerServer | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class ClusterRun:
    """The brokers of a run, with their files below ``scratch``, and their faults."""

    def __init__(self, trial: MachineTrial, replayed: Trace, scratch: Path) -> None:
        assert trial.experiment.cluster is not None
        self._cluster = trial.experiment.cluster
        self._trial = trial
        self._replayed = replayed
        self._scratch = scratch
        # Recordings of brokers with replicas, one for each start.
        self.records: list[BrokerRecording] = []
        self._seed = f"{trial.experiment.experiment.seed}/{trial.block}"
        self._attempt_log = AttemptLog()
        self._clock: VirtualClock
        self._network: HostNetwork
        self._serving: trio.Nursery
        self._brokers: list[VirtualBroker]

    async def run(self, clock: VirtualClock) -> ClusterOutcome:
        """Start the brokers, run the trial, stop them."""
        low_us, high_us = self._trial.experiment.virtual.latency_us
        self._clock = clock
        self._network = HostNetwork(
            now_ns=clock.now_ns,
            rng=random.Random(f"{self._seed}/network"),
            latency_ns=(round(low_us * 1000), round(high_us * 1000)),
        )
        numbers = range(self._cluster.brokers + 1)
        self._brokers = [
            VirtualBroker(number=it, host=self._network.host(f"broker-{it}"))
            for it in numbers
        ]
        async with trio.open_nursery() as travelling:
            await travelling.start(self._network.run)
            await travelling.start(self._zookeeper().run)
            async with trio.open_nursery() as self._serving:
                # The first broker to register becomes the controller.
                for broker in reversed(self._brokers):
                    await self._start(broker)
                loaded = LoadedCluster(
                    self._under_test(), self._trial, self._replayed, self._attempt_log
                )
                outcome = await loaded.run()
                for broker in self._brokers:
                    if broker.server is not None:
                        broker.server.stop()
            travelling.cancel_scope.cancel()
        return outcome

    def _under_test(self) -> ClusterUnderTest:
        *nodes, controller = [
            Node(number=it.number, data=Address(it.host.name, _data_port(it.number)))
            for it in self._brokers
        ]
        return ClusterUnderTest(
            nodes=tuple(nodes),
            controller=controller,
            zookeeper=f"{_ZOOKEEPER_HOST}:{_ZOOKEEPER_PORT}",
            faults=self,
            connect=self._network.host("clients").connect,
            now_ns=self._clock.now_ns,
            timestamp_ms=START_MS,
            zookeeper_ns=lambda at_ms: (at_ms - START_MS) * _NS_PER_MS,
        )

    def _zookeeper(self) -> ZooKeeperServer:
        service = ZooKeeperService(
            now_ns=self._clock.now_ns,
            rng=random.Random(f"{self._seed}/zookeeper"),
            tick_ms=min(_TICK_MS_MAX, max(1, round(self._cluster.session_ms / 2))),
            start_ms=START_MS,
        )
        return memory_zookeeper(
            service,
            self._network,
            _ZOOKEEPER_PORT,
            request_s=self._cluster.decision_ms / 1000,
        )

    # ---- starts -------------------------------------------------------------------

    async def _start(self, broker: VirtualBroker) -> None:
        broker.scope, broker.ended = trio.CancelScope(), trio.Event()
        self._network.bring_up(broker.host.name)
        await self._serving.start(self._live, broker)

    async def stop(self, number: int) -> None:
        """Stop a broker cleanly, and wait until it has stopped."""
        broker = self._brokers[number]
        if broker.server is not None:
            broker.server.stop()
            await broker.ended.wait()

    async def kill(self, number: int) -> None:
        """Kill a broker."""
        broker = self._brokers[number]
        self._network.take_down(broker.host.name)
        broker.storage = broker.storage.after_kill()
        broker.scope.cancel()
        await broker.ended.wait()

    async def restart(self, number: int) -> None:
        """Start a broker on its files; a running one is stopped first."""
        await self.stop(number)
        await self._start(self._brokers[number])

    async def cut(self, one: int, other: int, *, apart: bool) -> None:
        """Cut the connection between two brokers, or restore it."""
        await trio.lowlevel.checkpoint()
        names = [self._brokers[number].host.name for number in (one, other)]
        links = between(names[:1], names[1:])
        if apart:
            self._network.silence(links)
        else:
            self._network.restore(links)

    async def slow(self, number: int, factor: float) -> None:
        """Multiply the cost of a broker's requests by ``factor`` from now on."""
        await trio.lowlevel.checkpoint()
        self._brokers[number].factor = factor

    async def fill(self, number: int, *, full: bool) -> None:
        """Fill a broker's disk, or free it again."""
        await trio.lowlevel.checkpoint()
        storage = self._brokers[number].storage
        if full:
            storage.fill_up()
        else:
            storage.capacity_bytes = None

    def cpu_time(self, number: int) -> CpuTime:
        """Return no CPU time, because handlers wait at devices."""
        return UNKNOWN_CPU_TIME

    async def _live(
        self, broker: VirtualBroker, task_status: trio.TaskStatus[None]
    ) -> None:
        """Run a broker until it is stopped or killed."""
        try:
            with broker.scope:
                broker.server = await self._server(broker)
                async with trio.open_nursery() as nursery:
                    await nursery.start(broker.server.run)
                    task_status.started()
        finally:
            broker.server = None
            broker.ended.set()

    # ---- parts of a broker --------------------------------------------------------

    async def _server(self, broker: VirtualBroker) -> BrokerServer:
        number, clock, experiment = broker.number, self._clock, self._trial.experiment
        endpoints = Endpoints(
            host=broker.host.name,
            data=_data_port(number),
            control=_FIRST_CONTROL_PORT + number,
            zookeeper=f"{_ZOOKEEPER_HOST}:{_ZOOKEEPER_PORT}",
        )
        keys = member_keys(experiment, self._trial.arm, number, endpoints)
        config = BrokerConfig.load(None, {"log.dirs": "/data", **keys})
        rng = random.Random(f"{self._seed}/{number}")
        apis = KafkaApis(
            assemble(
                config,
                storage=broker.storage,
                now_ns=clock.now_ns,
                now_ms=lambda: START_MS + clock.now_ms(),
                rng=rng,
                connect=broker.host.connect,
            )
        )
        await apis.prepare()

        def billed(request: Request, used_ns: int) -> None:
            request.task.plane.charge(request.task, used_ns, clock.now_ns())

        pieces = in_pieces(round(experiment.virtual.granularity_us * 1000), billed)
        surroundings = BrokerEnvironment(
            network=broker.host,
            now_ns=clock.now_ns,
            rng=rng,
            recorder=open_recorder(self._record(number)),
        )
        waiting = OnDevices(apis, self._needs(broker, apis), wait=pieces)
        return BrokerServer(config, waiting, surroundings)

    def _record(self, number: int) -> Path:
        """Return the path for the recording of a broker's next start."""
        starts = sum(it.broker == number for it in self.records)
        file = self._scratch / f"broker-{number}-{starts}.rows"
        if number < self._cluster.brokers:
            self.records.append(BrokerRecording(number, file))
        return file

    def _needs(self, broker: VirtualBroker, apis: KafkaApis) -> Needs:
        """Return a function that computes a request's demand at one broker."""
        virtual = self._trial.experiment.virtual
        by_class = {
            name: round(slice_us * 1000) for name, slice_us in virtual.slice_us.items()
        }
        by_class[CONTROL] = round(self._cluster.control_us * 1000)
        other_ns = round(virtual.other_slice_us * 1000)
        refusal_ns = round(virtual.refusal_us * 1000)
        demands_ns: list[int] = self._replayed.column("demand_ns")
        traffic = self._replayed.column("traffic")
        tries = self._attempt_log.tries

        def needs_ns(request: Request) -> int:
            if request.api_key != ApiKey.PRODUCE:
                cost_ns = by_class.get(request.task.request_class, other_ns)
                return round(cost_ns * broker.factor)
            attempt = tries[request.correlation_id]
            topic = topic_of(traffic[attempt.request_id])
            key = TopicPartition(topic, attempt.partition)
            partition = apis.broker.replicas.partitions.get(key)
            leads = partition is not None and partition.is_leader
            cost_ns = demands_ns[attempt.request_id] if leads else refusal_ns
            return round(cost_ns * broker.factor)

        return needs_ns


def _data_port(number: int) -> int:
    return _FIRST_DATA_PORT + number
