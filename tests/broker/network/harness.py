"""A socket server with a test's own handler, over any network, and its clients.

The echo handler answers with the correlation id and the request body.
"""

import contextlib
import socket
import struct
import time

import trio

from broker.handling.api_registry import APIS
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.network.epoll import TcpNetwork
from broker.network.intake import Intake
from broker.network.processor import ProcessorContext
from broker.network.request_channel import BlindRequestChannel
from broker.network.socket_server import Endpoint, SocketServer
from broker.requests.classifier import Classifier
from broker.requests.entitlement import CONTROLLER
from planes import Block, PlaneCore
from planes.dispatcher import Dispatcher
from schedulers import SchedulerConfig, make
from tests.virtual.hosting import Frames, frame

PRODUCE, METADATA, LEADER_AND_ISR = 0, 3, 4
DECLARED = {key: APIS[key] for key in (PRODUCE, METADATA, LEADER_AND_ISR, 18)}


class TcpWire:
    """Real sockets, with clients that connect and reset."""

    def __init__(self):
        self.network = TcpNetwork()
        self.now_ns = time.monotonic_ns

    async def dial(self, port):
        return await trio.open_tcp_stream("127.0.0.1", port)

    async def reset(self, stream):
        # Without lingering, close(2) resets the connection.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()


async def echo(request):
    """Answer with the body of the request."""
    body = request.frame[request.body_offset :]
    content = struct.pack(">i", request.correlation_id) + body
    return (struct.pack(">i", len(content)) + content,)


class Client:
    """A client that reads whole responses."""

    def __init__(self, stream):
        self.stream = stream
        self._frames = Frames(stream)

    async def send(self, data):
        await self.stream.send_all(data)

    async def answer(self):
        """Return (correlation id, body) of the next answer; None at the end."""
        try:
            content = await self._frames.next()
        except trio.BrokenResourceError:
            content = None
        if content is None:
            assert not self._frames.rest, "the connection ended inside an answer"
            return None
        return struct.unpack_from(">i", content)[0], content[4:]

    async def ask(self, body=b"", **fields):
        """Send one request and return its answer."""
        await self.send(frame(body, **fields))
        return await self.answer()

    async def is_closed(self):
        """Wait until the other side has closed the connection."""
        return await self.answer() is None


class Harness:
    """A broker's network layer with one plane, without the other parts of a broker.

    With a network of `tests.broker.network.tls_wire` its listeners use TLS.
    """

    def __init__(
        self,
        network,
        now_ns,
        serve=echo,
        *,
        processors=1,
        capacity=100,
        limits=None,
        pool=None,
        frame_bytes_max=1 << 20,
        idle_ns_max=None,
        listeners=("PLAINTEXT",),
        address_rates=None,
    ):
        self.clients = []
        self.finished = []
        self.plane = PlaneCore(
            "data",
            make("fifo", SchedulerConfig()),
            Block(capacity=capacity),
            seats=4,
        )
        self.dispatcher = Dispatcher([self.plane], now_ns=now_ns, quantum_ns=500_000)
        self.quotas = ConnectionQuotas(
            limits or ConnectionLimits(), now_ns, address_rates=address_rates
        )
        self.pool = pool
        context = ProcessorContext(
            now_ns=now_ns,
            intake=Intake(serve, Classifier(DECLARED), DECLARED),
            quotas=self.quotas,
            pool=pool,
            finished=[self.finished.append],
            frame_bytes_max=frame_bytes_max,
            idle_ns_max=idle_ns_max,
            debit=self.dispatcher.debit,
            ledger=self.dispatcher.ledger,
        )
        endpoints = [
            Endpoint(
                listener=name,
                host="127.0.0.1",
                port=0,
                processors=processors,
                request_channel=BlindRequestChannel(self.plane, self.dispatcher),
                entitlement=CONTROLLER,
                tls=getattr(network, "tls", None),
            )
            for name in listeners
        ]
        handshakes = getattr(network, "handshakes", None)
        self.server = SocketServer(endpoints, network, context, handshakes)
        for processor in self.server.processors:
            self.dispatcher.on_empty(processor.poll)

    def port(self, listener="PLAINTEXT"):
        return self.server.ports[listener]

    async def client(self, wire, listener="PLAINTEXT", **fields):
        """Connect a client; the harness closes it at the end."""
        client = Client(await wire.dial(self.port(listener), **fields))
        self.clients.append(client)
        return client

    @property
    def connections(self):
        return [processor.connections for processor in self.server.processors]

    @contextlib.asynccontextmanager
    async def running(self):
        async with trio.open_nursery() as nursery:
            await nursery.start(self.dispatcher.run)
            await nursery.start(self.server.run)
            yield self
            for client in self.clients:
                await trio.aclose_forcefully(client.stream)
            nursery.cancel_scope.cancel()
