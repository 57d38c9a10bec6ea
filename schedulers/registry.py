"""The policies by name, and how a researcher's own joins them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from schedulers.fifo import Fifo
from schedulers.priority import Priority
from schedulers.scheduler import Scheduler, SchedulerConfig, SchedulerFactory
from schedulers.wfq import Wfq

POLICIES: Mapping[str, SchedulerFactory] = MappingProxyType(
    {"fifo": Fifo, "priority": Priority, "wfq": Wfq}
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
    """
    scheduler: Scheduler = find(name)(config)
    return scheduler
