"""TLS beneath the network layer: a connection that encrypts, and its selector.

`TlsConnection` is a `Connection` over another one. OpenSSL works on two buffers in
memory, so that no call of it touches a socket, and the same code runs in virtual time.
`TlsSelector` is a `Selector` over another one. Listeners without TLS have neither, and
pay nothing.

Two properties of sockets that the layers above rely on are kept:

- ``recv`` returns less than asked for only where nothing more is there. A record of TLS
  has at most 16 KiB, so that ``recv`` goes on until it has enough or the socket is
  empty.
- ``send`` reports bytes as taken when the socket has taken their ciphertext. Until then
  the caller offers the same bytes again, as ``SSL_write`` demands, and they are
  *sealed*: encrypted once, and not looked at again. A response is therefore finished
  when it has left, and nothing has to be written behind it.
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

# Bytes that are read, or encrypted, in one step.
_STEP_BYTES: Final = 65_536
# A peer that sends so much without any content, or reads nothing of so many replies of
# TLS itself, is cut off.
_WITHOUT_CONTENT_MAX: Final = 1 << 20
_UNREAD_MAX: Final = 1 << 18


class TlsConnection:
    """The broker's end of a connection with TLS.

    ``principal`` is the peer's, by its certificate, once the handshake is over.
    """

    def __init__(self, raw: Connection, context: ssl.SSLContext) -> None:
        self.raw = raw
        self.principal: KafkaPrincipal = ANONYMOUS
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # Ciphertext that the socket has not taken, and the bytes of content in it that
        # have not been reported as taken.
        self._unsent: Bytes = b""
        self._sealed = 0
        self._without_content = 0
        self.is_established = False
        # Called if the end has been received behind content that has been returned.
        self.on_end: Callable[[], None] = _nobody

    def __repr__(self) -> str:
        return f"<TLS over {self.raw!r}>"

    # ---- handshake ------------------------------------------------------------------

    def feed(self, records: Bytes) -> None:
        """Take received bytes, of which the handshake is the first part."""
        self._incoming.write(records)

    def advance(self) -> None:
        """Compute the next step of the handshake; may take milliseconds.

        :raises ssl.SSLError: if it fails; an alert for the peer is then to be flushed.
        """
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self.is_established = True

    def certificate(self) -> bytes | None:
        """Return the peer's certificate in DER, which has been verified."""
        return self._tls.getpeercert(binary_form=True)

    def flush(self) -> None:
        """Send the ciphertext that is there; raise BlockingIOError if some remains."""
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
        """Return whether bytes have been received and not read, outside the socket."""
        return bool(self._incoming.pending or self._tls.pending())

    # ---- a connection, as `Connection` describes it ---------------------------------

    def fileno(self) -> int:
        """Return the number of the connection beneath."""
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
        """Take some of ``data``; after BlockingIOError the same data is to be offered.

        Nothing is taken before its ciphertext has been.
        """
        if not self._sealed and data:
            self._sealed = self._tls.write(memoryview(data)[:_STEP_BYTES])
        return self.send_sealed()

    @property
    def is_sealed(self) -> bool:
        """Return whether bytes are encrypted and not yet reported as taken."""
        return self._sealed > 0

    def send_sealed(self) -> int:
        """Send what is sealed, and return its number of bytes."""
        self.flush()
        count, self._sealed = self._sealed, 0
        return count

    def close(self) -> None:
        """Close the connection, with a ``close_notify`` if the socket takes it."""
        if self.is_established:
            with suppress(OSError):
                self._tls.unwrap()
        with suppress(OSError):
            self.flush()
        self.raw.close()

    def _read(self, wanted: int) -> bytes:
        """Decrypt some content; none at the end."""
        try:
            return self._tls.read(wanted)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _read_into(self, buffer: memoryview) -> int:
        """Decrypt some content into a buffer; return its size, 0 at the end."""
        try:
            # Given a buffer, it returns a number.
            return cast(int, self._tls.read(len(buffer), cast(bytearray, buffer)))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def _fetch(self, has_some: bool) -> bool:
        """Receive ciphertext; return whether there is any, or the end.

        :raises BlockingIOError: if there is none and no content has been returned.
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
        """Announce the end behind content: the socket may have no event for it."""
        if has_some:
            self.on_end()

    def _reply(self) -> None:
        """Send what TLS itself answers, such as a change of keys."""
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
        # Connections for which no event will come: their first bytes came with the
        # handshake, or their end with content.
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
    """Return the first pieces as one, as many as one step takes."""
    if len(pieces) == 1 or len(pieces[0]) >= _STEP_BYTES:
        return pieces[0]
    size = count = 0
    while count < len(pieces) and size < _STEP_BYTES:
        size += len(pieces[count])
        count += 1
    return b"".join(pieces[:count])


def _nobody() -> None:
    """Do nothing: no selector has the connection."""
