"""What else a machine did while a run went on, as far as its kernel tells.

Each account is absent where the kernel does not keep it: time that the host's
hypervisor gave to others (*steal*, for the broker's CPU or for all), time in which some
process waited for a CPU (pressure stall information), and the load average. On a shared
host none of them need move while the machine halves its speed: that is what the probe
is for. In an episode that probe is who waits, whenever the broker works; so there its
own wait is told, as far as it was not for the broker.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from experiments.processes.children import CpuTime

_STAT = Path("/proc/stat")
_PRESSURE = Path("/proc/pressure/cpu")
_STEAL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The kernel's accounts at an instant, in seconds since it started."""

    steal_s: float | None
    cpu_pressure_s: float | None

    def since(self, earlier: Machine) -> dict[str, float]:
        """Return what happened since ``earlier``, and the load average now."""
        found = {"load_average": round(os.getloadavg()[0], 2)}
        if self.steal_s is not None and earlier.steal_s is not None:
            found["steal_s"] = round(self.steal_s - earlier.steal_s, 4)
        if self.cpu_pressure_s is not None and earlier.cpu_pressure_s is not None:
            waited_s = self.cpu_pressure_s - earlier.cpu_pressure_s
            found["cpu_pressure_s"] = round(waited_s, 6)
        return found


def beside_probe(
    found: dict[str, float], probe: CpuTime, broker: CpuTime
) -> dict[str, float]:
    """Say what others had of the CPU on which a probe runs behind a broker.

    ``found`` is what happened, ``probe`` and ``broker`` what these two had meanwhile.
    """
    told = {name: value for name, value in found.items() if name != "cpu_pressure_s"}
    if probe.waited_s is not None and broker.used_s is not None:
        told["others_s"] = round(max(0.0, probe.waited_s - broker.used_s), 6)
    return told


def machine(cpu: int | None) -> Machine:
    """Read the accounts; steal is that of ``cpu``, or of all CPUs if it is None."""
    return Machine(steal_s=_steal_s(cpu), cpu_pressure_s=_pressure_s())


def _steal_s(cpu: int | None) -> float | None:
    if not _STAT.exists():
        return None
    wanted = "cpu" if cpu is None else f"cpu{cpu}"
    for line in _STAT.read_text(encoding="utf-8").splitlines():
        name, *fields = line.split()
        if name == wanted and len(fields) >= _STEAL:
            return int(fields[_STEAL - 1]) / os.sysconf("SC_CLK_TCK")
    return None


def _pressure_s() -> float | None:
    """Return for how long some process has waited for a CPU."""
    try:
        lines = _PRESSURE.read_text(encoding="utf-8").splitlines()
    except OSError:
        # The file may be there and the account switched off (psi=0).
        return None
    some = next((line for line in lines if line.startswith("some ")), "")
    _, _, total_us = some.partition("total=")
    return int(total_us) / 1e6 if total_us else None
