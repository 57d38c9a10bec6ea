"""Planes: a request queue, one scheduler and the seats of its handlers.

``task`` is a job with its time stamps; ``admission`` says who may enter the queue, and
who is turned away; ``core`` is one plane and ``cpu`` the turn-taking of several, both
pure and free of Trio; ``slices`` is the preemption point that handlers call; ``plane``
runs it all under Trio. This package knows no protocol, and only ``slices`` and
``plane`` import Trio, so import those by name.
"""

from planes.admission import Admission, Block
from planes.core import PlaneCore
from planes.cpu import Cpu
from planes.task import Phases, Task

__all__ = ["Admission", "Block", "Cpu", "Phases", "PlaneCore", "Task"]
