"""Context of a simulated client: its host, its clocks, the cluster, the history."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.histories import History
from simulation.virtual_time.apis import START_MS
from simulation.virtual_time.determinism import VirtualClock
from simulation.virtual_time.network_faults import Host


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The same for every client of one run, except for the host."""

    host: Host
    bootstrap: str
    clock: VirtualClock
    history: History

    def now_ns(self) -> int:
        """Return the run's time."""
        return self.clock.now_ns()

    def now_ms(self) -> int:
        """Return the time for record timestamps."""
        return START_MS + int(self.clock.now_ms())
