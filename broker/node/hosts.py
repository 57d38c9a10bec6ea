"""Addresses of a host: resolved when the host is named, then remembered.

``max.connections.per.ip.overrides`` may name hosts. A resolver can take seconds to
answer, so an alteration of the key first resolves its hosts, off the event loop;
applying the bounds only reads the results. A numeric address is its own result. As in
Kafka a name keeps its addresses until the key is altered again.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable

from broker.config import MAX_CONNECTIONS_PER_IP_OVERRIDES, BrokerConfig
from broker.protocol.errors import ConfigError

# The numeric addresses of a host; raises OSError if it has none.
LookUp = Callable[[str], Awaitable[frozenset[str]]]


class Hosts:
    """Addresses by host; ``look_up`` may take its time."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._known: dict[str, frozenset[str]] = {}

    async def learn(self, config: BrokerConfig) -> None:
        """Look up the hosts of the key; raises `ConfigError` if one is unknown."""
        for host in config[MAX_CONNECTIONS_PER_IP_OVERRIDES]:
            try:
                numeric = _numeric(host)
                self._known[host] = numeric or await self._look_up(_bare(host))
            except OSError as error:
                raise _unknown(host) from error

    def learn_now(self, config: BrokerConfig) -> None:
        """Look up the hosts on this thread: for a start, before any client is served.

        Raises `ConfigError` if one is unknown; the others are looked up all the same.
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
        """Return the addresses that were found for a host; none if there were none."""
        return self._known.get(host, frozenset())


def addresses_of(host: str) -> frozenset[str]:
    """Ask the resolver, on this thread; raises OSError if it knows no such host."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except ValueError as error:  # its name cannot be encoded
        raise OSError(f"{host}: {error}") from error
    return frozenset(str(address[0]) for _, _, _, _, address in found)


async def look_up_here(host: str) -> frozenset[str]:
    """Ask the resolver on this thread: where time is virtual, and so are names."""
    return addresses_of(host)


def _bare(host: str) -> str:
    return host.strip("[]")


def _numeric(host: str) -> frozenset[str]:
    """Return the address that a host is written as, nothing if it is a name."""
    try:
        return frozenset({str(ipaddress.ip_address(_bare(host)))})
    except ValueError:
        return frozenset()


def _unknown(host: str) -> ConfigError:
    key = MAX_CONNECTIONS_PER_IP_OVERRIDES.name
    return ConfigError(key, host, "a host that can be resolved")
