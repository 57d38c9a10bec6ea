"""Creation of worlds; each is imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from experiments.design.world_config import WORLDS
from experiments.worlds.world import World


def make_world(name: str, tick: Callable[[], None]) -> World:
    """Create the world with this name; it calls ``tick`` about once per second."""
    made: World = import_module(WORLDS[name].module).make(tick)
    return made
