"""Channels of the controller's requests to brokers: one queue and one task per broker.

Kafka's ``ControllerChannelManager``. A broker receives one request at a time, in the
order of the decisions. A request is repeated until it is answered or the broker's
registration has ended. The channel and its queue end with the registration; a new
registration has a new channel. With ``merges`` the queued requests are merged before
the next request is sent.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import trio

from broker.client.client_config import COMMON, read_settings
from broker.client.network_client import Address, Connect, NetworkClient
from broker.client.signals import Signal
from broker.controller.decisions import PAUSE_ITEMS, ControllerRequest
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import KafkaError
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.merging import merging
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataResponse,
)

# Kafka's ``RequestSendThread``: its pause after a failure.
_RETRY_S: Final = 0.1
_Answer: TypeAlias = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse

# Called with each response: broker id, request, response.
Answered = Callable[[int, ControllerRequest, _Answer], None]


class Registration(NamedTuple):
    """A registration of a broker, and its address for controllers."""

    epoch: int
    host: str
    port: int


@dataclass(slots=True)
class _Channel:
    """The requests for a broker in one registration."""

    registration: Registration
    queue: deque[ControllerRequest] = field(default_factory=deque)
    filled: Signal = field(default_factory=Signal)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class ControllerChannels:
    """Channels by broker id, of one controller in one term."""

    def __init__(
        self,
        controller_id: int,
        connect: Connect,
        rng: random.Random,
        *,
        timeout_ms: int,
        merges: bool,
        answered: Answered,
        supervisor: Supervisor,
    ) -> None:
        settings = read_settings(
            COMMON,
            {"client_id": str(controller_id), "request_timeout_ms": timeout_ms},
        )
        self._client = NetworkClient(settings, connect, rng)
        self._merges = merges
        self._answered = answered
        self._supervisor = supervisor
        self._channels: dict[int, _Channel] = {}
        self._nursery: trio.Nursery | None = None

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Send requests until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._client.run)
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    @property
    def queued(self) -> dict[int, int]:
        """The number of unanswered requests of each broker."""
        return {broker: len(each.queue) for broker, each in self._channels.items()}

    def serve(self, brokers: Mapping[int, Registration]) -> None:
        """Open channels for new registrations, and close those of ended ones."""
        assert self._nursery is not None, "channels do not run"
        for broker, channel in tuple(self._channels.items()):
            if brokers.get(broker) != channel.registration:
                del self._channels[broker]
                channel.scope.cancel()
        for broker, registration in brokers.items():
            if broker not in self._channels:
                channel = self._channels[broker] = _Channel(registration)
                carry = partial(self._carry, broker, channel)
                self._nursery.start_soon(self._keep, channel, carry)

    def send(self, broker: int, request: ControllerRequest) -> None:
        """Queue a request for a broker; drop it if the broker has no channel."""
        channel = self._channels.get(broker)
        if channel is not None:
            channel.queue.append(request)
            channel.filled.notify()

    async def _keep(
        self, channel: _Channel, carry: Callable[[], Awaitable[None]]
    ) -> None:
        with channel.scope:
            await self._supervisor.keep("controller channel", carry)

    async def _carry(self, broker: int, channel: _Channel) -> None:
        _, host, port = channel.registration
        address = Address(host, port, purpose="controller")
        while True:
            while not channel.queue:
                await channel.filled.wait()
            if self._merges:
                await _merge(channel.queue)
            request = channel.queue[0]
            response = await self._call(address, request)
            channel.queue.popleft()
            self._answered(broker, request, response)

    async def _call(self, address: Address, request: ControllerRequest) -> _Answer:
        """Send a request until it is answered."""
        while True:
            try:
                return await self._client.call(address, request, is_large=True)
            except KafkaError:
                await trio.sleep(_RETRY_S)


async def _merge(queue: deque[ControllerRequest]) -> None:
    """Merge the queued requests in steps; later requests are not merged."""
    waiting = len(queue)
    steps = merging(list(queue))
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            merged = done.value
            break
        count += 1
        if not count % PAUSE_ITEMS:
            await trio.lowlevel.checkpoint()
    for _ in range(waiting):
        queue.popleft()
    queue.extendleft(reversed(merged))
