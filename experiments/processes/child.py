"""A process of a live run: pinned, prioritised, and killed with its parent.

``python -m experiments.processes.child BINDING COMMAND...`` binds itself and executes
the command. The kernel kills it when the runner dies (prctl PR_SET_PDEATHSIG, which
survives ``exec``). Otherwise a killed experiment would leave brokers behind that use a
CPU of the next one. If the system allows it, broker and generator run at a raised
priority, so that other processes disturb a run less.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_AUTOGROUP = Path("/proc/self/autogroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The parent whose death ends the child, the child's CPUs, and its nice value.

    With None for ``cpus`` a child keeps the CPUs of its parent.
    """

    parent: int
    cpus: Sequence[int] | None
    nice: int

    def text(self) -> str:
        """Return the binding as a command line argument."""
        return json.dumps(asdict(self))


def bind(binding: Binding) -> None:
    """Bind this process."""
    if binding.cpus is not None:
        os.sched_setaffinity(0, binding.cpus)
    favour(binding.nice)
    die_with(binding.parent)


def favour(nice: int) -> None:
    """Give this process a nice value, including against processes of other sessions."""
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    if _AUTOGROUP.exists():
        _favour_session(nice)


def _favour_session(nice: int) -> None:
    """Write the nice value that applies between sessions (sched(7), autogroup).

    If the kernel groups processes by sessions, their own values only order them within
    one. A session that began without grouping has no group; there the values of
    processes apply, and the kernel refuses this one as invalid. The kernel accepts one
    value per 0.1 s from all unprivileged callers together.
    """
    while True:
        try:
            _AUTOGROUP.write_text(str(nice), encoding="utf-8")
            return
        except OSError as refused:
            if refused.errno == errno.EINVAL:
                return
            if refused.errno != errno.EAGAIN:
                raise
        time.sleep(0.1)


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent died before its child could be bound to it")


def main() -> None:
    """Execute the command, pinned and bound."""
    binding, *command = sys.argv[1:]
    bind(Binding(**json.loads(binding)))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
