"""State of the machine during a run: its speed, and the kernel's accounts.

Each account is absent if the kernel does not keep it. The accounts are:

- *steal*: time that the host's hypervisor gave to others, from the broker's CPU or all;
- the time for which other processes had the brokers' CPU;
- the load average.

On a shared host the machine can halve its speed without a change of these; the probe
measures the speed. The probe runs at the lowest priority, so its waiting time is the
CPU time of all other processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.processes.children import Child, process_cpu_s
from experiments.processes.speed_probe import SpeedProbe

_STAT = Path("/proc/stat")
_STEAL = 8


class Watch:
    """Watches the brokers' CPU from construction on.

    ``brokers`` are all processes of the experiment on that CPU, and live as long.
    """

    def __init__(
        self, probe: SpeedProbe, cpu: int | None, brokers: Sequence[Child] = ()
    ) -> None:
        self._probe = probe
        self._cpu = cpu
        self._brokers = brokers
        self._began_s = time.monotonic()
        self._steal_s = steal_s(cpu)
        self._probe.begin()
        self._probed = probe.cpu_time()
        self._used_s = self._brokers_s()

    def end(self) -> tuple[float, dict[str, float]]:
        """Return the loop's mean time in microseconds, and the accounts in seconds.

        The probe answers first: the kernel accounts for a wait when it is over, and a
        current one could last a quarter of a second, all of it due to others. A wait
        that began before the watch counts as a whole, so the watched time bounds it.
        """
        loop_us = self._probe.loop_us()
        used_s = self._brokers_s() - self._used_s
        waited_s = (self._probe.cpu_time() - self._probed).waited_s
        watched_s = time.monotonic() - self._began_s
        watched = {
            "watched_s": round(watched_s, 6),
            "load_average": round(os.getloadavg()[0], 2),
        }
        stolen_s = steal_s(self._cpu)
        if stolen_s is not None and self._steal_s is not None:
            watched["steal_s"] = round(stolen_s - self._steal_s, 4)
        if self._brokers and waited_s is not None:
            watched["others_s"] = round(min(max(0.0, waited_s - used_s), watched_s), 6)
        return loop_us, watched

    def _brokers_s(self) -> float:
        return sum(process_cpu_s(broker.pid) for broker in self._brokers)


def steal_s(cpu: int | None) -> float | None:
    """Return the time stolen from a CPU, or from all of them if it is None."""
    if not _STAT.exists():
        return None
    wanted = "cpu" if cpu is None else f"cpu{cpu}"
    for line in _STAT.read_text(encoding="utf-8").splitlines():
        name, *fields = line.split()
        if name == wanted and len(fields) >= _STEAL:
            return int(fields[_STEAL - 1]) / os.sysconf("SC_CLK_TCK")
    return None
