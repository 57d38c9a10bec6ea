"""A broker process that can be cut off from others by lines on standard input.

``python -m experiments.processes.cut_off server.properties`` is ``doorkeeper serve``
with controllable outgoing connections. A line ``silent PORT...`` on standard input
blocks all bytes to and from those ports. ``restored PORT...`` passes them again,
starting with the held ones. The connecting end holds the bytes, so two brokers are cut
off from each other when both receive the line; their other connections, such as
clients', are not affected. No packet is lost and no connection breaks, as with a cable
unplugged for less than TCP's time-outs. The other side notices a close at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import trio

from broker.client.connection import Stream
from broker.client.network_client import Connect, connect_tcp
from broker.config import BrokerConfig
from broker.process import main as serve

SILENT: Final = "silent"
RESTORED: Final = "restored"


class Links:
    """The outgoing links of this process, by port."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._silent: set[int] = set()
        self._changed = trio.Event()

    def obey(self, line: str) -> None:
        """Execute a line.

        :raises ValueError: if it is malformed.
        """
        word, *ports = line.split()
        if word == SILENT:
            self._silent.update(map(int, ports))
        elif word == RESTORED:
            self._silent.difference_update(map(int, ports))
        else:
            raise ValueError(f"{line!r}: expected {SILENT} or {RESTORED}")
        self._changed.set()
        self._changed = trio.Event()

    async def wait_until_open(self, port: int) -> None:
        """Wait until bytes to a port pass."""
        while port in self._silent:
            await self._changed.wait()

    async def connect(self, host: str, port: int) -> Stream:
        """Open a stream, see `Connect`; blocks while the port is silent."""
        await self.wait_until_open(port)
        return _Linked(await self._connect(host, port), self, port)


class _Linked:
    """A stream over a link."""

    def __init__(self, stream: Stream, links: Links, port: int) -> None:
        self._stream = stream
        self._links = links
        self._port = port
        # Bytes received while cut off; the wait for passage may be cancelled.
        self._held: list[bytes] = []

    async def send_all(self, data: bytes) -> None:
        await self._links.wait_until_open(self._port)
        await self._stream.send_all(data)

    async def receive_some(self) -> bytes:
        if not self._held:
            try:
                self._held.append(await self._stream.receive_some())
            except trio.BrokenResourceError:
                await self._links.wait_until_open(self._port)
                raise
        await self._links.wait_until_open(self._port)
        return self._held.pop()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _ControlledLinks:
    """Links controlled by standard input, from their first use on."""

    def __init__(self) -> None:
        self._links = Links(connect_tcp)
        self._input: trio.lowlevel.FdStream | None = None

    async def connect(self, host: str, port: int) -> Stream:
        if self._input is None:
            self._input = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
            # A system task, outside of the broker's own task tree.
            trio.lowlevel.spawn_system_task(self._listen, self._input)
        return await self._links.connect(host, port)

    async def _listen(self, lines: trio.lowlevel.FdStream) -> None:
        left = b""
        async for piece in lines:
            *whole, left = (left + piece).split(b"\n")
            for line in whole:
                self._links.obey(line.decode())


def main() -> None:
    """Serve until a signal, with the properties of a file."""
    (properties,) = sys.argv[1:]
    serve(BrokerConfig.load(Path(properties), {}), _ControlledLinks().connect)


if __name__ == "__main__":
    main()
