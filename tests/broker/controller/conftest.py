"""A cluster of three brokers, or more, with a controller and nothing to do."""

from collections.abc import Callable

import pytest

from tests.broker.controller.world import World


@pytest.fixture
def make_world() -> Callable[[int], World]:
    """Return what makes a world of so many brokers, all of them up."""

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
    """Three brokers."""
    return make_world(3)
