"""TLS handshakes: connections between their acceptance and a processor.

A connection is *half-open* until its handshake is finished; only then is it passed to a
processor. The resources of unauthenticated clients are bounded:

- number: one more than ``doorkeeper.tls.handshakes.max`` closes the oldest. An honest
  client needs a few round trips only;
- time: ``doorkeeper.tls.handshake.timeout.ms``, independent of received bytes;
- bytes and steps: both are bounded, and a step begins with a complete record, so that
  single bytes cause no step;
- CPU: steps are computed in threads, at most ``doorkeeper.tls.handshake.threads`` at a
  time, in FIFO order, outside of the event loop.

One task waits for the selector, and one task per half-open connection makes its
handshake.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from logging import getLogger
from typing import Final, Protocol, TypeAlias

import trio

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.receive import PeerClosed
from broker.network.tls_connection import TlsConnection
from broker.network.tls_listener import NoPrincipal, TlsListener
from broker.network.transport import Connection, Selector
from broker.observation.logs import fields
from broker.observation.supervisor import Supervisor

logger = getLogger(__name__)

# Certificate chains are the largest part.
_BYTES_MAX: Final = 131_072
_STEPS_MAX: Final = 64
_READ_BYTES: Final = 16_384
_HEADER_BYTES: Final = 5
# Largest record of ciphertext, under TLSv1.2.
_RECORD_MAX: Final = 16_384 + 2_048
_HANDSHAKE_RECORD: Final = 22
# Shortest time between two log lines about failed handshakes, per listener.
_LINE_EVERY_S: Final = 1.0

# Makes a call that takes milliseconds, in a thread or on this thread.
Compute: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


async def compute_here(call: Callable[[], None]) -> None:
    """Make a call on this thread, for virtual time."""
    call()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeLimits:
    """Bounds of half-open connections; ``turns`` is shared by all listeners."""

    half_open_max: int
    timeout_s: float
    turns: trio.CapacityLimiter
    compute: Compute


class HandshakeFailed(Exception):
    """Raised if a peer violates the TLS protocol or a bound on handshakes."""


class Deal(Protocol):
    """Passes a connection to a processor."""

    async def __call__(self, connection: Connection, host: str) -> None:
        """Wait until a processor has taken it."""


class _HalfOpen:
    """A connection during its handshake, with the received part of a record."""

    def __init__(self, connection: TlsConnection, host: str) -> None:
        self.connection = connection
        self.host = host
        self.scope = trio.CancelScope()
        self.moved = trio.Event()
        self.is_evicted = False
        self._received = bytearray()
        self._count = 0
        self._steps = 0

    def receive(self) -> bool:
        """Read; return whether a complete record has been passed to OpenSSL.

        :raises HandshakeFailed: if the bytes are not TLS records, or too many.
        :raises PeerClosed: if the peer has sent nothing, as a port probe does.
        """
        while True:
            whole = self._whole_records()
            if whole:
                self._steps += 1
                if self._steps > _STEPS_MAX:
                    raise HandshakeFailed("too many records")
                self.connection.feed(bytes(self._received[:whole]))
                del self._received[:whole]
                return True
            try:
                chunk = self.connection.raw.recv(_READ_BYTES)
            except BlockingIOError:
                return False
            if not chunk:
                if not self._count:
                    raise PeerClosed
                raise HandshakeFailed("the peer has closed the connection")
            self._received += chunk
            self._count += len(chunk)
            if self._count > _BYTES_MAX:
                raise HandshakeFailed("too many bytes")

    def finish(self) -> None:
        """Pass on the bytes that have arrived after the handshake."""
        self.connection.feed(bytes(self._received))

    def _whole_records(self) -> int:
        """Return the number of bytes in complete records."""
        received, at = self._received, 0
        if received and received[0] != _HANDSHAKE_RECORD and not self._steps:
            raise HandshakeFailed("plaintext bytes at a listener with TLS")
        while len(received) - at >= _HEADER_BYTES:
            size = int.from_bytes(received[at + 3 : at + 5], "big")
            if received[at + 1] != 3 or size > _RECORD_MAX:
                raise HandshakeFailed("bytes that are no record of TLS")
            if len(received) - at < _HEADER_BYTES + size:
                break
            at += _HEADER_BYTES + size
        return at


class Handshakes:
    """The half-open connections of one listener.

    ``deal`` receives each established connection. All others are closed and removed
    from the quotas.
    """

    def __init__(
        self,
        listener: str,
        tls: TlsListener,
        selector: Selector,
        limits: HandshakeLimits,
        quotas: ConnectionQuotas,
        supervisor: Supervisor,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._selector = selector
        self._limits = limits
        self._quotas = quotas
        self._supervisor = supervisor
        # By fileno, oldest first.
        self._half_open: dict[int, _HalfOpen] = {}
        self._nursery: trio.Nursery | None = None
        self._next_line_s = 0.0
        self._unlogged = 0

    def __len__(self) -> int:
        return len(self._half_open)

    async def run(
        self, deal: Deal, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Make handshakes until cancelled; then close half-open connections."""
        self._deal = deal
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await self._supervisor.keep("handshakes", self._watch)
        finally:
            self._nursery = None
            self._selector.close()

    def begin(self, raw: Connection, host: str) -> None:
        """Begin the handshake of an accepted connection, counted in the quotas."""
        assert self._nursery is not None, "handshakes do not run"
        if len(self._half_open) >= self._limits.half_open_max:
            oldest = next(iter(self._half_open.values()))
            oldest.is_evicted = True
            oldest.scope.cancel()
            del self._half_open[oldest.connection.fileno()]
            self._selector.unregister(oldest.connection.raw)
        half = _HalfOpen(self._tls.begin(raw), host)
        self._selector.register(raw)
        self._half_open[raw.fileno()] = half
        self._nursery.start_soon(self._open, half, name="handshake")

    async def _watch(self) -> None:
        while True:
            for fileno, _ in self._selector.poll():
                half = self._half_open.get(fileno)
                if half is not None:
                    half.moved.set()
            await self._selector.wait()

    async def _open(self, half: _HalfOpen) -> None:
        """Make one handshake; pass the connection on, or close it."""
        connection, dealt = half.connection, False
        try:
            with half.scope:
                try:
                    await self._in_time(half)
                    connection.principal = self._tls.principal(connection)
                    self._unwatch(half)
                    half.finish()
                    # Computing is no checkpoint; processors may have ended.
                    await trio.lowlevel.checkpoint_if_cancelled()
                    await self._deal(connection, half.host)
                    dealt = True
                except PeerClosed:
                    pass
                except (HandshakeFailed, NoPrincipal, OSError, ValueError) as fault:
                    self._failed(half, _reason(fault))
                except Exception as fault:  # ends this connection only
                    self._supervisor.note("handshakes", fault)
            if half.is_evicted:
                self._failed(half, "too many handshakes at once")
        finally:
            self._unwatch(half)
            if not dealt:
                connection.close()
                self._quotas.close(self._listener, half.host)

    async def _in_time(self, half: _HalfOpen) -> None:
        with trio.move_on_after(self._limits.timeout_s) as scope:
            await self._shake_hands(half)
        if scope.cancelled_caught:
            raise HandshakeFailed("not finished in time")

    async def _shake_hands(self, half: _HalfOpen) -> None:
        connection = half.connection
        while True:
            half.moved = trio.Event()
            unsent = not self._flushed(connection)
            if connection.is_established and not unsent:
                return
            if not connection.is_established and half.receive():
                async with self._limits.turns:
                    await self._limits.compute(connection.advance)
            else:
                await half.moved.wait()

    def _flushed(self, connection: TlsConnection) -> bool:
        try:
            connection.flush()
        except BlockingIOError:
            return False
        return True

    def _unwatch(self, half: _HalfOpen) -> None:
        """Stop watching the connection."""
        fileno = half.connection.fileno()
        if self._half_open.get(fileno) is half:
            del self._half_open[fileno]
            self._selector.unregister(half.connection.raw)

    def _failed(self, half: _HalfOpen, why: str) -> None:
        """Log a failure, at most one per second."""
        now_s = trio.current_time()
        if now_s < self._next_line_s:
            self._unlogged += 1
            return
        logger.warning(
            "a handshake of TLS has failed; its connection is closed",
            extra=fields(
                listener=self._listener,
                peer=half.host,
                why=why,
                unlogged=self._unlogged,
            ),
        )
        self._next_line_s, self._unlogged = now_s + _LINE_EVERY_S, 0


def _reason(fault: Exception) -> str:
    """Return OpenSSL's reason, or the message of another exception."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"certificate: {fault.verify_message}"
    if isinstance(fault, ssl.SSLError):
        return fault.reason or "TLS"
    return str(fault)
