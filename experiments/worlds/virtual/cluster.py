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
from pathlib import Path

import trio

from broker.config import BrokerConfig
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
from experiments.worlds.world import Cell, RunFiles, RunResult

_HOST, _FIRST_PORT = "127.0.0.1", 9092
_DATA, _CONTROLLER = "PLAINTEXT", "CONTROLLER"


def run_cluster(
    cell: Cell, replayed: Trace, out: RunFiles, scratch: Path, seed: int
) -> RunResult:
    """Play a cell on brokers in virtual time, and write its rows."""
    run = ClusterRun(cell, replayed, scratch)
    played = run_virtual(run.play, seed=seed)
    return record_played("virtual", cell, replayed, out, played, run.records)


class ClusterRun:
    """The brokers of a run, and their files below ``scratch``."""

    def __init__(self, cell: Cell, replayed: Trace, scratch: Path) -> None:
        assert cell.experiment.cluster is not None
        self._cell = cell
        self._replayed = replayed
        numbers = range(cell.experiment.cluster.brokers)
        self.records = [scratch / f"broker-{number}.rows" for number in numbers]
        self._seed = f"{cell.experiment.experiment.seed}/{cell.block}"
        self._book = Book()

    async def play(self, clock: VirtualClock) -> Played:
        """Start the brokers, play the scene, stop them."""
        low_us, high_us = self._cell.experiment.virtual.latency_us
        network = MemoryNetwork(
            now_ns=clock.now_ns,
            rng=random.Random(f"{self._seed}/network"),
            latency_ns=(round(low_us * 1000), round(high_us * 1000)),
        )
        servers = [
            self._server(number, clock, network) for number in range(len(self.records))
        ]

        async def connect(host: str, port: int) -> MemoryStream:
            await trio.lowlevel.checkpoint()
            return MemoryStream(network.connect(port))

        stage = Stage(
            nodes=tuple(_node(number, each) for number, each in enumerate(servers)),
            connect=connect,
            now_ns=clock.now_ns,
            timestamp_ms=START_MS,
        )
        async with trio.open_nursery() as travelling:
            await travelling.start(network.run)
            async with trio.open_nursery() as serving:
                for server in servers:
                    await serving.start(server.run)
                scene = Scene(stage, self._cell, self._replayed, self._book)
                played = await scene.play()
                for server in servers:
                    server.stop()
            travelling.cancel_scope.cancel()
        return played

    def _server(
        self, number: int, clock: VirtualClock, network: MemoryNetwork
    ) -> BrokerServer:
        keys = {
            "node.id": str(number),
            "log.dirs": "/data",
            **self._cell.experiment.broker_keys(self._cell.arm),
            "listeners": f"{_DATA}://{_HOST}:{_FIRST_PORT + number}",
        }
        config = BrokerConfig.load(None, keys)
        rng = random.Random(f"{self._seed}/{number}")
        apis = kafka_apis(config, clock, rng, network)
        granularity_us = self._cell.experiment.virtual.granularity_us

        def billed(request: Request, used_ns: int) -> None:
            request.plane.charge(request, used_ns, clock.now_ns())

        pieces = in_pieces(round(granularity_us * 1000), billed)
        waiting = OnDevices(apis, self._needs(apis), wait=pieces)
        surroundings = Surroundings(
            network=network,
            now_ns=clock.now_ns,
            rng=rng,
            recorder=open_recorder(self.records[number]),
        )
        return BrokerServer(config, waiting, surroundings)

    def _needs(self, apis: KafkaApis) -> Needs:
        """Return what requests demand of one broker."""
        virtual = self._cell.experiment.virtual
        by_class = {
            name: round(slice_us * 1000) for name, slice_us in virtual.slice_us.items()
        }
        assert self._cell.experiment.cluster is not None
        by_class[CONTROL] = round(self._cell.experiment.cluster.control_us * 1000)
        other_ns = round(virtual.other_slice_us * 1000)
        refusal_ns = round(virtual.refusal_us * 1000)
        demands_ns: list[int] = self._replayed.column("demand_ns")
        traffic = self._replayed.column("traffic")
        tries = self._book.tries

        def needs_ns(request: Request) -> int:
            if request.api_key != ApiKey.PRODUCE:
                return by_class.get(request.request_class, other_ns)
            attempt = tries[request.correlation_id]
            topic = topic_of(traffic[attempt.request_id])
            key = TopicPartition(topic, attempt.partition)
            partition = apis.broker.replicas.partitions.get(key)
            leads = partition is not None and partition.is_leader
            return demands_ns[attempt.request_id] if leads else refusal_ns

        return needs_ns


def _node(number: int, server: BrokerServer) -> Node:
    ports = server.ports
    return Node(
        number=number,
        data=Address(_HOST, ports[_DATA]),
        control=Address(_HOST, ports.get(_CONTROLLER, ports[_DATA])),
    )
