"""A process of a live run: pinned, favoured, and gone when its parent is.

``python -m experiments.processes.child BINDING COMMAND...`` binds itself and becomes
the command. It asks the kernel to be killed when the runner dies (prctl
PR_SET_PDEATHSIG, which outlives ``exec``): a killed experiment would otherwise leave
brokers behind that hold a CPU of the next one. Where the system allows, broker and
generator alike run at a raised priority, so that other processes of the machine disturb
a run less.
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
    """The parent to die with, the CPUs to stay on, and the nice value.

    With None for ``cpus`` a child stays on those of its parent.
    """

    parent: int
    cpus: Sequence[int] | None
    nice: int

    def text(self) -> str:
        """Write the binding as a command line argument."""
        return json.dumps(asdict(self))


def bind(binding: Binding) -> None:
    """Bind this process."""
    if binding.cpus is not None:
        os.sched_setaffinity(0, binding.cpus)
    favour(binding.nice)
    die_with(binding.parent)


def favour(nice: int) -> None:
    """Give this process a nice value, against those of other sessions, too."""
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    if _AUTOGROUP.exists():
        _favour_session(nice)


def _favour_session(nice: int) -> None:
    """Write the nice value that counts between sessions (sched(7), autogroup).

    Where the kernel groups processes by sessions, their own values only order them
    within one. A session that began while it did not has no group of its own: there the
    values of processes count, and the kernel refuses this one as invalid. It takes one
    value in 0.1 s of all unprivileged callers together.
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
    """Make the kernel kill this process when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent died before its child could be bound to it")


def main() -> None:
    """Become the command, pinned and bound."""
    binding, *command = sys.argv[1:]
    bind(Binding(**json.loads(binding)))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
