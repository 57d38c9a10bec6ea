"""Types of buffers for records and frames, which avoid copies."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Buffer: TypeAlias = "bytes | bytearray | memoryview"


class FileRegion(Protocol):
    """Bytes of a file that the network may send without copying (``os.sendfile``)."""

    position: int
    size: int

    def fileno(self) -> int:
        """Return the descriptor to send from."""

    def read(self) -> bytes:
        """Return the bytes, for a network without descriptors (virtual world)."""


# A part of a frame to send.
Piece: TypeAlias = "bytes | memoryview | FileRegion"
