"""The connections of a load: their number, owners, and client ids."""

from __future__ import annotations

from typing import NamedTuple

from experiments.design.workload import Traffic, Workload


class Sender(NamedTuple):
    """One TCP connection of the load, and its position within its traffic entry.

    Entries that share the connection use its client id.
    """

    number: int
    traffic: Traffic
    position: int

    @property
    def client_id(self) -> str:
        """Return the ``client.id``, which is the flow; all have equal lengths."""
        client = self.position % self.traffic.clients
        return f"{self.traffic.name}-{client:04d}"


def senders(workload: Workload) -> tuple[Sender, ...]:
    """Return every connection of the load, numbered from 0 in order of the entries."""
    found: list[Sender] = []
    for entry in workload.traffic:
        if entry.shares is None:
            for position in range(entry.connections):
                found.append(Sender(len(found), entry, position))
    return tuple(found)
