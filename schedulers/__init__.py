"""Request scheduling policies: pure, synchronous queue disciplines.

``contract`` is a policy's view of requests and its laws, ``orders`` holds shared queue
structures, ``policies`` one file per policy, ``registry`` their names. Nothing here
uses Trio, Kafka, sockets or clocks, and nothing here imports from the other packages.
"""

from schedulers.contract.config import BadSetting, SchedulerConfig
from schedulers.contract.foresight import Foresight, foresight_of
from schedulers.contract.job import Job
from schedulers.contract.policy_guard import PolicyFault, policy_fault
from schedulers.contract.scheduler import (
    IN_SERVICE,
    NEVER,
    ON_ARRIVAL,
    Scheduler,
    SchedulerFactory,
)
from schedulers.policies.fifo import Fifo
from schedulers.policies.priority import Priority
from schedulers.policies.wfq import Wfq
from schedulers.registry import POLICIES, UnknownScheduler, find, make, nearest

__all__ = [
    "IN_SERVICE",
    "NEVER",
    "ON_ARRIVAL",
    "POLICIES",
    "BadSetting",
    "Fifo",
    "Foresight",
    "Job",
    "PolicyFault",
    "Priority",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerFactory",
    "UnknownScheduler",
    "Wfq",
    "find",
    "foresight_of",
    "make",
    "nearest",
    "policy_fault",
]
