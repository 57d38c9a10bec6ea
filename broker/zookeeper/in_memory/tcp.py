"""The TCP port of a ZooKeeper server."""

from __future__ import annotations

import socket
from typing import Final

import trio

_RECEIVED_BYTES: Final = 1 << 16
_BACKLOG: Final = 128
# The pause of `trio.serve_listeners` when file descriptors run out.
_PAUSE_S: Final = 0.1
# With a linger time of 0, closing resets the connection (socket(7)).
_LINGER_NONE: Final = bytes.fromhex("0100000000000000")


class TcpListener:
    """A listening socket."""

    def __init__(self, host: str, port: int) -> None:
        """Listen; raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port: int = listening.getsockname()[1]
        self._listening = trio.socket.from_stdlib_socket(listening)

    async def accept(self) -> TcpConnection:
        """Wait for a connection."""
        while True:
            try:
                accepted, _ = await self._listening.accept()
            except OSError:
                await trio.sleep(_PAUSE_S)
                continue
            return TcpConnection(accepted)

    def close(self) -> None:
        """Free the port."""
        self._listening.close()


class TcpConnection:
    """An accepted connection."""

    def __init__(self, accepted: trio.socket.SocketType) -> None:
        self._socket = accepted
        self._stream = trio.SocketStream(accepted)

    async def send_all(self, data: bytes) -> None:
        """Send all of ``data``."""
        await self._stream.send_all(data)

    async def receive_some(self) -> bytes:
        """Receive some bytes; none at the end of the client's stream."""
        return bytes(await self._stream.receive_some(_RECEIVED_BYTES))

    def close(self) -> None:
        """Close the connection; the client receives the sent bytes."""
        self._socket.close()

    def abort(self) -> None:
        """Reset the connection; bytes not yet received are lost."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self._socket.close()
