"""A controller that is not a broker and has complete knowledge of the cluster.

The controller sees at once which brokers are registered and which hosts its own host
reaches. A broker that it has not reached for the session timeout is gone. Decisions
(`Elections`) are sent as by Kafka's controller: one request in flight per broker,
LeaderAndIsr before UpdateMetadata, repeated until it is answered or the broker is gone.
Brokers therefore learn of one decision at different times.

A share of the answered LeaderAndIsr is sent a second time, late and over another
connection, as after a lost answer; brokers must fence it by its epochs. A new
controller epoch sends all state to all brokers again, while unsent requests of the last
epoch are still sent.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import trio

from broker.client.signals import Signal
from broker.cluster.cluster_topics import Topic
from broker.config import DOORKEEPER_CONTROLLER_LISTENERS, BrokerConfig
from broker.coordination.features import NO_FEATURES, FinalizedFeatures
from broker.disk.log_dirs import LogDirs
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode_response, encode_request
from simulation.addresses import BROKERS, port_of
from simulation.cluster import Parts
from simulation.control.controller_listener import serve_controller
from simulation.control.controller_requests import (
    HOST,
    PORT,
    RequestsToBroker,
)
from simulation.control.elections import Elections, LeaderAndIsr
from simulation.control.scripted_coordinator import scripted_coordinator
from simulation.virtual_time.apis import receive_frame
from simulation.virtual_time.network_faults import Host, HostNetwork, Link

_LOOK_S: Final = 0.25
_RETRY_S: Final = 0.1
_DELAY_S: Final = 0.01
_ANSWER_S: Final = 5.0
# The newest versions that carry topic ids.
_VERSIONS: Final = {ApiKey.LEADER_AND_ISR: 6, ApiKey.UPDATE_METADATA: 7}
_PRODUCER_IDS: Final = 1000


@dataclass(slots=True)
class _Channel:
    """Requests of one controller to one broker; a closed channel accepts no more."""

    to_send: list[tuple[ApiKey, Any]] = field(default_factory=list)
    changed: Signal = field(default_factory=Signal)
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True
        self.changed.notify()


@dataclass(slots=True)
class _Registration:
    """A broker as the controller knows it; a live broker has a channel."""

    epoch: int
    host: str
    port: int
    seen_s: float
    channel: _Channel | None = None


class ScriptedController:
    """Decides for all brokers and sends them requests; `run` executes it."""

    def __init__(
        self,
        network: HostNetwork,
        rng: random.Random,
        *,
        session_timeout_s: float,
        repeats: float,
        features: FinalizedFeatures = NO_FEATURES,
    ) -> None:
        """``repeats`` is the share of LeaderAndIsr that are sent a second time."""
        self.features = features
        self._network = network
        self.host = HOST
        self._host = Host(HOST, network)
        self._rng = rng
        self._session_timeout_s = session_timeout_s
        self._repeats = repeats
        self._nursery: trio.Nursery
        self.controller_epoch = 1
        self._broker_epochs = 0
        self._next_producer_id = 0
        self._brokers: dict[int, _Registration] = {}
        self.elections = Elections()
        self.topics: dict[str, Topic] = {}

    # ---- state of the cluster -----------------------------------------------------

    def settings(self, broker: int) -> Mapping[str, str]:
        """Return the listener for requests of this controller and of other brokers."""
        return {DOORKEEPER_CONTROLLER_LISTENERS.name: BROKERS}

    def make(self, broker: int, config: BrokerConfig, parts: Parts) -> Broker:
        """Register a broker that starts, and return it.

        An earlier registration ends first, even if the session had not expired.
        """
        self._register(broker, f"broker-{broker}")
        return Broker(
            config,
            coordinator=scripted_coordinator(self, broker),
            log_dirs=LogDirs(config.log_dirs),
            storage=parts.storage,
            now_ns=parts.now_ns,
            now_ms=parts.now_ms,
            rng=parts.rng,
            blocking=parts.blocking,
            connect=parts.connect,
        )

    def live(self) -> AbstractSet[int]:
        """Return the live brokers."""
        return self.elections.live

    def standings(self) -> Mapping[TopicPartition, LeaderAndIsr]:
        """Return the decision about each partition."""
        return self.elections.states

    def _register(self, broker: int, host: str) -> None:
        known = self._brokers.get(broker)
        if known is not None:
            self._lose(broker, known)
        epoch, now_s = self._next_broker_epoch(), trio.current_time()
        self._brokers[broker] = _Registration(
            epoch, host, port_of(broker, BROKERS), now_s
        )

    def epoch_of(self, broker: int) -> int:
        """Return the epoch of a broker's registration."""
        return self._brokers[broker].epoch

    async def create(
        self,
        name: str,
        assignment: Sequence[tuple[int, ...]],
        configs: Mapping[str, str],
    ) -> None:
        """Create a topic on live brokers."""
        await trio.lowlevel.checkpoint()
        self.topics[name] = Topic(
            name=name,
            topic_id=UUID(int=len(self.topics) + 1),
            leader_epochs=(0,) * len(assignment),
            configs=configs,
        )
        keys = [TopicPartition(name, index) for index in range(len(assignment))]
        for key, replicas in zip(keys, assignment, strict=True):
            self.elections.create(key, replicas)
        self._publish(keys, is_new=True)

    def producer_ids(self) -> range:
        """Return a new block of producer ids."""
        first = self._next_producer_id
        self._next_producer_id += _PRODUCER_IDS
        return range(first, self._next_producer_id)

    def start_again(self, broker: int, keys: Iterable[TopicPartition]) -> None:
        """Send the commands for these partitions again if the broker is live."""
        if self._brokers[broker].channel is not None:
            self._command(broker, keys)

    # ---- operations ---------------------------------------------------------------

    async def prefer(self, key: TopicPartition) -> None:
        """Elect a partition's preferred replica, if possible."""
        await trio.lowlevel.checkpoint()
        self._publish(self.elections.prefer(key))

    async def fail_over(self, until_s: float) -> None:
        """Begin a new controller epoch, which sends all state to all brokers.

        Requests of the last epoch that are still unsent are sent concurrently.
        """
        await trio.lowlevel.checkpoint()
        self.controller_epoch += 1
        for each in self._brokers.values():
            if each.channel is not None:
                each.channel.close()
                self._open_channel(each)
        self._publish(self.elections.states)

    # ---- execution ----------------------------------------------------------------

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Watch brokers, send requests, and answer brokers, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            listener = self._host.listen(HOST, PORT)
            self._nursery.start_soon(serve_controller, listener, self._alter_partition)
            task_status.started()
            while True:
                for broker, each in self._brokers.items():
                    self._check(broker, each)
                await trio.sleep(_LOOK_S)

    def _check(self, broker: int, registration: _Registration) -> None:
        """Detect that a broker has become reachable, or is gone."""
        now_s, host = trio.current_time(), registration.host
        expired = now_s - registration.seen_s > self._session_timeout_s
        ways = (Link(HOST, host), Link(host, HOST))
        if all(self._network.reaches(way) for way in ways):
            registration.seen_s = now_s
            if registration.channel is None:
                if expired:
                    # Live, but without a session: it registers again.
                    registration.epoch = self._next_broker_epoch()
                self._welcome(broker, registration)
        elif expired and registration.channel is not None:
            self._lose(broker, registration)

    def _next_broker_epoch(self) -> int:
        self._broker_epochs += 1
        return self._broker_epochs

    def _open_channel(self, registration: _Registration) -> None:
        channel = registration.channel = _Channel()
        self._nursery.start_soon(self._send_all, registration, channel)

    def _welcome(self, broker: int, registration: _Registration) -> None:
        self._open_channel(registration)
        changed = self.elections.arrived(broker)
        states = self.elections.states
        self._announce(states, [broker])
        self._announce([], self._live())
        self._command(broker, [key for key in states if key not in changed])
        self._publish(changed)

    def _lose(self, broker: int, registration: _Registration) -> None:
        channel, registration.channel = registration.channel, None
        if channel is not None:
            channel.to_send.clear()
            channel.close()
            self._publish(self.elections.remove(broker))
            self._announce([], self._live())

    def _live(self) -> list[int]:
        return [broker for broker, each in self._brokers.items() if each.channel]

    # ---- requests -----------------------------------------------------------------

    def _publish(self, keys: Iterable[TopicPartition], *, is_new: bool = False) -> None:
        keys = list(keys)
        if keys:
            for broker in self._live():
                self._command(broker, keys, is_new=is_new)
            self._announce(keys, self._live())

    def _command(
        self, broker: int, keys: Iterable[TopicPartition], *, is_new: bool = False
    ) -> None:
        """Send a broker LeaderAndIsr for those of these partitions that it has."""
        states = self.elections.states
        ours = {it: states[it] for it in keys if broker in states[it].replicas}
        if ours:
            requests = self._requests_to(broker)
            request = requests.leader_and_isr(ours, is_new=is_new)
            self._enqueue(broker, ApiKey.LEADER_AND_ISR, request)

    def _announce(self, keys: Iterable[TopicPartition], to: Iterable[int]) -> None:
        """Send UpdateMetadata: the live brokers, and these partitions' leaders."""
        announced = {key: self.elections.states[key] for key in keys}
        hosts = {broker: self._brokers[broker].host for broker in self._live()}
        for broker in to:
            request = self._requests_to(broker).update_metadata(announced, hosts)
            self._enqueue(broker, ApiKey.UPDATE_METADATA, request)

    def _requests_to(self, broker: int) -> RequestsToBroker:
        epoch = self._brokers[broker].epoch
        return RequestsToBroker(self.topics, self.controller_epoch, epoch)

    def _enqueue(self, broker: int, key: ApiKey, request: Any) -> None:
        channel = self._brokers[broker].channel
        assert channel is not None
        channel.to_send.append((key, request))
        channel.changed.notify()

    # ---- sending ------------------------------------------------------------------

    async def _send_all(self, registration: _Registration, channel: _Channel) -> None:
        """Send a broker its requests in order; a closed channel ends when empty."""
        while channel.to_send or not channel.is_closed:
            if not channel.to_send:
                await channel.changed.wait()
                continue
            key, request = channel.to_send[0]
            await trio.sleep(self._rng.expovariate(1 / _DELAY_S))
            if not await self._send(registration, key, request):
                await trio.sleep(_RETRY_S)
                continue
            # Empty if the broker has been lost in the meantime.
            del channel.to_send[:1]
            if key is ApiKey.LEADER_AND_ISR and self._rng.random() < self._repeats:
                self._nursery.start_soon(self._repeat, registration, key, request)

    async def _repeat(
        self, registration: _Registration, key: ApiKey, request: Any
    ) -> None:
        await trio.sleep(self._rng.uniform(0, 3))
        await self._send(registration, key, request)

    async def _send(
        self, registration: _Registration, key: ApiKey, request: Any
    ) -> bool:
        """Send a request over a separate connection; True if it was answered."""
        version = _VERSIONS[key]
        frame = encode_request(key, version, 1, HOST, request.to_wire(version))
        with trio.move_on_after(_ANSWER_S):
            try:
                stream = await self._host.connect(registration.host, registration.port)
                await stream.send_all(frame)
                answered = await receive_frame(stream)
                await stream.aclose()
            except (OSError, trio.BrokenResourceError, EOFError):
                return False
            decode_response(key, version, answered)
            return True
        return False

    # ---- ISRs ---------------------------------------------------------------------

    def _alter_partition(
        self, broker: int, broker_epoch: int, topic_id: UUID, proposed: Any
    ) -> tuple[ErrorCode, LeaderAndIsr | None]:
        """Decide on a leader's proposal for one partition."""
        registration = self._brokers[broker]
        if registration.channel is None or registration.epoch != broker_epoch:
            return ErrorCode.stale_broker_epoch, None
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        key = TopicPartition(names[topic_id], proposed.partition_index)
        code = self.elections.alter(
            key,
            leader_epoch=proposed.leader_epoch,
            isr=tuple(proposed.new_isr),
            partition_epoch=proposed.partition_epoch,
        )
        if code is ErrorCode.none:
            self._announce([key], self._live())
        return code, self.elections.states[key]
