"""The virtual world: the whole broker in virtual time, deterministic from the seed.

The broker is that of the live world. Its sockets, files and clock are replaced by an
in-memory network, an in-memory disk and a clock that moves when computing is charged to
it. Bytes travel, queues fill and processors block as in the live world; only costs are
given instead of measured. Reading a request has the calibrated fixed cost. Each slice
of a handler costs its share of the demand that was drawn for the request, or the cost
of its class in the config's ``[virtual]`` (`costs.py`).

Computing moves the clock for all, so clients' events during a slice are handled at its
end, with their own times; a broker with one CPU could not have read them earlier.
Clients' own work costs nothing.

There is no thread and no real clock: two runs of a trial are equal to the nanosecond.
"""

from __future__ import annotations

import itertools
import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from broker.config import BrokerConfig
from broker.network.transport import WRITABLE
from broker.observation.recording.recording import open_recorder
from broker.requests.request import Request
from broker.server import BrokerEnvironment, BrokerServer
from experiments.design.capacity import read_ns
from experiments.design.config import Experiment
from experiments.design.workload import Workload
from experiments.load import frames, replaying
from experiments.load.arrivals import SECOND_NS
from experiments.load.exchange import Channel, Exchange, Observed, Schedule
from experiments.load.load_requests import SetupRequest, error_of
from experiments.load.senders import senders
from experiments.load.trace import Trace
from experiments.worlds.row_joining import LoadEnd, record_run
from experiments.worlds.virtual.costs import (
    ClientsTime,
    CostlyNetwork,
    SentDemands,
    TraceCosts,
)
from experiments.worlds.virtual.devices import OnDevices, in_pieces
from experiments.worlds.virtual.virtual_cluster import run_cluster
from experiments.worlds.world import (
    LOAD_AS_CONTROLLER,
    MachineTrial,
    RunFiles,
    RunResult,
)
from planes import Task
from simulation.virtual_time.apis import START_MS, kafka_apis, receive_frame
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.memory_network import (
    MemoryConnection,
    MemoryNetwork,
    MemoryStream,
)

# Measured real time of one request, and of one that is replicated.
_REAL_S_PER_REQUEST = 0.0004
_REAL_S_PER_REPLICATED = 0.0012
_LEAD_NS = 20_000_000
_NEVER_NS = 1 << 62
_RECEIVE_BYTES = 1 << 18
_DATA, _CONTROLLER = "PLAINTEXT", "CONTROLLER"


def make(tick: Callable[[], None]) -> Virtual:
    """Return this world; its runs are too short to call ``tick``."""
    return Virtual()


class Virtual:
    """Runs trials in virtual time."""

    name = "virtual"

    def environment(self) -> Mapping[str, Any]:
        """Return that no process is pinned, because there is only one."""
        return {"pinned": False, "cpus": None, "nice": None}

    def estimate_s(self, experiment: Experiment) -> float:
        """Estimate from the number of requests, because virtual time costs no time."""
        workload = experiment.workload
        rate_per_s = sum(map(workload.mean_rate_per_s, workload.traffic))
        requests = rate_per_s * workload.duration_s
        alone = experiment.cluster is None
        return requests * (_REAL_S_PER_REQUEST if alone else _REAL_S_PER_REPLICATED)

    def run(self, trial: MachineTrial, trace: Trace, out: RunFiles) -> RunResult:
        """Replay the trace to a broker in virtual time, write the joined rows."""
        seed = trial.experiment.experiment.seed * 1000 + trial.block
        with tempfile.TemporaryDirectory(prefix="doorkeeper-") as scratch:
            if trial.experiment.cluster is not None:
                return run_cluster(trial, trace, out, Path(scratch), seed)
            record = Path(scratch) / "broker.rows"
            replay = Replay(trial, trace, record)
            seen, end = run_virtual(replay.run, seed=seed)
            return record_run(self.name, trial, trace, out, seen, record, end)


class MemoryLink:
    """A connection of the in-memory network, as an exchange's link."""

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send some bytes of the pieces; return how many."""
        return self._connection.send(b"".join(pieces))

    def receive(self) -> bytes:
        """Return some bytes; none if the peer has finished."""
        return self._connection.recv(_RECEIVE_BYTES)

    def watch(self, *, readable: bool, writable: bool) -> None:
        """Do nothing: the network reports every change."""

    def close(self) -> None:
        """Close the connection, which then reports no more events."""
        self._connection.close()


class Replay:
    """One run: a broker, its network, and the load, in one Trio run."""

    def __init__(self, trial: MachineTrial, replayed: Trace, record: Path) -> None:
        self._experiment = trial.experiment
        self._keys = trial.experiment.broker_keys(trial.arm)
        self._replayed = replayed
        self._record = record
        self._rng = random.Random(f"{trial.experiment.experiment.seed}/{trial.block}")
        self._replay: ScheduleReplay | None = None
        self._network: CostlyNetwork | None = None
        granularity_us = trial.experiment.virtual.granularity_us
        self._pieces = in_pieces(round(granularity_us * 1000))
        self._at_devices = trial.experiment.virtual.server != "cpu"
        self._demands = SentDemands(trial.experiment, replayed, self._rows_of)
        self._costs = TraceCosts(trial.experiment, self._demands)
        self._read_ns = read_ns(trial.experiment)

    async def run(self, clock: VirtualClock) -> tuple[replaying.Seen, LoadEnd]:
        """Serve the load until it is answered, or until the drain deadline."""
        clients = ClientsTime(clock.now_ns)
        network = self._network = CostlyNetwork(
            time=clients,
            rng=self._rng,
            latency_ns=self._latency_ns(),
            read=partial(self._compute, clock, self._read_ns),
        )
        server = self._server(clock, network)
        workload = self._experiment.workload
        async with trio.open_nursery() as travelling:
            await travelling.start(network.run)
            async with trio.open_nursery() as serving:
                await serving.start(server.run)
                node = await _prepare(network, server.ports, workload)
                schedule = replaying.schedule(
                    self._experiment, self._replayed, node, START_MS
                )
                open_one = [
                    partial(network.connect, port)
                    for port in _ports(server.ports, workload)
                ]
                origin_ns = clock.now_ns() + _LEAD_NS
                span_s = workload.duration_s + self._experiment.limits.drain_s
                deadline_ns = origin_ns + round(span_s * SECOND_NS)
                self._replay = ScheduleReplay(
                    clock, clients, open_one, schedule, origin_ns
                )
                observed = await self._replay.run(deadline_ns)
                ended_ns = clock.now_ns()
                server.stop()
            travelling.cancel_scope.cancel()
        seen = {
            **replaying.seen(observed, self._replayed),
            "offered_ns": origin_ns + self._replayed.table["intended_ns"].to_numpy(),
        }
        return seen, LoadEnd(
            origin_ns=origin_ns,
            ended_ns=ended_ns,
            trace_sha256=self._replayed.sha256,
        )

    def _server(self, clock: VirtualClock, network: MemoryNetwork) -> BrokerServer:
        listeners = {"listeners": "PLAINTEXT://127.0.0.1:9092"}
        keys = {**listeners, **LOAD_AS_CONTROLLER, **self._keys}
        config = BrokerConfig.load(None, keys)
        slice_ns = self._costs.slice_ns

        def spend(task: Task) -> None:
            self._compute(clock, slice_ns(task))

        surroundings = BrokerEnvironment(
            network=network,
            now_ns=clock.now_ns,
            rng=self._rng,
            spend=spend,
            recorder=open_recorder(self._record),
        )
        apis = kafka_apis(config, clock, self._rng, network)
        if not self._at_devices:
            return BrokerServer(config, apis, surroundings)

        def needs_ns(request: Request) -> int:
            number = request.correlation_id
            return self._demands.of(number) if number >= 0 else 0

        waiting = OnDevices(apis, needs_ns, wait=self._pieces)
        return BrokerServer(config, waiting, surroundings)

    def _compute(self, clock: VirtualClock, cost_ns: int) -> None:
        """Spend the time of computing; with devices, computing is free."""
        if not self._at_devices:
            clock.jump(cost_ns)
        # Bytes that have come due must be in the sockets before the next poll.
        if self._replay is not None:
            self._replay.catch_up()
        if self._network is not None:
            self._network.catch_up()

    def _rows_of(self, number: int) -> Sequence[int]:
        """Return the rows of the trace that a request under load carries."""
        assert self._replay is not None
        return self._replay.rows_of(number)

    def _latency_ns(self) -> tuple[int, int]:
        low_us, high_us = self._experiment.virtual.latency_us
        return round(low_us * 1000), round(high_us * 1000)


class ScheduleReplay:
    """Replays a schedule over memory connections, in virtual time."""

    def __init__(
        self,
        clock: VirtualClock,
        time: ClientsTime,
        open_one: Sequence[Callable[[], MemoryConnection]],
        schedule: Schedule,
        origin_ns: int,
    ) -> None:
        self._clock = clock
        self._time = time
        self._open_one = open_one
        self._due_ns = [origin_ns + due_ns for due_ns in schedule.due_ns]
        self._offered = 0
        connections = [connect() for connect in open_one]
        links = [MemoryLink(each) for each in connections]
        self._exchange = Exchange(links, schedule, time.now_ns, self._connect)
        self.rows_of = self._exchange.rows_of
        self._answered = trio.Event()
        self._alarmed = trio.Event()
        self._awaited_ns: int | None = None
        channels = self._exchange.channels
        for connection, channel in zip(connections, channels, strict=True):
            connection.on_event = partial(self._on_event, channel)

    def _connect(self, channel: Channel) -> MemoryLink:
        connection = self._open_one[channel.number]()
        connection.on_event = partial(self._on_event, channel)
        return MemoryLink(connection)

    def catch_up(self) -> None:
        """Run all due actions of the clients, each at its own time."""
        now_ns = self._clock.now_ns()
        while (due_ns := self._next_ns()) <= now_ns:
            self._time.at_ns = due_ns
            if self._exchange.next_alarm_ns() == due_ns:
                self._exchange.ring()
            else:
                self._exchange.offer(self._offered)
                self._offered += 1
        self._time.at_ns = None
        self._note()

    def _next_ns(self) -> int:
        """Return the time of the next due request or client alarm."""
        alarm_ns = self._exchange.next_alarm_ns()
        offer_ns = _NEVER_NS
        if self._offered < len(self._due_ns):
            offer_ns = self._due_ns[self._offered]
        return offer_ns if alarm_ns is None else min(alarm_ns, offer_ns)

    async def run(self, deadline_ns: int) -> Observed:
        """Send all requests, then wait for all answers or the deadline."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ring)
            await self._send_all(deadline_ns)
            nursery.cancel_scope.cancel()
        return self._exchange.observed

    async def _send_all(self, deadline_ns: int) -> None:
        while self._offered < len(self._due_ns):
            await trio.sleep_until(self._due_ns[self._offered] / SECOND_NS)
            self.catch_up()
        while self._exchange.outstanding:
            self._answered = trio.Event()
            left_ns = deadline_ns - self._clock.now_ns()
            if left_ns <= 0:
                break
            with trio.move_on_after(left_ns / SECOND_NS):
                await self._answered.wait()

    async def _ring(self) -> None:
        """Run the clients' alarms: late reads, time-outs, retries."""
        while True:
            self._awaited_ns = self._exchange.next_alarm_ns()
            self._alarmed = trio.Event()
            due_ns = self._awaited_ns
            due_s = math.inf if due_ns is None else due_ns / SECOND_NS
            with trio.move_on_at(due_s):
                await self._alarmed.wait()
            self.catch_up()

    def _on_event(
        self, channel: Channel, connection: MemoryConnection, events: int
    ) -> None:
        if events & WRITABLE and channel.open:
            self._exchange.write(channel)
        if events & ~WRITABLE and channel.open:
            self._exchange.read(channel)
        self._note()

    def _note(self) -> None:
        """Wake tasks that wait for an alarm, or for the last answer."""
        if self._exchange.next_alarm_ns() != self._awaited_ns:
            self._alarmed.set()
        if not self._exchange.outstanding:
            self._answered.set()


def _ports(ports: Mapping[str, int], workload: Workload) -> list[int]:
    """Return the port of each connection of the load."""
    control = ports.get(_CONTROLLER, ports[_DATA])
    return [
        control if sender.traffic.request.is_controllers else ports[_DATA]
        for sender in senders(workload)
    ]


async def _prepare(
    network: MemoryNetwork, ports: Mapping[str, int], workload: Workload
) -> frames.Node:
    """Create and fill the load's topics; return the broker for controller requests."""
    stream = MemoryStream(network.connect(ports[_DATA]))
    numbers = itertools.count(1)

    async def send_request(request: SetupRequest) -> bytes:
        while True:
            await stream.send_all(request.frame(-next(numbers)))
            answer = await receive_frame(stream)
            code = error_of(request.api_key, answer)
            if code not in frames.SETTLING:
                key = request.api_key
                assert code == 0, f"set-up request of API {key} was answered {code}"
                return answer
            await trio.sleep(frames.SETTLING_PAUSE_S)

    answer = b""
    for request in frames.setup_requests(workload, START_MS):
        answer = await send_request(request)
    node = frames.node_of(answer)
    for request in frames.preparations(workload, node):
        await send_request(request)
    await stream.aclose()
    return node
