"""Listeners: a name, an address to bind or advertise, and a security protocol.

Follows Kafka's ``EndPoint`` and the checks of ``KafkaConfig.validateValues``:
``NAME://host:port``, comma separated; names and ports differ from one another (port 0,
any free port, may repeat; so may one port on an IPv4 and an IPv6 host); the security
protocol is found by the name in ``listener.security.protocol.map``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from broker.protocol.config_key import split
from broker.protocol.errors import ConfigError
from broker.protocol.host_names import can_be_encoded

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
# Kafka's characters of a host (``EndPoint``), which exclude ``*``.
_LISTENER = re.compile(r"([^:/]+)://(\[[0-9a-zA-Z:.%_-]*\]|[0-9a-zA-Z._-]*):([0-9]+)")
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One endpoint; an empty ``host`` means every interface."""

    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def uses_sasl(self) -> bool:
        """Return whether its clients must authenticate by SASL."""
        return self.security_protocol in SASL_PROTOCOLS

    @property
    def uses_tls(self) -> bool:
        """Return whether its connections begin with a TLS handshake."""
        return self.security_protocol in TLS_PROTOCOLS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(key: str, written: str) -> dict[str, str]:
    """Return listener name -> security protocol, names in upper case."""
    protocols: dict[str, str] = {}
    for item in split(written):
        name, colon, protocol = item.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in SECURITY_PROTOCOLS:
            expected = f"a list of NAME:PROTOCOL, of {', '.join(SECURITY_PROTOCOLS)}"
            raise ConfigError(key, item, expected)
        if name in protocols:
            raise ConfigError(key, written, f"each listener once, not {name} twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(
    key: str, written: str, protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Listener, ...]:
    """Return the listeners of ``key``, in the order written, or raise `ConfigError`."""
    listeners = tuple(_listener(key, item, protocols) for item in split(written))
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(key, written, f"each listener once, not {name} twice")
    if distinct_ports:
        _check_ports(key, written, listeners)
    return listeners


def check_host(key: str, listener: Listener) -> None:
    """Refuse a host that no resolver accepts."""
    if not can_be_encoded(listener.host):
        expected = "a host name with labels of 1 to 63 characters"
        raise ConfigError(key, str(listener), expected)


def _listener(key: str, item: str, protocols: Mapping[str, str]) -> Listener:
    match = _LISTENER.fullmatch(item)
    if match is None:
        raise ConfigError(key, item, "NAME://host:port")
    name, host, port = match[1].upper(), match[2].strip("[]"), match[3].lstrip("0")
    if len(port) > len(str(_PORT_MAX)) or int(port or 0) > _PORT_MAX:
        raise ConfigError(key, item, f"a port from 0 to {_PORT_MAX}")
    protocol = protocols.get(name)
    if protocol is None:
        known = ", ".join(protocols)
        raise ConfigError(
            key, item, f"a name in listener.security.protocol.map ({known})"
        )
    return Listener(
        name=name, host=host, port=int(port or 0), security_protocol=protocol
    )


def _check_ports(key: str, written: str, listeners: tuple[Listener, ...]) -> None:
    seen: set[tuple[int, bool]] = set()
    for listener in listeners:
        if listener.port == 0:
            continue
        address = (listener.port, ":" in listener.host)
        # An empty host binds both families.
        clash = (
            {address}
            if listener.host
            else {(listener.port, False), (listener.port, True)}
        )
        if seen & clash:
            raise ConfigError(
                key, written, f"each port once, not {listener.port} twice"
            )
        seen |= clash
