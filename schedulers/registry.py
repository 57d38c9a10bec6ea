"""The policies by name, and the import of a user's own policy."""

from __future__ import annotations

import difflib
import importlib
import sys
from abc import ABCMeta
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, ModuleType

from schedulers.contract.config import BadSetting, SchedulerConfig
from schedulers.contract.policy_guard import file_of, guarded, place_of, raised
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
    """A name that is neither a policy here nor a valid ``module:factory``."""


def find(name: str) -> SchedulerFactory:
    """Return the factory of a policy by its name, or by ``module:factory``.

    The current directory is searched for modules, after ``sys.path``.

    :raises UnknownScheduler: if there is no such policy, module or attribute, or if the
    attribute is a class that lacks a required method.
    """
    if name in POLICIES:
        return POLICIES[name]
    module_name, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join(POLICIES)
        hint = nearest(name, POLICIES)
        raise UnknownScheduler(f"{name!r} is none of {known}, nor module:factory{hint}")
    module = _imported(name, module_name)
    factory: SchedulerFactory | None = getattr(module, attribute, None)
    if factory is None:
        hint = nearest(attribute, vars(module))
        raise UnknownScheduler(f"{module.__file__} has no {attribute!r}{hint}")
    if isinstance(factory, ABCMeta) and factory.__abstractmethods__:
        lacks = ", ".join(sorted(factory.__abstractmethods__))
        raise UnknownScheduler(f"{name!r} ({place_of(factory)}) lacks {lacks}")
    return factory


def make(name: str, config: SchedulerConfig) -> Scheduler:
    """Create a new scheduler; wrap a policy from outside this package in a guard.

    :raises UnknownScheduler: as :func:`find`, or if the factory returns no scheduler.
    :raises BadSetting: if the policy has no such option, or cannot use its value. (The
        names are checked only if the factory is the policy's class.)
    """
    factory: object = find(name)
    if not callable(factory):
        raise UnknownScheduler(f"{name!r} is {factory!r}, which makes no scheduler")
    if isinstance(factory, type) and issubclass(factory, Scheduler):
        _check_options(name, factory.OPTIONS, config)
    if name in POLICIES:
        return POLICIES[name](config)
    place = place_of(factory)
    try:
        scheduler = factory(config)
    except BadSetting:
        raise
    except Exception as error:
        words = raised(error, file_of(factory))
        raise UnknownScheduler(f"{name!r} ({place}) cannot be made: {words}") from error
    if not isinstance(scheduler, Scheduler):
        made = type(scheduler).__name__
        raise UnknownScheduler(f"{name!r} ({place}) makes {made}, no Scheduler")
    return guarded(name, scheduler)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name closest to ``name``, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _imported(name: str, module: str) -> ModuleType:
    if "" not in sys.path:
        # Last, so that a user's file shadows no installed module.
        sys.path.append("")
    try:
        return importlib.import_module(module)
    except Exception as error:  # a module may fail in any way
        words = raised(error, None)
        raise UnknownScheduler(f"{name!r} cannot be imported: {words}") from error


def _check_options(name: str, known: Sequence[str], config: SchedulerConfig) -> None:
    for option in config.options:
        if not any(option == it or _is_below(it, option) for it in known):
            expected = ", ".join(known) or "none"
            raise BadSetting(f"{name} has no option {option}, it has {expected}")


def _is_below(prefix: str, option: str) -> bool:
    return prefix.endswith(".") and option.startswith(prefix)
