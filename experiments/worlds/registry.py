"""The worlds by name; each is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from experiments.worlds.world import World

# Worlds whose runs are computed, not measured: the same rows on any machine, whatever
# else it does meanwhile.
INDEPENDENT = ("virtual", "model")


def make_world(name: str, tick: Callable[[], None]) -> World:
    """Make the world called ``name``; it calls ``tick`` about once a second."""
    if name == "live":
        from experiments.worlds.live import Live

        return Live(tick)
    if name == "virtual":
        from experiments.worlds.virtual import Virtual

        return Virtual()
    assert name == "model", name
    from experiments.worlds.model import Model

    return Model(tick)
