"""One connection to one broker: one frame out, then the answer with its number."""

from __future__ import annotations

import trio

from broker.client.connection import Stream


class BrokerConnection:
    """Sends one request at a time, as a broker serves them.

    After an answer was given up the connection is unusable and must be closed.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def exchange(self, frame: bytes) -> bytes:
        """Send a request; return its answer without the size.

        :raises OSError: if the broker closed the connection.
        """
        await self._stream.send_all(frame)
        size = int.from_bytes(await self._exactly(4))
        answer = await self._exactly(size)
        assert answer[:4] == frame[8:12], "an answer to another request"
        return answer

    async def close(self) -> None:
        """Close the connection, even while the caller is being cancelled."""
        with trio.CancelScope(shield=True):
            await self._stream.aclose()

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            piece = await self._stream.receive_some()
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            self._received += piece
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken
