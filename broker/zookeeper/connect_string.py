"""ZooKeeper's connect string: ``host:port,host:port/chroot``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from broker.protocol.errors import MalformedFrame
from broker.protocol.host_names import can_be_encoded

PORT: Final = 2181
_PORT: Final = re.compile("[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class ConnectString:
    """Servers in their given order, and the root of all paths."""

    servers: tuple[tuple[str, int], ...]
    # Empty, or a path with a leading slash and no trailing slash.
    chroot: str

    def outside(self, path: str) -> str:
        """Return the server's path for a path within the chroot.

        >>> parse("zoo/kafka").outside("/")
        '/kafka'
        """
        return self.chroot if self.chroot and path == "/" else self.chroot + path

    def inside(self, path: str) -> str:
        """Return the path within the chroot for a server's path.

        >>> parse("zoo/kafka").inside("/kafka/brokers")
        '/brokers'
        """
        rest = path.removeprefix(self.chroot)
        if not path.startswith(self.chroot) or rest[:1] not in ("", "/"):
            raise MalformedFrame(f"{path} is not within {self.chroot}")
        return rest or "/"


def parse(text: str) -> ConnectString:
    """Parse a connect string; raises `ValueError`.

    >>> parse("one:2182,[::1]/kafka/a")
    ConnectString(servers=(('one', 2182), ('::1', 2181)), chroot='/kafka/a')
    """
    hosts, slash, rest = text.strip().partition("/")
    chroot = (slash + rest) if rest else ""
    if any(part in ("", ".", "..") for part in rest.split("/")) and rest:
        raise ValueError(f"{chroot} is no path of a znode")
    servers = tuple(_server(each.strip()) for each in hosts.split(","))
    return ConnectString(servers, chroot)


def _server(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not host or not _PORT.fullmatch(port) or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is no host with a port")
    host = host.removeprefix("[").removesuffix("]")
    if not can_be_encoded(host):
        raise ValueError(f"{host!r} has a label that is empty or too long")
    return host, int(port)
