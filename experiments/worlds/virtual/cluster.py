"""Several brokers in one virtual run: real replication, and seats of their own.

Every broker is the whole one, with its own disk, over one network in memory. A request
waits for its demand at a device, holding a seat (``devices``), so that one broker's
work takes no time from another's: each seat of each plane is a server of its own, as a
handler thread of Kafka's is on a machine with CPUs enough. Computing is free; what a
request has of a device is billed to it as CPU, which is what policies share.

A PRODUCE costs what the trace drew for it, as often as it is tried; one for a partition
that the broker does not lead is turned away for ``virtual.refusal_us``. Everything else
(followers' fetches, metadata) costs what ``virtual.slice_us`` says of its class, and a
controller's request ``cluster.control_us``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import trio

from broker.config import BrokerConfig
from broker.disk.memory import MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.observation.recording.recording import open_recorder
from broker.protocol.api_keys import ApiKey
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import CONTROL
from broker.requests.request import Request
from broker.server import BrokerServer, Surroundings
from experiments.cluster.book import Book
from experiments.cluster.recorded import record_played
from experiments.cluster.scene import Played, Scene
from experiments.cluster.stage import Address, Node, Stage
from experiments.load.frames import topic_of
from experiments.load.trace import Trace
from experiments.worlds.virtual.apis import START_MS, kafka_apis
from experiments.worlds.virtual.determinism import VirtualClock, run_virtual
from experiments.worlds.virtual.devices import Needs, OnDevices, in_pieces
from experiments.worlds.virtual.memory_network import MemoryNetwork, MemoryStream
from experiments.worlds.world import RunFiles, RunResult, Trial

_HOST, _FIRST_PORT = "127.0.0.1", 9092
_DATA, _CONTROLLER = "PLAINTEXT", "CONTROLLER"


def run_cluster(
    trial: Trial, replayed: Trace, out: RunFiles, scratch: Path, seed: int
) -> RunResult:
    """Play a trial on brokers in virtual time, and write its rows."""
    run = ClusterRun(trial, replayed, scratch)
    played = run_virtual(run.play, seed=seed)
    records = [broker.record for broker in run.brokers]
    return record_played("virtual", trial, replayed, out, played, records)


@dataclass(slots=True, kw_only=True)
class VirtualBroker:
    """A broker: its disk, the file of its records, and what becomes of it."""

    number: int
    record: Path
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    factor: float = 1.0
    server: BrokerServer | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class ClusterRun:
    """The brokers of a run, and their files below ``scratch``: `Lives` of a stage."""

    def __init__(self, trial: Trial, replayed: Trace, scratch: Path) -> None:
        assert trial.experiment.cluster is not None
        self._cluster = trial.experiment.cluster
        self._trial = trial
        self._replayed = replayed
        self.brokers = [
            VirtualBroker(number=number, record=scratch / f"broker-{number}.rows")
            for number in range(self._cluster.brokers)
        ]
        self._seed = f"{trial.experiment.experiment.seed}/{trial.block}"
        self._book = Book()
        self._clock: VirtualClock
        self._network: MemoryNetwork
        self._serving: trio.Nursery

    async def play(self, clock: VirtualClock) -> Played:
        """Start the brokers, play the scene, stop them."""
        low_us, high_us = self._trial.experiment.virtual.latency_us
        self._clock = clock
        self._network = MemoryNetwork(
            now_ns=clock.now_ns,
            rng=random.Random(f"{self._seed}/network"),
            latency_ns=(round(low_us * 1000), round(high_us * 1000)),
        )
        async with trio.open_nursery() as travelling:
            await travelling.start(self._network.run)
            async with trio.open_nursery() as self._serving:
                stage = Stage(
                    nodes=tuple([await self._start(it) for it in self.brokers]),
                    lives=self,
                    connect=self._connect,
                    now_ns=clock.now_ns,
                    timestamp_ms=START_MS,
                )
                scene = Scene(stage, self._trial, self._replayed, self._book)
                played = await scene.play()
                for broker in self.brokers:
                    if broker.server is not None:
                        broker.server.stop()
            travelling.cancel_scope.cancel()
        return played

    # ---- lives --------------------------------------------------------------------

    async def _start(self, broker: VirtualBroker) -> Node:
        """Start a broker; return where it is."""
        await self._serving.start(self._live, broker)
        assert broker.server is not None
        ports = broker.server.ports
        return Node(
            number=broker.number,
            data=Address(_HOST, ports[_DATA]),
            control=Address(_HOST, ports.get(_CONTROLLER, ports[_DATA])),
        )

    async def kill(self, number: int) -> None:
        """End a broker where it stands."""
        broker = self.brokers[number]
        if broker.server is not None:
            broker.scope.cancel()
            await broker.ended.wait()

    def slow(self, number: int, factor: float) -> None:
        """Have requests cost a broker ``factor`` times as much from now on."""
        self.brokers[number].factor = factor

    def fill(self, number: int, *, full: bool) -> None:
        """Leave a broker's disk no room, or have room again."""
        storage = self.brokers[number].storage
        if full:
            storage.fill_up()
        else:
            storage.capacity_bytes = None

    async def _live(
        self, broker: VirtualBroker, task_status: trio.TaskStatus[None]
    ) -> None:
        """Be a broker until it is stopped or killed."""
        broker.server = self._server(broker)
        try:
            with broker.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(broker.server.run)
                    task_status.started()
        finally:
            broker.server = None
            broker.ended.set()

    # ---- what a broker is made of -------------------------------------------------

    async def _connect(self, host: str, port: int) -> MemoryStream:
        await trio.lowlevel.checkpoint()
        return MemoryStream(self._network.connect(port))

    def _server(self, broker: VirtualBroker) -> BrokerServer:
        number, clock = broker.number, self._clock
        keys = {
            "node.id": str(number),
            "log.dirs": "/data",
            **self._trial.experiment.broker_keys(self._trial.arm),
            "listeners": f"{_DATA}://{_HOST}:{_FIRST_PORT + number}",
        }
        config = BrokerConfig.load(None, keys)
        rng = random.Random(f"{self._seed}/{number}")
        apis = kafka_apis(config, clock, rng, self._network, broker.storage)
        granularity_us = self._trial.experiment.virtual.granularity_us

        def billed(request: Request, used_ns: int) -> None:
            request.plane.charge(request, used_ns, clock.now_ns())

        pieces = in_pieces(round(granularity_us * 1000), billed)
        waiting = OnDevices(apis, self._needs(broker, apis), wait=pieces)
        surroundings = Surroundings(
            network=self._network,
            now_ns=clock.now_ns,
            rng=rng,
            recorder=open_recorder(broker.record),
        )
        return BrokerServer(config, waiting, surroundings)

    def _needs(self, broker: VirtualBroker, apis: KafkaApis) -> Needs:
        """Return what requests demand of one broker."""
        virtual = self._trial.experiment.virtual
        by_class = {
            name: round(slice_us * 1000) for name, slice_us in virtual.slice_us.items()
        }
        by_class[CONTROL] = round(self._cluster.control_us * 1000)
        other_ns = round(virtual.other_slice_us * 1000)
        refusal_ns = round(virtual.refusal_us * 1000)
        demands_ns: list[int] = self._replayed.column("demand_ns")
        traffic = self._replayed.column("traffic")
        tries = self._book.tries

        def needs_ns(request: Request) -> int:
            if request.api_key != ApiKey.PRODUCE:
                cost_ns = by_class.get(request.request_class, other_ns)
                return round(cost_ns * broker.factor)
            attempt = tries[request.correlation_id]
            topic = topic_of(traffic[attempt.request_id])
            key = TopicPartition(topic, attempt.partition)
            partition = apis.broker.replicas.partitions.get(key)
            leads = partition is not None and partition.is_leader
            cost_ns = demands_ns[attempt.request_id] if leads else refusal_ns
            return round(cost_ns * broker.factor)

        return needs_ns
