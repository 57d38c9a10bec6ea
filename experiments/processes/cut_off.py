"""A broker process that can be cut off from others, which standard input names.

``python -m experiments.processes.cut_off server.properties`` is ``doorkeeper serve``
whose connections to others fall silent: ``silent PORT...`` on a line of standard input
has nothing get to those ports or back from there, ``heard PORT...`` everything again,
beginning with what has waited. It is the end that connects which keeps silent, so two
brokers are cut off from each other when both are told; who else connects to them, as
clients do, is heard. No packet is lost and no connection breaks, as where a cable is
pulled out for less than TCP's patience. The other side sees a close of ours at once.
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
HEARD: Final = "heard"


class Links:
    """The ways from here to others, by the ports that they lead to."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._silent: set[int] = set()
        self._changed = trio.Event()

    def obey(self, line: str) -> None:
        """Do what a line says.

        :raises ValueError: if it is none.
        """
        word, *ports = line.split()
        if word == SILENT:
            self._silent.update(map(int, ports))
        elif word == HEARD:
            self._silent.difference_update(map(int, ports))
        else:
            raise ValueError(f"{line!r} says neither {SILENT} nor {HEARD}")
        self._changed.set()
        self._changed = trio.Event()

    async def heard(self, port: int) -> None:
        """Wait until what is sent to a port gets there."""
        while port in self._silent:
            await self._changed.wait()

    async def connect(self, host: str, port: int) -> Stream:
        """Open a stream, see `Connect`; while its port is silent nobody answers."""
        await self.heard(port)
        return _Linked(await self._connect(host, port), self, port)


class _Linked:
    """A stream over a link."""

    def __init__(self, stream: Stream, links: Links, port: int) -> None:
        self._stream = stream
        self._links = links
        self._port = port
        # What has come while nothing was heard; the wait for it may be cancelled.
        self._held: list[bytes] = []

    async def send_all(self, data: bytes) -> None:
        await self._links.heard(self._port)
        await self._stream.send_all(data)

    async def receive_some(self) -> bytes:
        if not self._held:
            try:
                self._held.append(await self._stream.receive_some())
            except trio.BrokenResourceError:
                await self._links.heard(self._port)
                raise
        await self._links.heard(self._port)
        return self._held.pop()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Told:
    """Links that do what standard input says, from their first use on."""

    def __init__(self) -> None:
        self._links = Links(connect_tcp)
        self._input: trio.lowlevel.FdStream | None = None

    async def connect(self, host: str, port: int) -> Stream:
        if self._input is None:
            self._input = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
            # Beside the broker, whose own tasks know nothing of it.
            trio.lowlevel.spawn_system_task(self._listen, self._input)
        return await self._links.connect(host, port)

    async def _listen(self, lines: trio.lowlevel.FdStream) -> None:
        left = b""
        async for piece in lines:
            *whole, left = (left + piece).split(b"\n")
            for line in whole:
                self._links.obey(line.decode())


def main() -> None:
    """Serve until a signal, by the properties of a file."""
    (properties,) = sys.argv[1:]
    serve(BrokerConfig.load(Path(properties), {}), _Told().connect)


if __name__ == "__main__":
    main()
