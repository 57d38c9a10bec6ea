"""One connection: requests out in order, answers in, matched by correlation id.

Kafka's ``InFlightRequests`` and the part of ``NetworkClient`` that manages them.
Responses come in the order of the requests (a broker serves one request of a connection
at a time), so the correlation id is only a check. Requests are submitted by a
synchronous call, and responses are delivered by a synchronous call. Each response is
thus handled before other code runs, and no handling is cancelled half way.

A connection fails as a whole: if a request is not answered in time, or if a response is
malformed or larger than `FRAME_MAX`. All requests in flight then fail with
NETWORK_EXCEPTION, in order; the broker may or may not have executed them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import trio

from broker.client.retriable_errors import disconnected
from broker.client.signals import Signal
from broker.client.versions import (
    HANDSHAKE,
    NO_LIMITS,
    SPOKEN,
    FinalizedFeatures,
    Versions,
    chosen_versions,
    decode_handshake,
    finalized_features,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from broker.protocol.messages.api_versions import ApiVersionsResponse
from broker.protocol.messages.message import AnyRequest, AnyResponse
from broker.protocol.messages.produce import ProduceRequest
from broker.protocol.schemas import RESPONSES
from broker.protocol.schemas.message import Versioned
from broker.protocol.wire.codec import (
    ONE_STEP_BYTES,
    decode_response,
    decode_response_in_steps,
    encode_body_in_steps,
    encode_request,
    request_frame,
)

# Kafka's socket.request.max.bytes, applied to responses.
FRAME_MAX: Final = 104_857_600
_RECEIVE_BYTES: Final = 1 << 18
_ID_MASK: Final = 0x7FFFFFFF

R = TypeVar("R", bound=AnyResponse)
_T = TypeVar("_T")
# Receives the response or the error.
Done: TypeAlias = Callable[[R | KafkaError], None]
Written: TypeAlias = Callable[[KafkaError | None], None]


class Stream(Protocol):
    """The used methods of a transport, a subset of those of Trio's streams."""

    async def send_all(self, data: bytes) -> None:
        """Send all bytes."""

    async def receive_some(self) -> bytes:
        """Return some bytes; empty at the end of the stream."""

    async def aclose(self) -> None:
        """Close the stream."""


class Body(NamedTuple):
    """The body of a request, encoded for one version."""

    version: int
    encoded: bytes


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    version: int
    deadline_s: float
    done: Done[Any]


class Connection:
    """A stream to one broker, and the requests in flight over it."""

    def __init__(
        self, stream: Stream, client_id: str, spoken: Versions = SPOKEN
    ) -> None:
        self._stream = stream
        self._client_id = client_id
        self._spoken = spoken
        self._in_flight: deque[_InFlight] = deque()
        self._outgoing: list[bytes] = []
        # Unwritten requests without a response (acks=0).
        self._unwritten: deque[Written] = deque()
        self._written = Signal()
        self._next_id = 0
        self._scope = trio.CancelScope()
        self._why = "the connection was closed"
        self.versions: dict[ApiKey, int] = {}
        self.features = FinalizedFeatures()
        self.is_open = True

    @property
    def in_flight(self) -> int:
        """Return the number of requests that wait for a response or to be written."""
        return len(self._in_flight) + len(self._unwritten)

    async def encoded(self, request: AnyRequest[R]) -> Body | None:
        """Return the body of a large request, encoded in steps.

        None: the broker supports no version of the API.
        """
        version = self.versions.get(request.api_key)
        if version is None:
            return None
        steps = encode_body_in_steps(request.api_key, version, request)
        return Body(version, await _in_steps(steps))

    def submit(
        self,
        request: AnyRequest[R],
        timeout_s: float,
        done: Done[R],
        body: Body | None = None,
        newest: Mapping[ApiKey, int] = NO_LIMITS,
    ) -> None:
        """Send a request; ``done`` is called once, with the response or the error.

        ``newest`` has upper bounds of versions.
        """
        api_key = request.api_key
        version = self.versions.get(api_key)
        if version is not None:
            version = min(version, newest.get(api_key, version))
        if version is None:
            code = ErrorCode.unsupported_version
            done(KafkaError(code, f"the broker speaks no {api_key.name} of ours"))
        elif not self.is_open:
            done(disconnected(self._why))
        else:
            self._send(request, version, timeout_s, done, body)

    def submit_unanswered(self, request: ProduceRequest, done: Written) -> None:
        """Send a request without a response: a Produce with acks=0.

        ``done`` is called once, when the request is written, or with the error.
        """
        if not self.is_open:
            done(disconnected(self._why))
            return
        self._unwritten.append(done)
        self._write(request, self.versions[request.api_key])

    def close(self, why: str) -> None:
        """End the connection."""
        if self.is_open:
            self.is_open = False
            self._why = why
            self._scope.cancel()

    async def run(self) -> None:
        """Send and receive until the connection ends; requests in flight then fail."""
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                self._update_deadline()
                if not self.is_open:
                    self._scope.cancel()
                nursery.start_soon(self._write_all)
                nursery.start_soon(self._read_all)
        finally:
            if self.is_open and trio.current_time() >= self._next_deadline_s():
                self._why = "a request was not answered in time"
            self.is_open = False
            with trio.CancelScope() as at_once:
                at_once.cancel()
                await self._stream.aclose()
            while self._in_flight:
                self._in_flight.popleft().done(disconnected(self._why))
            while self._unwritten:
                self._unwritten.popleft()(disconnected(self._why))

    async def negotiate(self, timeout_s: float) -> None:
        """Negotiate the versions of APIs with the broker; raises `KafkaError`."""
        answer = await self._request_versions(3, timeout_s)
        if answer is None:
            answer = await self._request_versions(0, timeout_s)
        if answer is None:
            raise KafkaError(ErrorCode.unsupported_version, "no version of ApiVersions")
        self.versions = chosen_versions(answer, self._spoken)
        self.features = finalized_features(answer)

    async def _request_versions(
        self, version: int, timeout_s: float
    ) -> ApiVersionsResponse | None:
        replied = trio.Event()
        found: list[ApiVersionsResponse | KafkaError | None] = []

        def done(answer: ApiVersionsResponse | KafkaError | None) -> None:
            found.append(answer)
            replied.set()

        self._send(HANDSHAKE, version, timeout_s, done)
        await replied.wait()
        (answer,) = found
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    # ---- writing --------------------------------------------------------------------

    def _send(
        self,
        request: AnyRequest[R],
        version: int,
        timeout_s: float,
        done: Done[R],
        body: Body | None = None,
    ) -> None:
        number = self._write(request, version, body)
        deadline_s = trio.current_time() + timeout_s
        self._in_flight.append(
            _InFlight(number, request.api_key, version, deadline_s, done)
        )
        self._update_deadline()

    def _write(
        self, request: AnyRequest[R], version: int, body: Body | None = None
    ) -> int:
        number, self._next_id = self._next_id, (self._next_id + 1) & _ID_MASK
        api_key = request.api_key
        # All versions supported here have the fields of the request.
        if body is not None and body.version == version:
            pieces = (body.encoded,)
            frame = request_frame(api_key, version, number, self._client_id, pieces)
        else:
            frame = encode_request(api_key, version, number, self._client_id, request)
        self._outgoing.append(frame)
        self._written.notify()
        return number

    async def _write_all(self) -> None:
        try:
            while True:
                await self._written.wait()
                while self._outgoing:
                    frames, self._outgoing = self._outgoing, []
                    unanswered = len(self._unwritten)
                    await self._stream.send_all(b"".join(frames))
                    for _ in range(unanswered):
                        self._unwritten.popleft()(None)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(f"the connection broke: {error}")

    # ---- reading --------------------------------------------------------------------

    async def _read_all(self) -> None:
        received = bytearray()
        try:
            while True:
                chunk = await self._stream.receive_some()
                if not chunk:
                    return self.close("the broker closed the connection")
                received += chunk
                await self._take_frames(received)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(f"the connection broke: {error}")
        except (MalformedFrame, KafkaError) as error:
            self.close(f"the broker answers nonsense: {error}")

    async def _take_frames(self, received: bytearray) -> None:
        """Deliver the complete frames in ``received``, and remove them."""
        start = 0
        while len(received) - start >= 4:
            size = int.from_bytes(received[start : start + 4], "big", signed=True)
            if not 4 <= size <= FRAME_MAX:
                raise MalformedFrame(f"a frame of {size} bytes")
            end = start + 4 + size
            if len(received) < end:
                break
            await self._answer(bytes(memoryview(received)[start + 4 : end]))
            start = end
        del received[:start]

    async def _answer(self, frame: bytes) -> None:
        """Deliver a response to the first request in flight.

        A large frame is decoded in steps.
        """
        if not self._in_flight:
            raise MalformedFrame("an answer to nothing")
        oldest = self._in_flight[0]
        if oldest.api_key is ApiKey.API_VERSIONS:
            answer: Any
            correlation_id, answer = decode_handshake(oldest.version, frame)
        else:
            api_key, version = oldest.api_key, oldest.version
            if len(frame) <= ONE_STEP_BYTES:
                correlation_id, answer = decode_response(api_key, version, frame)
            else:
                correlation_id, answer = await _in_steps(
                    decode_response_in_steps(api_key, version, frame)
                )
            if isinstance(answer, Versioned):
                answer = RESPONSES[oldest.api_key].from_wire(answer)
        if correlation_id != oldest.correlation_id:
            found, expected = correlation_id, oldest.correlation_id
            raise MalformedFrame(f"correlation id {found}, expected {expected}")
        self._in_flight.popleft()
        self._update_deadline()
        oldest.done(answer)

    # ---- deadlines ------------------------------------------------------------------

    def _next_deadline_s(self) -> float:
        return min((each.deadline_s for each in self._in_flight), default=math.inf)

    def _update_deadline(self) -> None:
        self._scope.deadline = self._next_deadline_s()


async def _in_steps(work: Generator[None, None, _T]) -> _T:
    """Return the result of ``work``; other tasks run between its steps."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _T = done.value
            return result
        await trio.lowlevel.checkpoint()
