"""The policies by name, and how a researcher's own joins them."""

from __future__ import annotations

import importlib
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from schedulers.contract.config import BadSetting, SchedulerConfig
from schedulers.contract.scheduler import Scheduler, SchedulerFactory
from schedulers.policies.adaptive_lifo import AdaptiveLifo
from schedulers.policies.ageing import Ageing
from schedulers.policies.drr import Drr
from schedulers.policies.edf import Edf
from schedulers.policies.eevdf import Eevdf
from schedulers.policies.fair_call_queue import FairCallQueue
from schedulers.policies.fifo import Fifo
from schedulers.policies.gps_wfq import GpsWfq
from schedulers.policies.las import Las
from schedulers.policies.mclock import MClock
from schedulers.policies.np_priority import NonPreemptivePriority
from schedulers.policies.priority import Priority
from schedulers.policies.ps import ProcessorSharing
from schedulers.policies.psjf import Psjf
from schedulers.policies.reserved import Reserved
from schedulers.policies.scfq import Scfq
from schedulers.policies.spt import Spt
from schedulers.policies.srpt import Srpt
from schedulers.policies.two_dfq import TwoDfq
from schedulers.policies.wf2q import Wf2q
from schedulers.policies.wfq import Wfq

POLICIES: Mapping[str, SchedulerFactory] = MappingProxyType(
    {
        "fifo": Fifo,
        "priority": Priority,
        "wfq": Wfq,
        "np-priority": NonPreemptivePriority,
        "ageing": Ageing,
        "wfq-exact": GpsWfq,
        "wf2q+": Wf2q,
        "scfq": Scfq,
        "drr": Drr,
        "edf": Edf,
        "spt": Spt,
        "psjf": Psjf,
        "srpt": Srpt,
        "las": Las,
        "ps": ProcessorSharing,
        "eevdf": Eevdf,
        "mclock": MClock,
        "reserved": Reserved,
        "2dfq": TwoDfq,
        "fair-call-queue": FairCallQueue,
        "adaptive-lifo": AdaptiveLifo,
    }
)


class UnknownScheduler(ValueError):
    """A name that is neither a policy here nor leads to one by ``module:factory``."""


def find(name: str) -> SchedulerFactory:
    """Return the factory of a policy by its name, or by ``module:factory``.

    :raises UnknownScheduler: if there is no such policy, module or attribute, or if it
        is a class that does not say all that a policy must.
    """
    if name in POLICIES:
        return POLICIES[name]
    module_name, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join(POLICIES)
        raise UnknownScheduler(f"{name!r} is none of {known}, nor module:factory")
    try:
        factory: SchedulerFactory = getattr(
            importlib.import_module(module_name), attribute
        )
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownScheduler(f"{name!r} cannot be imported: {error}") from error
    if isinstance(factory, ABCMeta) and factory.__abstractmethods__:
        lacks = ", ".join(sorted(factory.__abstractmethods__))
        raise UnknownScheduler(f"{name!r} lacks {lacks}")
    return factory


def make(name: str, config: SchedulerConfig) -> Scheduler:
    """Make a new scheduler.

    :raises UnknownScheduler: as :func:`find`, or if what is made is no scheduler.
    :raises BadSetting: if the policy has no such option, or cannot use its value. (Only
        a factory that is the policy's class says which it has.)
    """
    factory: object = find(name)
    if not callable(factory):
        raise UnknownScheduler(f"{name!r} is {factory!r}, which makes no scheduler")
    if isinstance(factory, type) and issubclass(factory, Scheduler):
        _check_options(name, factory.OPTIONS, config)
    scheduler = factory(config)
    if not isinstance(scheduler, Scheduler):
        made = type(scheduler).__name__
        raise UnknownScheduler(f"{name!r} makes {made}, no schedulers.Scheduler")
    return scheduler


def _check_options(name: str, known: Sequence[str], config: SchedulerConfig) -> None:
    for option in config.options:
        if not any(option == it or _is_below(it, option) for it in known):
            expected = ", ".join(known) or "none"
            raise BadSetting(f"{name} has no option {option}, it has {expected}")


def _is_below(prefix: str, option: str) -> bool:
    return prefix.endswith(".") and option.startswith(prefix)
