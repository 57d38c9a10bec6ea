"""Planes: a request queue, one scheduler and the seats of its handlers.

``task`` is a job with its time stamps; ``admission`` is the rule that admits, throttles
or rejects requests; ``plane`` is one plane, ``cpu`` the turn-taking of several and
``lending`` their common seats, all of them pure and free of Trio. ``slices`` is the
preemption point that handlers call, ``lock`` a lock that they may hold across it.
``dispatcher`` runs planes under Trio and explains the design, with ``upkeep`` for
background work and ``cpu_ledger`` for CPU accounting; ``laws`` counts violations.
This package knows no protocol. ``slices`` and all modules above it import Trio, so
import those by name.
"""

from planes.admission import Admission, Block
from planes.cpu import Cpu
from planes.plane import PlaneCore
from planes.task import Task

__all__ = ["Admission", "Block", "Cpu", "PlaneCore", "Task"]
