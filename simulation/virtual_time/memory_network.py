"""A network in memory: bounded buffers, seeded latency, cuts. For virtual time.

It implements ``broker.network.transport``, with the behaviour of TCP that matters to a
broker. A full buffer exerts back-pressure. Bytes arrive later than they were sent, and
in order. A peer can finish sending, vanish, or be cut off in the middle of a frame. The
network passes the same contract tests as real sockets.

Latency is drawn per chunk, for each direction of each connection. Without latency
(``latency_ns=(0, 0)``) bytes arrive at once, and `MemoryNetwork.run` is not needed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import trio

from broker.network.transport import (
    BROKEN,
    PEER_FINISHED,
    READABLE,
    READY_MAX,
    WRITABLE,
    Bytes,
    Connection,
)
from broker.protocol.buffer import FileRegion
from broker.requests.timer import DeadlineTimer

OnEvent = Callable[["MemoryConnection", int], None]
# Largest number of bytes joined for one call.
_JOINED_MAX = 1 << 20


class MemoryNetwork:
    """Hosts, listeners and connections that exist in this process only."""

    def __init__(
        self,
        *,
        now_ns: Callable[[], int],
        rng: random.Random,
        latency_ns: tuple[int, int] = (0, 0),
        buffer_bytes: int = 65_536,
    ) -> None:
        self._now_ns = now_ns
        self._rng = rng
        self._latency_ns = latency_ns
        self.buffer_bytes = buffer_bytes
        self._filenos = itertools.count(1000)
        self._ports = itertools.count(40_000)
        self._listeners: dict[int, MemoryListener] = {}
        self._travelling: list[tuple[int, int, MemoryConnection, bytes | None]] = []
        self._sent = itertools.count()
        self._timer = DeadlineTimer(self._next_arrival_ns, self._arrive, now_ns)

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Carry bytes until cancelled."""
        task_status.started()
        await self._timer.run()

    def listen(self, host: str, port: int) -> MemoryListener:
        """Bind a port; the network has one host."""
        port = port or next(self._ports)
        if port in self._listeners:
            raise OSError(98, f"port {port} is taken")
        listener = self._listeners[port] = MemoryListener(self, host, port)
        return listener

    def selector(self) -> MemorySelector:
        """Return a new selector."""
        return MemorySelector()

    def connect(self, port: int, *, address: str = "127.0.0.1") -> MemoryConnection:
        """Connect from ``address``, or raise `ConnectionRefusedError`."""
        listener = self._listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(111, f"no listener at port {port}")
        ours = MemoryConnection(self, next(self._filenos), address)
        theirs = self.accepted(next(self._filenos), listener.host)
        ours.peer, theirs.peer = theirs, ours
        listener.push(theirs, address)
        return ours

    def accepted(self, fileno: int, address: str) -> MemoryConnection:
        """Return the server's end of a connection."""
        return MemoryConnection(self, fileno, address)

    def cut(self, connection: MemoryConnection) -> None:
        """Break a connection for both sides; bytes in flight are lost."""
        ends = (connection, connection.peer)
        self._travelling = [item for item in self._travelling if item[2] not in ends]
        heapq.heapify(self._travelling)
        for end in ends:
            end.break_off()

    # ---- for connections and listeners --------------------------------------------

    def carry(self, to: MemoryConnection, chunk: bytes | None) -> None:
        """Send a chunk, or the end of the stream (None), to a connection."""
        delay_ns = self.delay_ns(to)
        if delay_ns == 0:
            to.arrive(chunk)
            return
        due_ns = max(self._now_ns() + delay_ns, to.last_arrival_ns)
        to.last_arrival_ns = due_ns
        item = (due_ns, next(self._sent), to, chunk)
        heapq.heappush(self._travelling, item)
        if self._travelling[0] is item:
            self._timer.moved()

    def delay_ns(self, to: MemoryConnection) -> int:
        """Draw the travel time of a chunk to a connection."""
        low, high = self._latency_ns
        return self._rng.randint(low, high) if high else 0

    def free_port(self, port: int) -> None:
        """Free a port; no effect on a free one."""
        self._listeners.pop(port, None)

    def _next_arrival_ns(self) -> int | None:
        return self._travelling[0][0] if self._travelling else None

    def _arrive(self, now_ns: int) -> None:
        while self._travelling and self._travelling[0][0] <= now_ns:
            _, _, to, chunk = heapq.heappop(self._travelling)
            to.arrive(chunk)


class MemoryConnection:
    """One end of a connection, at ``address``; ``on_event`` receives its readiness."""

    peer: MemoryConnection

    def __init__(self, network: MemoryNetwork, fileno: int, address: str) -> None:
        self.address = address
        self._network = network
        self._fileno = fileno
        self._buffer_bytes = network.buffer_bytes
        self._incoming = bytearray()
        # Bytes sent by this end that have not been read, including those in flight.
        self._held = 0
        self._peer_finished = False
        self._finished = False
        self._broken = False
        self._closed = False
        self.last_arrival_ns = 0
        self.on_event: OnEvent | None = None

    def __repr__(self) -> str:
        return f"<memory connection {self._fileno}: {self._held} bytes to be read>"

    @property
    def is_over(self) -> bool:
        """Return whether this end has been closed, or broken."""
        return self._closed or self._broken

    def fileno(self) -> int:
        """Return a number unique in the network."""
        return self._fileno

    def recv(self, size: int, /) -> bytes:
        """Return some of the arrived bytes."""
        self._check_open()
        if not self._incoming:
            if self._peer_finished:
                return b""
            raise BlockingIOError
        chunk = bytes(self._incoming[:size])
        del self._incoming[:size]
        was_full = self._held >= self._buffer_bytes
        self._held -= len(chunk)
        if was_full and not self.peer._closed:
            self.peer.notify(WRITABLE)
        return chunk

    def recv_into(self, buffer: memoryview, size: int = 0, /) -> int:
        """Copy some of the arrived bytes into ``buffer``."""
        chunk = self.recv(size or len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def send(self, data: Bytes, /) -> int:
        """Accept as many bytes as the peer's buffer has room for."""
        self._check_open()
        if self._finished or self.peer._broken:
            raise BrokenPipeError(32, "the sending side is finished")
        room = self._buffer_bytes - self.peer._held
        if room <= 0:
            raise BlockingIOError
        chunk = bytes(data[:room])
        self.peer._held += len(chunk)
        self._network.carry(self.peer, chunk)
        return len(chunk)

    def finish_sending(self) -> None:
        """Finish sending; the peer reads the end of the stream after all bytes."""
        if not self._finished:
            self._finished = True
            self._network.carry(self.peer, None)

    def close(self) -> None:
        """Close this end; sent bytes still arrive."""
        if not self._closed:
            self._closed = True
            self.on_event = None
            if not self._broken:
                self.finish_sending()

    # ---- for the network ------------------------------------------------------------

    def arrive(self, chunk: bytes | None) -> None:
        """Receive a chunk that has arrived."""
        if self._broken:
            return
        if self._closed:
            # TCP answers data for a closed socket with a reset.
            if chunk is not None:
                self.peer.break_off()
            return
        if chunk is None:
            self._peer_finished = True
            self.notify(READABLE | PEER_FINISHED)
        else:
            self._incoming += chunk
            self.notify(READABLE)

    def break_off(self) -> None:
        """Break the connection; all later calls fail."""
        self._broken = True
        self._incoming.clear()
        if not self._closed:
            self.notify(BROKEN | READABLE | WRITABLE)

    def notify(self, events: int) -> None:
        """Report that this end has become ready."""
        if self.on_event is not None:
            self.on_event(self, events)

    def readiness(self) -> int:
        """Return the current readiness of this end."""
        events = 0
        if self._incoming:
            events |= READABLE
        if self._peer_finished:
            events |= READABLE | PEER_FINISHED
        if self._broken:
            events |= BROKEN | READABLE | WRITABLE
        if self.peer._held < self._buffer_bytes:
            events |= WRITABLE
        return events

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(9, "the connection is closed")
        if self._broken:
            raise ConnectionResetError(104, "the connection is broken")


class MemorySelector:
    """Records readiness, edge-triggered as epoll."""

    def __init__(self) -> None:
        self._ready: dict[int, int] = {}
        self._woken = False
        self._lot = trio.lowlevel.ParkingLot()

    def register(self, connection: Connection) -> None:
        """Start reporting on the connection."""
        assert isinstance(connection, MemoryConnection)
        assert connection.on_event is None, "registered twice"
        connection.on_event = self._note
        events = connection.readiness()
        if events:
            self._note(connection, events)

    def unregister(self, connection: Connection) -> None:
        """Stop reporting on the connection."""
        assert isinstance(connection, MemoryConnection)
        connection.on_event = None
        self._ready.pop(connection.fileno(), None)

    def poll(self) -> Sequence[tuple[int, int]]:
        """Return at most `READY_MAX` new events, the oldest first."""
        first = tuple(islice(self._ready, READY_MAX))
        return [(fileno, self._ready.pop(fileno)) for fileno in first]

    async def wait(self) -> None:
        """Wait until a connection is ready or ``wakeup`` is called."""
        if self._ready or self._woken:
            await trio.lowlevel.checkpoint()
        else:
            await self._lot.park()
        self._woken = False

    def wakeup(self) -> None:
        """End the current ``wait``, or else the next one."""
        self._woken = True
        self._lot.unpark()

    def send_many(
        self, connection: Connection, pieces: Sequence[Bytes], more: bool
    ) -> int:
        """Send some of several pieces; only the first if that is large."""
        sent = bytearray()
        for piece in pieces:
            sent += memoryview(piece)[:_JOINED_MAX]
            if len(sent) >= _JOINED_MAX:
                break
        return connection.send(bytes(sent))

    def send_file(
        self, connection: Connection, region: FileRegion, skip: int, size: int
    ) -> int:
        """Send a copy of some of a file's bytes."""
        return connection.send(region.read()[skip : skip + size])

    def close(self) -> None:
        """Drop all recorded readiness."""
        self._ready.clear()

    def _note(self, connection: MemoryConnection, events: int) -> None:
        fileno = connection.fileno()
        self._ready[fileno] = self._ready.get(fileno, 0) | events
        self._lot.unpark()


class MemoryListener:
    """A port that accepts connections."""

    def __init__(self, network: MemoryNetwork, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._network = network
        self._pending: deque[tuple[MemoryConnection, str]] = deque()
        self._lot = trio.lowlevel.ParkingLot()

    async def accept(self) -> tuple[Connection, str]:
        """Wait for a connection; return it and the peer's address."""
        await trio.lowlevel.checkpoint()
        while not self._pending:
            await self._lot.park()
        return self._pending.popleft()

    def push(self, connection: MemoryConnection, address: str) -> None:
        """Queue a connection to be accepted."""
        self._pending.append((connection, address))
        self._lot.unpark()

    def close(self) -> None:
        """Free the port; unaccepted connections are cut off."""
        self._network.free_port(self.port)
        for connection, _ in self._pending:
            self._network.cut(connection)
        self._pending.clear()


class MemoryStream:
    """A client's end as a Trio stream."""

    def __init__(self, connection: MemoryConnection) -> None:
        self.connection = connection
        self._lot = trio.lowlevel.ParkingLot()
        connection.on_event = self._note

    async def send_all(self, data: Bytes) -> None:
        """Send all of ``data``, waiting while the peer's buffer is full."""
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.connection.send(rest) :]
            except BlockingIOError:
                await self._lot.park()
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def receive_some(self, max_bytes: int = 65_536) -> bytes:
        """Receive some bytes; none if the peer has finished."""
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self.connection.recv(max_bytes)
            except BlockingIOError:
                await self._lot.park()
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def send_eof(self) -> None:
        """Finish sending."""
        await trio.lowlevel.checkpoint()
        self.connection.finish_sending()

    async def aclose(self) -> None:
        """Close the connection."""
        self.connection.close()
        self._lot.unpark_all()
        await trio.lowlevel.checkpoint()

    def _note(self, connection: MemoryConnection, events: int) -> None:
        self._lot.unpark_all()
