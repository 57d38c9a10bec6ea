"""The worlds by name, as data: where each is made, and how its runs come about.

A world is a module with a function ``make(tick)`` that returns a `worlds.world.World`;
``tick`` is to be called about once a second while a run goes on. No module of a world
is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldEntry:
    """A world's module; ``computed`` if its runs are the same rows on any machine.

    ``rows`` if its brokers keep a row of each request, and with it what it cost;
    ``episodes`` if the brokers of all arms can be alive at once (`worlds.episodes`), or
    need not be, because the machine has no say.
    """

    module: str
    computed: bool
    episodes: bool
    rows: bool = True


WORLDS: Final[Mapping[str, WorldEntry]] = MappingProxyType(
    {
        "live": WorldEntry(
            module="experiments.worlds.live.world", computed=False, episodes=True
        ),
        "virtual": WorldEntry(
            module="experiments.worlds.virtual.world", computed=True, episodes=True
        ),
        "model": WorldEntry(
            module="experiments.worlds.model.world", computed=True, episodes=True
        ),
        "kafka": WorldEntry(
            module="experiments.worlds.kafka.world",
            computed=False,
            episodes=False,
            rows=False,
        ),
        "kraft": WorldEntry(
            module="experiments.worlds.kafka.kraft",
            computed=False,
            episodes=False,
            rows=False,
        ),
    }
)


def known(name: str) -> str:
    """Return ``name`` if it is a world's.

    :raises ValueError: if it is not.
    """
    if name not in WORLDS:
        worlds = ", ".join(map(repr, WORLDS))
        raise ValueError(f"found {name!r}, expected one of {worlds}")
    return name
