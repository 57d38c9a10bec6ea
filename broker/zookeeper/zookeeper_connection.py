"""A connection to a server: ordered requests and responses, with events between them.

Requests are submitted, and responses processed, by synchronous calls. Therefore
messages that precede a response in the stream, in particular events, are processed
before it.

A connection ends when the server is silent for two thirds of the session's time-out,
sends malformed bytes, or sends a response larger than `ANSWER_BYTES_MAX`. All calls
without a response then fail with ConnectionLoss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import trio

from broker.client.connection import Stream
from broker.client.signals import Signal
from broker.protocol.errors import MalformedFrame
from broker.zookeeper.jute import ANSWER_BYTES_MAX, Frames, Reader, framed, packed_int
from broker.zookeeper.watches import Watches
from broker.zookeeper.znodes import ConnectionLoss, WatchEvent
from broker.zookeeper.zookeeper_messages import (
    EVENT_XID,
    OK,
    PING_XID,
    Greeting,
    OpCode,
    Request,
    read_event,
    read_greeting,
)

# As in Java's client: a silent server is detected while time remains to connect to
# another one, and after a second ping.
_SILENCE_SHARE: Final = 2 / 3
_PING_SHARE: Final = 1 / 3
_XID_MAX: Final = 0x7FFFFFFF

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, MalformedFrame)


class Call:
    """A request and its outcome: a code, and a response if the code is OK."""

    def __init__(self, request: Request[Any]) -> None:
        self.request = request
        self.code = OK
        self.answer: Any = None
        self.done = trio.Event()
        # The caller no longer waits: an unsent request is not sent.
        self.abandoned = False

    def fail(self, code: int) -> None:
        """Complete the call with an error code."""
        self.code = code
        self.done.set()


class _InFlight(NamedTuple):
    """A call sent with ``xid``, without a response yet."""

    xid: int
    call: Call


class Connection:
    """A stream to one server, and its requests in flight."""

    def __init__(
        self,
        stream: Stream,
        *,
        watches: Watches,
        on_event: Callable[[WatchEvent], None],
        last_zxid: int,
    ) -> None:
        self._stream = stream
        self._watches = watches
        self._on_event = on_event
        # The latest transaction in a response.
        self.last_zxid = last_zxid
        self._frames = Frames(ANSWER_BYTES_MAX)
        self._in_flight: deque[_InFlight] = deque()
        self._outgoing: list[bytes] = []
        self._written = Signal()
        self._xid = 0
        self._scope = trio.CancelScope()
        self._silence_s = 0.0
        self.why = "the connection was closed"

    async def greet(self, request: bytes) -> Greeting:
        """Request a session; raises one of `BROKEN`."""
        await self._stream.send_all(framed(request))
        greeting = read_greeting(await self._next_frame())
        self._silence_s = greeting.timeout_ms / 1000 * _SILENCE_SHARE
        self._ping_s = greeting.timeout_ms / 1000 * _PING_SHARE
        return greeting

    def submit(self, call: Call) -> None:
        """Send a request, unless its caller no longer waits."""
        if call.abandoned:
            return
        self._xid = self._xid % _XID_MAX + 1
        self._in_flight.append(_InFlight(self._xid, call))
        self._write(self._xid, call.request.opcode, call.request.body)

    async def run(self) -> None:
        """Transfer messages until the connection ends; `why` is then the reason."""
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            self._restart_timeout()
            nursery.start_soon(self._write_all)
            nursery.start_soon(self._read_all)
            nursery.start_soon(self._ping)
        if trio.current_time() >= self._scope.deadline:
            self.why = f"the server was silent for {self._silence_s} s"

    async def aclose(self) -> None:
        """Close the stream; calls in flight fail with ConnectionLoss."""
        while self._in_flight:
            self._in_flight.popleft().call.fail(ConnectionLoss.code)
        with trio.CancelScope() as at_once:
            at_once.cancel()
            await self._stream.aclose()

    # ---- writing --------------------------------------------------------------------

    def _write(self, xid: int, opcode: int, body: bytes = b"") -> None:
        self._outgoing.append(framed(packed_int(xid) + packed_int(opcode) + body))
        self._written.notify()

    async def _ping(self) -> None:
        while True:
            await trio.sleep(self._ping_s)
            self._write(PING_XID, OpCode.PING)

    async def _write_all(self) -> None:
        try:
            while True:
                await self._written.wait()
                frames, self._outgoing = self._outgoing, []
                await self._stream.send_all(b"".join(frames))
        except BROKEN as error:
            self._end(error)

    # ---- reading --------------------------------------------------------------------

    async def _read_all(self) -> None:
        try:
            while True:
                self._take(await self._next_frame())
        except BROKEN as error:
            self._end(error)

    async def _next_frame(self) -> bytes:
        while (frame := self._frames.next()) is None:
            chunk = await self._stream.receive_some()
            if not chunk:
                raise trio.BrokenResourceError("the server closed the connection")
            self._frames.receive(chunk)
            self._restart_timeout()
        return frame

    def _take(self, frame: bytes) -> None:
        reader = Reader(frame)
        xid, zxid, code = reader.read_int(), reader.read_long(), reader.read_int()
        if xid == EVENT_XID:
            event = read_event(reader)
            self._watches.triggered(event)
            self._on_event(event)
        elif xid != PING_XID:
            self._answer(xid, zxid, code, reader)

    def _answer(self, xid: int, zxid: int, code: int, reader: Reader) -> None:
        if not self._in_flight or self._in_flight[0].xid != xid:
            raise MalformedFrame(f"answer {xid} to another question")
        call = self._in_flight[0].call
        call.answer = call.request.read(reader) if code == OK else None
        call.code = code
        self._in_flight.popleft()
        self.last_zxid = max(self.last_zxid, zxid)
        self._watches.answered(call.request, code)
        call.done.set()

    def _restart_timeout(self) -> None:
        self._scope.deadline = trio.current_time() + self._silence_s

    def _end(self, error: Exception) -> None:
        self.why = str(error)
        self._scope.cancel()
