"""Connections to brokers: opened on demand, reopened when lost, with backoff.

Kafka's ``NetworkClient``, with a task per connection instead of a poll loop. A node is
an address and a purpose: fetches, which wait in the broker, and group requests have
separate connections, since a broker serves one request of a connection at a time.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import trio

from broker.client.backoff import Backoff
from broker.client.client_config import (
    CLIENT_ID,
    CONNECTION_SETUP_TIMEOUT_MS,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MS,
    REQUEST_TIMEOUT_MS,
    ClientConfig,
)
from broker.client.connection import Body, Connection, Done, R, Stream, Written
from broker.client.retriable_errors import disconnected, timed_out
from broker.client.signals import Changes
from broker.client.versions import NO_LIMITS, SPOKEN, FinalizedFeatures, Versions
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import KafkaError
from broker.protocol.messages.message import NO_TIME, AnyRequest
from broker.protocol.messages.produce import ProduceRequest

Connect: TypeAlias = Callable[[str, int], Awaitable[Stream]]


class Address(NamedTuple):
    """The address of a broker, and the purpose of its connection."""

    host: str
    port: int
    purpose: str = "main"


async def connect_tcp(host: str, port: int) -> Stream:
    """Open a TCP stream; raises `OSError`, and other errors for invalid hosts."""
    return await trio.open_tcp_stream(host, port)


async def reach(connect: Connect, host: str, port: int, timeout_s: float) -> Stream:
    """Connect within a time limit; raises `OSError` for any failure.

    Failed authentication raises `KafkaError`. Addresses come from peers, so other
    exceptions are converted: `UnicodeError` for a host that cannot be encoded,
    `OverflowError` for a port above 65535, `RuntimeError` for a resolver without a
    thread.
    """
    try:
        with trio.fail_after(timeout_s):
            return await connect(host, port)
    except (AssertionError, KafkaError):
        raise
    except Exception as error:
        why = "too slow" if isinstance(error, trio.TooSlowError) else error
        raise OSError(f"{host}:{port} cannot be reached: {why}") from error


class Node:
    """A broker's address with its current connection, if any."""

    def __init__(self, address: Address, client: NetworkClient) -> None:
        self._address = address
        self._client = client
        self._connection: Connection | None = None
        self._wanted = trio.Event()
        self._failures = 0
        self._attempts = 0
        self._why: KafkaError | None = None
        self._changes = Changes()
        self._throttled_until_s = 0.0

    @property
    def in_flight(self) -> int:
        """Return the number of requests that wait for a response or to be written."""
        return 0 if self._connection is None else self._connection.in_flight

    def ready(self) -> bool:
        """Return whether a request can be submitted now; connect if necessary."""
        if self._connection is None or not self._connection.is_open:
            self._wanted.set()
            return False
        return trio.current_time() >= self._throttled_until_s

    @property
    def throttled_until_s(self) -> float:
        """The end of the broker's throttle time (KIP-219)."""
        return self._throttled_until_s

    def submit(
        self,
        request: AnyRequest[R],
        done: Done[R],
        timeout_s: float,
        body: Body | None = None,
        newest: Mapping[ApiKey, int] = NO_LIMITS,
    ) -> None:
        """Send a request over a connection that is `ready`."""
        assert self._connection is not None

        def answered(answer: R | KafkaError) -> None:
            if not isinstance(answer, KafkaError) and answer.throttle_time > NO_TIME:
                # KIP-219: the broker reads no further request until then.
                until_s = trio.current_time() + answer.throttle_time.total_seconds()
                self._throttled_until_s = max(self._throttled_until_s, until_s)
            done(answer)

        self._connection.submit(request, timeout_s, answered, body, newest)

    def submit_unanswered(self, request: ProduceRequest, done: Written) -> None:
        """Send a request without a response over a connection that is `ready`."""
        assert self._connection is not None
        self._connection.submit_unanswered(request, done)

    async def connected(self) -> Connection:
        """Wait for a connection; raises `KafkaError` when the next attempt fails."""
        attempts = self._attempts
        while self._connection is None or not self._connection.is_open:
            self._wanted.set()
            if self._attempts > attempts and self._why is not None:
                raise self._why
            await self._changes.next()
        return self._connection

    async def run(self) -> None:
        """Connect on demand, until cancelled."""
        while True:
            await self._wanted.wait()
            await trio.sleep(self._client.reconnect_backoff.after(self._failures))
            self._wanted = trio.Event()
            await self._attempt()

    async def _attempt(self) -> None:
        """Connect once, and run the connection until it ends."""
        timeout_s = self._client.setup_timeout_s
        host, port = self._address.host, self._address.port
        try:
            stream = await reach(self._client.connect, host, port, timeout_s)
        except OSError as error:
            self._failed(disconnected(str(error)))
            return
        except KafkaError as refused:
            self._failed(refused)
            return
        connection = Connection(stream, self._client.client_id, self._client.spoken)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            try:
                await connection.negotiate(timeout_s)
            except KafkaError as error:
                connection.close(str(error))
                self._failed(error)
                return
            self._failures = 0
            self._connection = connection
            self._client.take_features(connection.features)
            self._notify()
        # Backoff also applies to a broker that closes connections after the handshake.
        self._failures = 1
        self._notify()
        self._client.on_disconnect()

    def _failed(self, why: KafkaError) -> None:
        self._failures += 1
        self._attempts += 1
        self._why = why
        self._notify()
        self._client.on_disconnect()

    def _notify(self) -> None:
        self._changes.notify()
        self._client.on_change()


class NetworkClient:
    """All connections of one client.

    ``on_change`` is called when a connection is opened or closed. ``on_disconnect`` is
    called when one has been closed or could not be opened, since leaders may have
    changed. ``spoken`` are the supported versions.
    """

    def __init__(
        self,
        config: ClientConfig,
        connect: Connect,
        rng: random.Random,
        spoken: Versions = SPOKEN,
    ) -> None:
        self.connect = connect
        self.spoken = spoken
        self.client_id = config[CLIENT_ID]
        self.setup_timeout_s = config.seconds(CONNECTION_SETUP_TIMEOUT_MS)
        self.request_timeout_s = config.seconds(REQUEST_TIMEOUT_MS)
        self.reconnect_backoff = Backoff(
            config.seconds(RECONNECT_BACKOFF_MS),
            config.seconds(RECONNECT_BACKOFF_MAX_MS),
            rng,
        )
        self.on_change: Callable[[], None] = _do_nothing
        self.on_disconnect: Callable[[], None] = _do_nothing
        self._nodes: dict[Address, Node] = {}
        self._features = FinalizedFeatures()
        self._nursery: trio.Nursery | None = None

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run all connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def take_features(self, features: FinalizedFeatures) -> None:
        """Store the finalized features that a broker reports, unless outdated.

        Brokers learn of a change at different times.
        """
        if features.epoch >= self._features.epoch:
            self._features = features

    def feature_level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if unknown."""
        return self._features.levels.get(name, 0)

    def node(self, address: Address) -> Node:
        """Return the node of an address; create it if necessary."""
        if address not in self._nodes:
            assert self._nursery is not None, "the client does not run"
            self._nodes[address] = node = Node(address, self)
            self._nursery.start_soon(node.run)
        return self._nodes[address]

    async def call(
        self,
        address: Address,
        request: AnyRequest[R],
        timeout_s: float = 0.0,
        *,
        is_large: bool = False,
        newest: Mapping[ApiKey, int] = NO_LIMITS,
    ) -> R:
        """Send a request and return the response; raises `KafkaError`.

        A request that ``is_large`` is encoded in steps, and must not change meanwhile.
        ``newest`` has upper bounds of versions.

        If cancelled, the request may have been sent; its response is ignored.
        """
        timeout_s = timeout_s or self.request_timeout_s
        node = self.node(address)
        replied = trio.Event()
        found: list[R | KafkaError] = []

        def done(answer: R | KafkaError) -> None:
            found.append(answer)
            replied.set()

        with trio.move_on_after(timeout_s):
            connection = await node.connected()
            body = None
            if is_large:
                body = await connection.encoded(request)
                await node.connected()
            node.submit(request, done, timeout_s, body, newest)
            await replied.wait()
        if not found:
            raise timed_out(f"{request.api_key.name}: no answer within {timeout_s} s")
        (answer,) = found
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def _do_nothing() -> None:
    """Do nothing: there is no listener yet."""
