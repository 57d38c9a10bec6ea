"""Frames from bytes: the part of a connection that reads (Kafka: ``NetworkReceive``).

A frame is a 4-byte size and that many bytes. Most frames come whole with one ``recv``
and are cut out of what it returned. A larger one is received straight into the object
that becomes the frame: its body is never copied, and no byte beyond it is read.

Bytes that one ``recv`` returns beyond the first frame (a client that pipelines) wait
here, at most `READ_SIZE` of them; Kafka reads exactly one frame and leaves the rest to
the kernel. No scheduler sees the difference, since either way those requests are not
yet received.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Final

from broker.network.memory_pool import MemoryPool
from broker.network.transport import Connection
from broker.protocol.errors import MalformedFrame

# Below glibc's threshold for mmap: no system call for every buffer of this size.
READ_SIZE: Final = 65_536
# A peer that sends as fast as we read must let others have their turn.
_TURN_BYTES: Final = 1 << 20
_SIZE = struct.Struct(">i")


# The first two bytes of a record with a handshake of TLS.
_TLS_START: Final = 0x1603


class PeerClosed(Exception):
    """The peer has finished sending."""


class TlsBytes(MalformedFrame):
    """The peer begins a handshake of TLS, and the listener has none."""


class Receive:
    """The frames that come in on one connection.

    ``readable`` is false once a ``recv`` would block; the selector's events set it.
    ``buffered`` says that another frame may lie behind the last one. Without either,
    ``next_frame`` has nothing to return before a new event. ``frame_bytes_max`` bounds
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
        """Return whether part of a frame's body has come in, and memory is taken."""
        return self._body is not None

    def next_frame(self) -> bytes | None:
        """Return the next whole frame without its size, or None if it is not here yet.

        :raises MalformedFrame: if the size is negative or above the bound. :raises
        PeerClosed: if the peer finished, whether or not inside a frame. :raises
        OSError: if the connection is broken. :raises MemoryError: if there is no room
        for the announced frame.
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
        """Give back the memory of a frame that will never be whole."""
        if self._body is not None and self._pool is not None:
            self._pool.release(self._body_size)
        self._body = None

    def _keep(self, buffer: bytes, at: int) -> None:
        """Keep what lies behind ``at``, which is not a whole frame."""
        if at == len(buffer):
            buffer, at = b"", 0
        self._buffer, self._at, self.buffered = buffer, at, False

    def _recv(self) -> bytes:
        """Read once; nothing, if that would block."""
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
        """Set up a buffer of exactly ``size`` bytes, begun with the bytes received."""
        # May raise: counted only once there is something to give back.
        self._body = BytesIO(bytes(size))
        if self._pool is not None:
            self._pool.take(size)
        self._body_size = size
        self._filled = len(buffer) - at
        self._body.getbuffer()[: self._filled] = buffer[at:]
        self._keep(b"", 0)
        return self._receive_body(self._body)

    def _receive_body(self, body: BytesIO) -> bytes | None:
        """Receive into the body; return it when it is whole.

        ``BytesIO`` because it hands out both a writable view and, at the end and
        without a copy, the very ``bytes`` object that it wrote to.
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
    """Return the fault of a frame that is too large, or is no frame."""
    if size >> 16 == _TLS_START:
        return TlsBytes("a handshake of TLS")
    return MalformedFrame(f"{size} bytes, expected 0 to {bound}")
