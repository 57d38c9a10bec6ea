"""All listeners of a broker, with their acceptors and processors.

Follows Kafka's ``SocketServer``. A listener has one acceptor and a number of processors
(``num.network.threads``; one for the control plane). Every processor has its own
selector and response queue. Listeners of one plane share its request channel. The
composition root assigns a plane to each listener (`broker.requests.topology`), and the
roles that its connections may claim (`broker.requests.entitlement`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import trio

from broker.network.acceptor import Acceptor
from broker.network.handshakes import HandshakeLimits, Handshakes
from broker.network.processor import Authenticate, Processor, ProcessorContext
from broker.network.request_channel import RequestChannel
from broker.network.tls_connection import TlsSelector
from broker.network.tls_listener import TlsListener
from broker.network.transport import Network, Selector
from broker.protocol.errors import ConfigError
from broker.requests.entitlement import CLIENT, Entitlement

# Precision of connections.max.idle.ms, and of the time to authenticate.
_IDLE_CHECKS_PER_LIMIT = 10
_IDLE_CHECK_NS_MIN = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A listener to open: its address, its number of processors, and their plane.

    ``entitlement`` contains the roles that its connections may claim. ``authenticate``
    creates the authenticator of each connection (None: no SASL). ``tls`` None means
    plaintext.
    """

    listener: str
    host: str
    port: int
    processors: int
    request_channel: RequestChannel
    entitlement: Entitlement = CLIENT
    authenticate: Authenticate | None = None
    tls: TlsListener | None = None


class SocketServer:
    """Server of all endpoints; the constructor opens them, `run` serves them.

    The endpoints begin to accept in their order.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        network: Network,
        context: ProcessorContext,
        handshake_limits: HandshakeLimits | None = None,
    ) -> None:
        self._context = context
        self._authenticates = any(each.authenticate is not None for each in endpoints)
        self._accepting = trio.CancelScope()
        connection_ids = itertools.count()
        processor_ids = itertools.count()
        self.acceptors: list[Acceptor] = []
        for endpoint in endpoints:
            processors = [
                Processor(
                    next(processor_ids),
                    endpoint.listener,
                    endpoint.entitlement,
                    _selector(network, endpoint.tls),
                    endpoint.request_channel,
                    context,
                    endpoint.authenticate,
                )
                for _ in range(endpoint.processors)
            ]
            try:
                listening = network.listen(endpoint.host, endpoint.port)
            except OSError as error:
                found = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
                expected = f"an address that can be bound ({error.strerror})"
                raise ConfigError("listeners", found, expected) from error
            self.acceptors.append(
                Acceptor(
                    endpoint.listener,
                    listening,
                    processors,
                    context.quotas,
                    connection_ids,
                    context.supervisor,
                    _handshakes(endpoint, network, context, handshake_limits),
                )
            )

    @property
    def processors(self) -> Sequence[Processor]:
        """Return the processors of all listeners."""
        return [each for acceptor in self.acceptors for each in acceptor.processors]

    @property
    def ports(self) -> dict[str, int]:
        """Return the port of each listener, also if 0 was configured."""
        return {
            acceptor.listener: acceptor.listening.port for acceptor in self.acceptors
        }

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; then close every connection."""
        async with trio.open_nursery() as nursery:
            for processor in self.processors:
                await nursery.start(processor.run)
            if self._context.idle_ns_max is not None:
                watch = partial(self._watch_idle, self._context.idle_ns_max)
                nursery.start_soon(
                    self._context.supervisor.keep, "idle connections", watch
                )
            if self._authenticates:
                nursery.start_soon(
                    self._context.supervisor.keep,
                    "unauthenticated connections",
                    self._watch_unauthenticated,
                )
            task_status.started()
            with self._accepting:
                async with trio.open_nursery() as accepting:
                    first, *others = self.acceptors
                    accepting.start_soon(first.run)
                    for acceptor in others:
                        # The previous acceptor reads its backlog first.
                        await trio.lowlevel.checkpoint()
                        accepting.start_soon(acceptor.run)

    def stop_accepting(self) -> None:
        """Accept no connections and read no requests; running requests are answered."""
        self._accepting.cancel()
        for processor in self.processors:
            processor.stop_reading()

    async def _watch_idle(self, idle_ns_max: int) -> None:
        """Close idle connections, at most a tenth of the limit or 0.1 s late."""
        period_ns = max(idle_ns_max // _IDLE_CHECKS_PER_LIMIT, _IDLE_CHECK_NS_MIN)
        while True:
            await trio.sleep(period_ns / 1e9)
            for processor in self.processors:
                processor.expire_idle()

    async def _watch_unauthenticated(self) -> None:
        """Close unauthenticated connections, at most a tenth of the limit late."""
        limit_ns = self._context.authentication_ns_max
        period_ns = max(limit_ns // _IDLE_CHECKS_PER_LIMIT, _IDLE_CHECK_NS_MIN)
        while True:
            await trio.sleep(period_ns / 1e9)
            since_ns = self._context.now_ns() - limit_ns
            for processor in self.processors:
                while processor.close_unauthenticated(since_ns):
                    await trio.lowlevel.checkpoint()


def _selector(network: Network, tls: TlsListener | None) -> Selector:
    selector = network.selector()
    return selector if tls is None else TlsSelector(selector)


def _handshakes(
    endpoint: Endpoint,
    network: Network,
    context: ProcessorContext,
    limits: HandshakeLimits | None,
) -> Handshakes | None:
    if endpoint.tls is None:
        return None
    assert limits is not None, "TLS without limits of its handshakes"
    return Handshakes(
        endpoint.listener,
        endpoint.tls,
        network.selector(),
        limits,
        context.quotas,
        context.supervisor,
    )
