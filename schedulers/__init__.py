"""Request scheduling policies: pure, synchronous queue disciplines.

``job`` is what a policy may see, ``scheduler`` the verbs and laws it must keep,
``registry`` its name. Every other file is one policy. Nothing here knows Trio, Kafka,
sockets or clocks, and nothing here imports from the other packages.
"""

from schedulers.fifo import Fifo
from schedulers.job import Job
from schedulers.priority import Priority
from schedulers.registry import POLICIES, UnknownScheduler, find, make
from schedulers.scheduler import (
    IN_SERVICE,
    NEVER,
    ON_ARRIVAL,
    BadSetting,
    Scheduler,
    SchedulerConfig,
    SchedulerFactory,
)
from schedulers.wfq import Wfq

__all__ = [
    "IN_SERVICE",
    "NEVER",
    "ON_ARRIVAL",
    "POLICIES",
    "BadSetting",
    "Fifo",
    "Job",
    "Priority",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerFactory",
    "UnknownScheduler",
    "Wfq",
    "find",
    "make",
]
