"""Requests to other brokers, for callers that cannot wait but are called back.

One Trio task makes the calls. Requests submitted before it runs wait for it. Requests
in progress when it ends are reported as failed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import trio

from broker.client.client_config import COMMON, read_settings
from broker.client.network_client import Address, Connect, NetworkClient
from broker.client.signals import Signal
from broker.client.versions import SPOKEN_BETWEEN_BROKERS
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.message import RequestMessage

# Receives the response or an error.
Done = Callable[[Any], None]
_Call = tuple[int, "RequestMessage[Any]", Done]


class BrokerCalls:
    """Calls to brokers by their ids; ``find`` returns an inter-broker address."""

    def __init__(
        self,
        client_id: str,
        find: Callable[[int], tuple[str, int] | None],
        connect: Connect,
        rng: random.Random,
    ) -> None:
        self._client_id = client_id
        self._find = find
        self._connect = connect
        self._rng = rng
        self._calls: deque[_Call] = deque()
        self._submitted = Signal()
        self.supervisor = Supervisor()

    def submit(self, broker_id: int, request: RequestMessage[Any], done: Done) -> None:
        """Send a request; ``done`` is called once, by a Trio task."""
        self._calls.append((broker_id, request, done))
        self._submitted.notify()

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Make calls until cancelled; all CPU is used within ``billed``."""

        async def make_calls() -> None:
            await self._run(billed)

        await self.supervisor.keep("broker calls", make_calls)

    async def _run(self, billed: AbstractContextManager[object]) -> None:
        settings = read_settings(COMMON, {"client_id": self._client_id})
        client = NetworkClient(
            settings, self._connect, self._rng, SPOKEN_BETWEEN_BROKERS
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            while True:
                await self._submitted.wait()
                while self._calls:
                    call = self._calls.popleft()
                    nursery.start_soon(self._make, client, billed, call)

    async def _make(
        self,
        client: NetworkClient,
        billed: AbstractContextManager[object],
        call: _Call,
    ) -> None:
        broker_id, request, done = call
        answer: object = KafkaError(ErrorCode.network_exception)
        address = self._find(broker_id)
        try:
            if address is None:
                raise KafkaError(ErrorCode.broker_not_available)
            where = Address(*address, purpose=self._client_id)
            answer = await client.call(where, request)
        except KafkaError as refused:
            answer = refused
        finally:
            with billed:
                done(answer)
