"""What ``doorkeeper schedulers`` prints: the presets, then the other policies.

A policy describes itself: its line is the first sentence of its class's docstring.
``planes`` is no policy but a topology (KIP-291), so it is described here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from schedulers import POLICIES

_PLANES = (
    "Two planes as in KIP-291: control requests have their own listener and queue."
)
_PRESETS = ("fifo", "planes", "priority", "wfq")


def scheduler_lines() -> Iterator[str]:
    """Yield one line per scheduler, presets first, the rest by name."""
    rest = sorted(set(POLICIES) - set(_PRESETS))
    names = [*_PRESETS, *rest]
    width = max(map(len, names))
    for name in names:
        summary = _PLANES if name == "planes" else _summary(POLICIES[name])
        yield f"{name:<{width}}  {summary}"


def _summary(factory: object) -> str:
    """Return the first sentence of the docstring, on one line."""
    text = inspect.getdoc(factory) or ""
    return " ".join(text.split("\n\n", 1)[0].split())
