"""Frames from bytes: the reading part of a connection (Kafka: ``NetworkReceive``).

A frame is a 4-byte size and that many bytes. Most frames arrive completely with one
``recv`` and are slices of its result. A larger frame is received directly into the
object that becomes the frame: its body is never copied, and no byte beyond it is read.

Bytes of one ``recv`` beyond the first frame (from a client that pipelines) are kept
here, at most `READ_SIZE`. Kafka reads exactly one frame and leaves the rest in the
kernel. For schedulers both are the same: those requests are not yet received.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Final

from broker.network.memory_pool import MemoryPool
from broker.network.transport import Connection
from broker.protocol.errors import MalformedFrame

# Below glibc's threshold for mmap, so that buffers of this size need no system call.
READ_SIZE: Final = 65_536
# Largest number of bytes read from a peer at once, so that other peers are served.
_TURN_BYTES: Final = 1 << 20
_SIZE = struct.Struct(">i")


# The first two bytes of a TLS handshake record.
_TLS_START: Final = 0x1603


class PeerClosed(Exception):
    """The peer has finished sending."""


class TlsBytes(MalformedFrame):
    """Raised if the peer begins a TLS handshake at a listener without TLS."""


class Receive:
    """The incoming frames of one connection.

    ``readable`` is false once a ``recv`` would block; the selector's events set it.
    ``buffered``: another frame may follow the last one in the buffer. If both are
    false, ``next_frame`` returns None until a new event. ``frame_bytes_max`` bounds
    the frames that begin from now on.
    """

    __slots__ = (
        "_at",
        "_body",
        "_body_size",
        "_buffer",
        "_connection",
        "_filled",
        "_pool",
        "buffered",
        "frame_bytes_max",
        "peer_finished",
        "readable",
    )

    def __init__(
        self, connection: Connection, *, frame_bytes_max: int, pool: MemoryPool | None
    ) -> None:
        self._connection = connection
        self.frame_bytes_max = frame_bytes_max
        self._pool = pool
        self._buffer = b""
        self._at = 0
        self._body: BytesIO | None = None
        self._body_size = 0
        self._filled = 0
        self.readable = self.buffered = False
        self.peer_finished = False

    @property
    def inside_frame(self) -> bool:
        """Return whether a frame's body is being received, with memory allocated."""
        return self._body is not None

    def next_frame(self) -> bytes | None:
        """Return the next complete frame without its size; None if it is incomplete.

        :raises MalformedFrame: if the size is negative or above the bound.
        :raises PeerClosed: if the peer has finished sending, also inside a frame.
        :raises OSError: if the connection is broken.
        :raises MemoryError: if there is no memory for the announced frame.
        """
        if self._body is not None:
            return self._receive_body(self._body)
        buffer, at = self._buffer, self._at
        while True:
            here = len(buffer) - at
            if here >= 4:
                size: int = _SIZE.unpack_from(buffer, at)[0]
                if not 0 <= size <= self.frame_bytes_max:
                    raise _malformed(size, self.frame_bytes_max)
                end = at + 4 + size
                if here >= 4 + size:
                    if here == 4 + size:
                        self._buffer, self._at, self.buffered = b"", 0, False
                    else:
                        self._buffer, self._at, self.buffered = buffer, end, True
                    if self._pool is not None:
                        self._pool.take(size)
                    return buffer[at + 4 : end]
                if size >= READ_SIZE:
                    return self._start_body(size, buffer, at + 4)
            if not self.readable:
                self._keep(buffer, at)
                return None
            chunk = self._recv()
            buffer, at = (buffer[at:] + chunk if here else chunk), 0

    def abandon(self) -> None:
        """Release the memory of an incomplete frame."""
        if self._body is not None and self._pool is not None:
            self._pool.release(self._body_size)
        self._body = None

    def _keep(self, buffer: bytes, at: int) -> None:
        """Keep the bytes from ``at`` on, which are not a complete frame."""
        if at == len(buffer):
            buffer, at = b"", 0
        self._buffer, self._at, self.buffered = buffer, at, False

    def _recv(self) -> bytes:
        """Read once; return no bytes if that would block."""
        try:
            chunk = self._connection.recv(READ_SIZE)
        except BlockingIOError:
            self.readable = False
            return b""
        if not chunk:
            raise PeerClosed
        if len(chunk) < READ_SIZE and not self.peer_finished:
            # epoll(7): a short read has drained a stream socket.
            self.readable = False
        return chunk

    def _start_body(self, size: int, buffer: bytes, at: int) -> bytes | None:
        """Allocate a buffer of ``size`` bytes, starting with the bytes received."""
        # The allocation may raise, so the pool counts it only afterwards.
        self._body = BytesIO(bytes(size))
        if self._pool is not None:
            self._pool.take(size)
        self._body_size = size
        self._filled = len(buffer) - at
        self._body.getbuffer()[: self._filled] = buffer[at:]
        self._keep(b"", 0)
        return self._receive_body(self._body)

    def _receive_body(self, body: BytesIO) -> bytes | None:
        """Receive into the body; return it when it is complete.

        ``BytesIO`` provides a writable view and, at the end, the ``bytes`` object
        without a copy.
        """
        turn_end = self._filled + _TURN_BYTES
        with body.getbuffer() as whole:
            while self.readable and self._filled < min(self._body_size, turn_end):
                wanted = min(self._body_size, turn_end) - self._filled
                rest = whole[self._filled : self._filled + wanted]
                try:
                    count = self._connection.recv_into(rest)
                except BlockingIOError:
                    self.readable = False
                    break
                finally:
                    rest.release()
                if count == 0:
                    raise PeerClosed
                self._filled += count
                if count < wanted and not self.peer_finished:
                    self.readable = False
        if self._filled < self._body_size:
            return None
        self._body = None
        return body.getvalue()


def _malformed(size: int, bound: int) -> MalformedFrame:
    """Return the error for a frame of invalid size."""
    if size >> 16 == _TLS_START:
        return TlsBytes("a handshake of TLS")
    return MalformedFrame(f"{size} bytes, expected 0 to {bound}")
