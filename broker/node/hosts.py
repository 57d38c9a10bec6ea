"""Addresses of hosts: resolved when the key that names them is altered, then cached.

``max.connections.per.ip.overrides`` may contain host names. Resolving can take seconds,
so an alteration of the key first resolves its hosts, outside of the event loop.
Applying the bounds only reads the results. A numeric address needs no resolver. As in
Kafka, a name keeps its addresses until the key is altered again.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable

from broker.config import MAX_CONNECTIONS_PER_IP_OVERRIDES, BrokerConfig
from broker.protocol.errors import ConfigError

# Returns the numeric addresses of a host; raises OSError if it has none.
LookUp = Callable[[str], Awaitable[frozenset[str]]]


class Hosts:
    """Addresses by host; ``look_up`` may take long."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._known: dict[str, frozenset[str]] = {}

    async def resolve(self, config: BrokerConfig) -> None:
        """Resolve the hosts of the key; raise `ConfigError` for an unknown host."""
        for host in config[MAX_CONNECTIONS_PER_IP_OVERRIDES]:
            try:
                numeric = _numeric(host)
                self._known[host] = numeric or await self._look_up(_bare(host))
            except OSError as error:
                raise _unknown(host) from error

    def resolve_now(self, config: BrokerConfig) -> None:
        """Resolve the hosts on this thread, at a start, before clients are served.

        Raises `ConfigError` for an unknown host, after resolving the others.
        """
        unknown: ConfigError | None = None
        for host in config[MAX_CONNECTIONS_PER_IP_OVERRIDES]:
            try:
                self._known[host] = _numeric(host) or addresses_of(_bare(host))
            except OSError:
                unknown = unknown or _unknown(host)
        if unknown is not None:
            raise unknown

    def addresses(self, host: str) -> frozenset[str]:
        """Return the cached addresses of a host, possibly none."""
        return self._known.get(host, frozenset())


def addresses_of(host: str) -> frozenset[str]:
    """Resolve a host on this thread; raise OSError if it is unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except ValueError as error:  # its name cannot be encoded
        raise OSError(f"{host}: {error}") from error
    return frozenset(str(address[0]) for _, _, _, _, address in found)


async def look_up_here(host: str) -> frozenset[str]:
    """Resolve a host on this thread, for virtual time."""
    return addresses_of(host)


def _bare(host: str) -> str:
    return host.strip("[]")


def _numeric(host: str) -> frozenset[str]:
    """Return the address if the host is numeric, or an empty set for a name."""
    try:
        return frozenset({str(ipaddress.ip_address(_bare(host)))})
    except ValueError:
        return frozenset()


def _unknown(host: str) -> ConfigError:
    key = MAX_CONNECTIONS_PER_IP_OVERRIDES.name
    return ConfigError(key, host, "a host that can be resolved")
