"""A socket server with a handler of the test's own, over any network, and its clients.

The frames are written by hand here: header v1 is api key, version, correlation id,
client id; what an echo answers is the correlation id and the body it got.
"""

import contextlib
import random
import socket
import struct
import time

import trio

from broker.handling.registry import APIS
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.network.epoll import TcpNetwork
from broker.network.intake import Intake
from broker.network.processor import ProcessorContext
from broker.network.request_channel import BlindRequestChannel
from broker.network.socket_server import Endpoint, SocketServer
from broker.requests.classifier import Classifier
from experiments.worlds.virtual.memory_network import MemoryNetwork, MemoryStream
from planes import Block, PlaneCore
from planes.dispatcher import Dispatcher
from schedulers import SchedulerConfig, make

PRODUCE, METADATA, LEADER_AND_ISR = 0, 3, 4
DECLARED = {key: APIS[key] for key in (PRODUCE, METADATA, LEADER_AND_ISR, 18)}


def frame(body=b"", *, correlation_id=1, api_key=METADATA, version=1, client=b"test"):
    """Return a whole request with its size prefix."""
    header = struct.pack(">hhih", api_key, version, correlation_id, len(client))
    content = header + client + body
    return struct.pack(">i", len(content)) + content


class TcpWire:
    """Real sockets, and how their clients are made and broken."""

    def __init__(self):
        self.network = TcpNetwork()
        self.now_ns = time.monotonic_ns

    async def connect(self, port):
        return await trio.open_tcp_stream("127.0.0.1", port)

    async def reset(self, stream):
        # Without lingering, close(2) sends a reset.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()


class MemoryWire:
    """A network in memory, on Trio's clock."""

    def __init__(self, **settings):
        self.network = MemoryNetwork(
            now_ns=self.now_ns, rng=random.Random(1), **settings
        )

    @staticmethod
    def now_ns():
        return round(trio.current_time() * 1e9)

    async def connect(self, port, address="127.0.0.1"):
        return MemoryStream(self.network.connect(port, address=address))

    async def reset(self, stream):
        self.network.cut(stream.connection)


async def echo(request):
    """Answer with the body that came."""
    body = request.frame[request.body_offset :]
    content = struct.pack(">i", request.correlation_id) + body
    return (struct.pack(">i", len(content)) + content,)


class Client:
    """A peer that reads whole answers."""

    def __init__(self, stream):
        self.stream = stream
        self._buffer = b""

    async def send(self, data):
        await self.stream.send_all(data)

    async def answer(self):
        """Return (correlation id, body) of the next answer; None at the end."""
        while True:
            if len(self._buffer) >= 4:
                end = 4 + struct.unpack_from(">i", self._buffer)[0]
                if len(self._buffer) >= end:
                    content, self._buffer = self._buffer[4:end], self._buffer[end:]
                    return struct.unpack_from(">i", content)[0], content[4:]
            try:
                chunk = await self.stream.receive_some(65_536)
            except trio.BrokenResourceError:
                chunk = b""
            if not chunk:
                assert not self._buffer, "the connection ended inside an answer"
                return None
            self._buffer += chunk

    async def ask(self, body=b"", **fields):
        """Send one request and return its answer."""
        await self.send(frame(body, **fields))
        return await self.answer()

    async def is_closed(self):
        """Wait until the other side has closed the connection."""
        return await self.answer() is None


class Harness:
    """A broker's network layer with one plane, and no broker behind it."""

    def __init__(
        self,
        network,
        now_ns,
        serve=echo,
        *,
        processors=1,
        capacity=100,
        policy="fifo",
        limits=None,
        pool=None,
        frame_bytes_max=1 << 20,
        idle_ns_max=None,
        listeners=("PLAINTEXT",),
        channel=BlindRequestChannel,
    ):
        self.clients = []
        self.finished = []
        self.plane = PlaneCore(
            "data",
            make(policy, SchedulerConfig()),
            Block(capacity=capacity),
            seats=4,
        )
        self.dispatcher = Dispatcher([self.plane], now_ns=now_ns, quantum_ns=500_000)
        self.quotas = ConnectionQuotas(limits or ConnectionLimits(), now_ns)
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
            housekeeping=self.dispatcher.housekeeping,
        )
        endpoints = [
            Endpoint(
                listener=name,
                host="127.0.0.1",
                port=0,
                processors=processors,
                request_channel=channel(self.plane, self.dispatcher),
            )
            for name in listeners
        ]
        self.server = SocketServer(endpoints, network, context)
        for processor in self.server.processors:
            self.dispatcher.on_empty(processor.poll)

    def port(self, listener="PLAINTEXT"):
        return self.server.ports[listener]

    async def client(self, wire, listener="PLAINTEXT", **fields):
        """Connect a client, which is closed at the end."""
        client = Client(await wire.connect(self.port(listener), **fields))
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
