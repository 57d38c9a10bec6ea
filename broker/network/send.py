"""A response being sent (Kafka: ``NetworkSend``), in pieces of memory and of files.

Adjacent pieces of memory are sent with one ``sendmsg``, pieces of files with
``sendfile``. The rest waits, without a copy, until the connection is writable again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.network.transport import PIECES_MAX, Bytes, Connection, Selector
from broker.protocol.buffer import FileRegion, Piece

# Largest number of bytes and of calls at once for one peer, so that others are served.
# A response may consist of thousands of small pieces.
_TURN_BYTES: Final = 1 << 20
_TURN_CALLS: Final = 256


class FileShrunk(OSError):
    """Raised if a file has become shorter than its announced region."""


class Send:
    """The rest of one response."""

    __slots__ = ("_connection", "_first", "_pieces", "_selector", "_skip")

    def __init__(
        self, connection: Connection, selector: Selector, pieces: Sequence[Piece]
    ) -> None:
        self._connection = connection
        self._selector = selector
        self._pieces = pieces
        self._first = 0
        self._skip = 0

    @property
    def done(self) -> bool:
        """Return whether the socket has taken all pieces."""
        return self._first == len(self._pieces)

    def write(self) -> bool:
        """Send as much as the socket takes; return whether it might take more at once.

        :raises OSError: if the connection is broken or the file cannot be read.
        """
        turn_bytes, turn_calls = _TURN_BYTES, _TURN_CALLS
        pieces = self._pieces
        end = len(pieces)
        try:
            while self._first < end and turn_bytes > 0 and turn_calls > 0:
                turn_calls -= 1
                piece = pieces[self._first]
                if isinstance(piece, (bytes, memoryview)):
                    turn_bytes -= self._send_memory()
                else:
                    turn_bytes -= self._send_file(piece, turn_bytes)
        except BlockingIOError:
            return False
        return True

    def skip(self, sent_bytes: int) -> None:
        """Record that the socket has taken ``sent_bytes`` more bytes."""
        self._skip += sent_bytes
        while not self.done:
            size = _size(self._pieces[self._first])
            if self._skip < size:
                return
            self._skip -= size
            self._first += 1

    def _send_memory(self) -> int:
        """Send the next run of memory pieces."""
        run: list[Bytes] = []
        end = min(self._first + PIECES_MAX, len(self._pieces))
        # By index, up to the limit of one call. A slice of the remaining pieces would
        # copy the list for each run.
        for at in range(self._first, end):
            piece = self._pieces[at]
            if not isinstance(piece, (bytes, memoryview)):
                break
            run.append(piece)
        more = self._first + len(run) < len(self._pieces)
        if self._skip:
            run[0] = memoryview(run[0])[self._skip :]
        count = self._selector.send_many(self._connection, run, more)
        self.skip(count)
        return count

    def _send_file(self, region: FileRegion, turn_bytes: int) -> int:
        """Send some of the next file region."""
        left = region.size - self._skip
        size = left if left < turn_bytes else turn_bytes
        count = 0
        if size:
            count = self._selector.send_file(self._connection, region, self._skip, size)
            if count == 0:
                raise FileShrunk(f"{left} bytes of a file region are gone")
        # `skip`, inlined for this piece, because most calls of a long fetch end here.
        if count == left:
            self._first += 1
            self._skip = 0
        else:
            self._skip += count
        return count


def _size(piece: Piece) -> int:
    return len(piece) if isinstance(piece, (bytes, memoryview)) else piece.size
