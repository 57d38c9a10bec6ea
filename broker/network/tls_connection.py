"""TLS below the network layer: an encrypting connection and its selector.

`TlsConnection` is a `Connection` over another one. OpenSSL works on two buffers in
memory, so none of its calls accesses a socket, and the same code runs in virtual time.
`TlsSelector` is a `Selector` over another one. Listeners without TLS use neither, at no
cost.

Two properties of sockets that the layers above rely on are kept:

- ``recv`` returns less than requested only if no more bytes are available. A TLS record
  has at most 16 KiB, so ``recv`` continues until it has enough or the socket is empty.
- ``send`` reports bytes as taken when the socket has taken their ciphertext. Until then
  the caller offers the same bytes again, as ``SSL_write`` requires. They are *sealed*:
  encrypted once, and not read again. A response is therefore finished when its
  ciphertext was sent, and no bytes remain to be flushed.
"""

from __future__ import annotations

import io
import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast

from broker.network.transport import READABLE, Bytes, Connection, Selector
from broker.protocol.buffer import FileRegion
from broker.protocol.principal import ANONYMOUS, KafkaPrincipal

# Bytes that are read or encrypted in one step.
_STEP_BYTES: Final = 65_536
# A peer that sends this many bytes without content, or leaves this many bytes of TLS
# replies unread, is disconnected.
_WITHOUT_CONTENT_MAX: Final = 1 << 20
_UNREAD_MAX: Final = 1 << 18


class TlsConnection:
    """The broker's end of a connection with TLS.

    ``principal`` is that of the peer's certificate, once the handshake is finished.
    """

    def __init__(self, raw: Connection, context: ssl.SSLContext) -> None:
        self.raw = raw
        self.principal: KafkaPrincipal = ANONYMOUS
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # Ciphertext that the socket has not taken, and the number of its content bytes
        # that have not been reported as taken.
        self._unsent: Bytes = b""
        self._sealed = 0
        self._without_content = 0
        self.is_established = False
        # Called if the end of the stream was received together with returned content.
        self.on_end: Callable[[], None] = _do_nothing

    def __repr__(self) -> str:
        return f"<TLS over {self.raw!r}>"

    # ---- handshake ------------------------------------------------------------------

    def feed(self, records: Bytes) -> None:
        """Add received bytes, beginning with those of the handshake."""
        self._incoming.write(records)

    def advance(self) -> None:
        """Compute the next step of the handshake; may take milliseconds.

        :raises ssl.SSLError: if it fails; the caller then flushes an alert.
        """
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self.is_established = True

    def certificate(self) -> bytes | None:
        """Return the peer's verified certificate in DER."""
        return self._tls.getpeercert(binary_form=True)

    def flush(self) -> None:
        """Send the pending ciphertext; raise BlockingIOError if some remains."""
        if self._outgoing.pending:
            more = self._outgoing.read()
            self._unsent = b"".join((self._unsent, more)) if self._unsent else more
        unsent = memoryview(self._unsent)
        try:
            while unsent:
                unsent = unsent[self.raw.send(unsent) :]
        finally:
            self._unsent = unsent

    @property
    def has_received(self) -> bool:
        """Return whether received bytes are buffered here and not read yet."""
        return bool(self._incoming.pending or self._tls.pending())

    # ---- the interface of `Connection` ----------------------------------------------

    def fileno(self) -> int:
        """Return the number of the underlying connection."""
        return self.raw.fileno()

    def recv(self, size: int, /) -> bytes:
        """Return received bytes, fewer than ``size`` only if the socket is empty."""
        pieces: list[bytes] = []
        wanted = size
        self._without_content = 0
        while wanted:
            try:
                piece = self._read(wanted)
            except ssl.SSLWantReadError:
                if not self._fetch(bool(pieces)):
                    break
            else:
                if not piece:
                    self._end(bool(pieces))
                    break
                pieces.append(piece)
                wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def recv_into(self, buffer: memoryview, size: int = 0, /) -> int:
        """Put received bytes into ``buffer``; return their number."""
        wanted = size or len(buffer)
        filled = 0
        self._without_content = 0
        while filled < wanted:
            try:
                with buffer[filled:wanted] as rest:
                    count = self._read_into(rest)
            except ssl.SSLWantReadError:
                if not self._fetch(filled > 0):
                    break
            else:
                if not count:
                    self._end(filled > 0)
                    break
                filled += count
        return filled

    def send(self, data: Bytes, /) -> int:
        """Take some of ``data``; after BlockingIOError offer the same data again.

        Bytes count as taken when the socket has taken their ciphertext.
        """
        if not self._sealed and data:
            self._sealed = self._tls.write(memoryview(data)[:_STEP_BYTES])
        return self.send_sealed()

    @property
    def is_sealed(self) -> bool:
        """Return whether bytes are encrypted and not yet reported as taken."""
        return self._sealed > 0

    def send_sealed(self) -> int:
        """Send the sealed bytes, and return their number."""
        self.flush()
        count, self._sealed = self._sealed, 0
        return count

    def close(self) -> None:
        """Close the connection, with a ``close_notify`` if the socket is writable."""
        if self.is_established:
            with suppress(OSError):
                self._tls.unwrap()
        with suppress(OSError):
            self.flush()
        self.raw.close()

    def _read(self, wanted: int) -> bytes:
        """Decrypt some content; return no bytes at the end."""
        try:
            return self._tls.read(wanted)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _read_into(self, buffer: memoryview) -> int:
        """Decrypt some content into a buffer; return its size, 0 at the end."""
        try:
            # With a buffer, `read` returns a number.
            return cast(int, self._tls.read(len(buffer), cast(bytearray, buffer)))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def _fetch(self, has_some: bool) -> bool:
        """Receive ciphertext; return whether bytes or the end of the stream arrived.

        :raises BlockingIOError: if neither arrived and no content was decrypted before.
        """
        if self._outgoing.pending:
            self._reply()
        try:
            chunk = self.raw.recv(_STEP_BYTES)
        except BlockingIOError:
            if has_some:
                return False
            raise
        if not chunk:
            self._incoming.write_eof()
            return True
        self._without_content += len(chunk)
        if self._without_content > _WITHOUT_CONTENT_MAX:
            raise ConnectionAbortedError("records of TLS without content")
        self._incoming.write(chunk)
        return True

    def _end(self, has_some: bool) -> None:
        """Report the end after content, for which the socket may have no event."""
        if has_some:
            self.on_end()

    def _reply(self) -> None:
        """Send replies of the TLS protocol itself, such as a key update."""
        try:
            self.flush()
        except BlockingIOError:
            if len(self._unsent) > _UNREAD_MAX + _STEP_BYTES:
                raise ConnectionAbortedError(
                    "replies of TLS that are not read"
                ) from None


class TlsSelector:
    """The connections of one processor of a listener with TLS."""

    def __init__(self, beneath: Selector) -> None:
        self._beneath = beneath
        self.wait = beneath.wait
        self.wakeup = beneath.wakeup
        self.close = beneath.close
        # Connections that are ready without an event of the socket: their first bytes
        # arrived with the handshake, or their end with content.
        self._early: list[int] = []

    def register(self, connection: Connection) -> None:
        """Report on the connection from now on, beginning with its present state."""
        assert isinstance(connection, TlsConnection)
        self._beneath.register(connection.raw)
        connection.on_end = partial(self._note, connection.fileno())
        if connection.has_received:
            self._note(connection.fileno())

    def _note(self, fileno: int) -> None:
        self._early.append(fileno)
        self.wakeup()

    def unregister(self, connection: Connection) -> None:
        """Report no more on the connection."""
        assert isinstance(connection, TlsConnection)
        self._beneath.unregister(connection.raw)

    def poll(self) -> Sequence[tuple[int, int]]:
        """Return the ready connections."""
        ready = self._beneath.poll()
        if self._early:
            early, self._early = self._early, []
            return [*ready, *((fileno, READABLE) for fileno in early)]
        return ready

    def send_many(
        self, connection: Connection, pieces: Sequence[Bytes], more: bool
    ) -> int:
        """Send some of several pieces, which are joined and encrypted together."""
        assert isinstance(connection, TlsConnection)
        if connection.is_sealed:
            return connection.send_sealed()
        return connection.send(_joined(pieces))

    def send_file(
        self, connection: Connection, region: FileRegion, skip: int, size: int
    ) -> int:
        """Send some of a file, which is read and encrypted."""
        assert isinstance(connection, TlsConnection)
        if connection.is_sealed:
            return connection.send_sealed()
        size = min(size, _STEP_BYTES)
        try:
            data: Bytes = os.pread(region.fileno(), size, region.position + skip)
        except io.UnsupportedOperation:
            data = memoryview(region.read())[skip : skip + size]
        return connection.send(data) if data else 0


def _joined(pieces: Sequence[Bytes]) -> Bytes:
    """Return the first pieces joined, up to the size of one step."""
    if len(pieces) == 1 or len(pieces[0]) >= _STEP_BYTES:
        return pieces[0]
    size = count = 0
    while count < len(pieces) and size < _STEP_BYTES:
        size += len(pieces[count])
        count += 1
    return b"".join(pieces[:count])


def _do_nothing() -> None:
    """Do nothing: no selector has the connection."""
