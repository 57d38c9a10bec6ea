"""Addresses of a simulated cluster's brokers, for clients and for brokers."""

from __future__ import annotations

from typing import Final

CLIENTS: Final = "CLIENTS"
BROKERS: Final = "BROKERS"
_FIRST_PORTS: Final = {CLIENTS: 9092, BROKERS: 10092}


def port_of(broker: int, listener: str) -> int:
    """Return the port of a broker's listener."""
    return _FIRST_PORTS[listener] + broker
