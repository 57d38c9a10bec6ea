"""The output of ``doorkeeper schedulers``: the presets, then the other policies.

A policy describes itself: its line is the first sentence of its class's docstring.
``planes`` and ``planes-lending`` are no policies but topologies (KIP-291), so they are
described here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import MappingProxyType

from schedulers import POLICIES

_TOPOLOGIES = MappingProxyType(
    {
        "planes": "Two planes as in KIP-291: control requests have their own listener "
        "and queue.",
        "planes-lending": "The same, but idle handlers of one plane serve the other.",
    }
)
_PRESETS = ("fifo", "planes", "planes-lending", "priority", "wfq")


def scheduler_lines() -> Iterator[str]:
    """Yield one line per scheduler, presets first, the rest by name."""
    rest = sorted(set(POLICIES) - set(_PRESETS))
    names = [*_PRESETS, *rest]
    width = max(map(len, names))
    for name in names:
        summary = _TOPOLOGIES.get(name) or _summary(POLICIES[name])
        yield f"{name:<{width}}  {summary}"


def _summary(factory: object) -> str:
    """Return the first sentence of the docstring, on one line."""
    text = inspect.getdoc(factory) or ""
    return " ".join(text.split("\n\n", 1)[0].split())
