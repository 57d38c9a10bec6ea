"""Clusters of three or more brokers with a controller, and no requests in flight."""

from collections.abc import Callable

import pytest

from tests.broker.controller.world import World


@pytest.fixture
def make_world() -> Callable[[int], World]:
    """Return a function that starts a cluster with a given number of brokers."""

    def make(brokers: int) -> World:
        world = World(brokers)
        for number in world.brokers:
            world.start_broker(number)
        world.elect_controller()
        world.settle()
        return world

    return make


@pytest.fixture
def world(make_world: Callable[[int], World]) -> World:
    """A cluster of three brokers."""
    return make_world(3)
