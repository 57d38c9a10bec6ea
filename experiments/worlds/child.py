"""A process of a live run: pinned, and gone when its parent is.

``python -m experiments.worlds.child PARENT CPU doorkeeper-arguments...`` asks the
kernel to be killed when the runner, process ``PARENT``, dies (prctl PR_SET_PDEATHSIG),
pins itself to ``CPU`` (``-`` for not), and becomes the ``doorkeeper`` command. Without
that a killed experiment would leave brokers behind that hold a CPU of the next one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def bind(parent: int, cpu: int | None) -> None:
    """End this process with its parent, and pin it to ``cpu``."""
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent died before its child could be bound to it")


def main() -> None:
    """Become the ``doorkeeper`` command, pinned and bound."""
    parent, cpu, *arguments = sys.argv[1:]
    bind(int(parent), None if cpu == "-" else int(cpu))
    from experiments import cli

    cli.main(arguments)


if __name__ == "__main__":
    main()
