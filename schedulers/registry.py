"""The policies by name, and how a researcher's own joins them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from schedulers.adaptive_lifo import AdaptiveLifo
from schedulers.ageing import Ageing
from schedulers.drr import Drr
from schedulers.edf import Edf
from schedulers.eevdf import Eevdf
from schedulers.fair_call_queue import FairCallQueue
from schedulers.fifo import Fifo
from schedulers.gps_wfq import GpsWfq
from schedulers.las import Las
from schedulers.mclock import MClock
from schedulers.np_priority import NonPreemptivePriority
from schedulers.priority import Priority
from schedulers.ps import ProcessorSharing
from schedulers.psjf import Psjf
from schedulers.reserved import Reserved
from schedulers.scfq import Scfq
from schedulers.scheduler import (
    BadSetting,
    Scheduler,
    SchedulerConfig,
    SchedulerFactory,
)
from schedulers.spt import Spt
from schedulers.srpt import Srpt
from schedulers.two_dfq import TwoDfq
from schedulers.wf2q import Wf2q
from schedulers.wfq import Wfq

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
    """A name that is neither a policy here nor an importable ``module:factory``."""


def find(name: str) -> SchedulerFactory:
    """Return the factory of a policy by its name, or by ``module:factory``.

    :raises UnknownScheduler: if there is no such policy, module or attribute.
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
    return factory


def make(name: str, config: SchedulerConfig) -> Scheduler:
    """Make a new scheduler.

    :raises UnknownScheduler: as :func:`find`.
    :raises BadSetting: if the policy has no such option, or cannot use its value.
    """
    factory = find(name)
    known: tuple[str, ...] | None = getattr(factory, "OPTIONS", None)
    for option in config.options if known is not None else ():
        if not any(option == it or _is_below(it, option) for it in known or ()):
            expected = ", ".join(known or ()) or "none"
            raise BadSetting(f"{name} has no option {option}, it has {expected}")
    scheduler: Scheduler = factory(config)
    return scheduler


def _is_below(prefix: str, option: str) -> bool:
    return prefix.endswith(".") and option.startswith(prefix)
