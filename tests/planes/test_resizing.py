"""Seats added and removed while requests are served: no task and no seat is lost."""

import random
from functools import partial

import pytest
import trio

from planes import Task
from planes.lending import Lending
from schedulers import POLICIES, SchedulerConfig, make
from tests.planes.simulation import US, simulated
from tests.planes.test_lending import two_planes

S = 1_000_000
CLASSES = ("control", "produce", "fetch")


def reserving(config):
    """Two seats for controllers and one for fetch, if the plane has as many."""
    options = {"seats.control": 2, "seats.fetch": 1}
    return make("reserved", SchedulerConfig(seats=4, options=options))


@simulated("fifo", seats=1)
async def test_more_seats_are_taken_at_once(world):
    for _ in range(4):
        world.offer(partial(trio.sleep, 1))
    await trio.sleep(0.5)
    world.dispatcher.resize(world.planes[0], 3)
    await world.settle()
    ended = [(0, 1.0), (1, 1.5), (2, 1.5), (3, 2.0)]
    assert sorted(world.log) == [(number, at * S) for number, at in ended]


@simulated("fifo", seats=3)
async def test_fewer_seats_take_nothing_from_who_has_one(world):
    for _ in range(6):
        world.offer(partial(trio.sleep, 1))
    await trio.sleep(0.5)
    (plane,) = world.planes
    world.dispatcher.resize(plane, 1)
    assert (plane.seated, plane.seats, plane.seats_in_use) == (3, 1, 3)
    await world.settle()
    ended = [(0, 1), (1, 1), (2, 1), (3, 2), (4, 3), (5, 4)]
    assert sorted(world.log) == [(number, at * S) for number, at in ended]
    assert plane.seats_in_use == 1


@pytest.mark.parametrize("policy", [*POLICIES, reserving])
@pytest.mark.parametrize("seed", [1, 2])
def test_seats_come_and_go_under_load(policy, seed):
    rng = random.Random(seed)

    @simulated(policy, seats=4)
    async def scenario(world):
        (plane,) = world.planes

        async def serve(number):
            # A task that starts has a seat.
            assert plane.seated <= plane.seats
            await world.slices(rng.randrange(1, 4))
            await trio.sleep(rng.uniform(0, 0.002))
            await world.slices(1)
            return number

        with trio.fail_after(60):
            for number in range(80):
                world.offer(
                    partial(serve, number),
                    level=rng.randrange(3),
                    request_class=rng.choice(CLASSES),
                    cost_ns=rng.randrange(1, 500) * US,
                )
                await trio.sleep(rng.uniform(0, 0.001))
                if not number % 4:
                    world.dispatcher.resize(plane, rng.randrange(1, 7))
                plane.check()
            await world.settle()
        assert world.results == {number: number for number in range(80)}
        assert (plane.seated, plane.seats_in_use) == (0, plane.seats)
        # All seats can be used.
        world.dispatcher.resize(plane, 3)
        for _ in range(3):
            world.offer(partial(trio.sleep, 1), request_class="produce")
        await trio.sleep(0.5)
        assert plane.seated == 3
        await world.settle()

    scenario()


def test_a_plane_that_shrinks_holds_up_no_other_one():
    data, control = two_planes(3, 1)
    lending = Lending((data, control), ())
    tasks = [Task(number=number) for number in range(4)]
    for task in tasks[:3]:
        data.offer(task, 0)
    assert [data.pick(0) for _ in range(3)] == tasks[:3]
    data.resize(1, 0)
    control.offer(tasks[3], 0)
    assert not any(lending.must_yield(task, 0) for task in tasks[:3])
    assert lending.pick(0) is tasks[3]
    late = Task(number=4)
    data.offer(late, 0)
    for task in tasks[:3]:
        assert lending.pick(0) is None
        data.finish(task, 0, 1)
    assert lending.pick(1) is late
    assert lending.seats == 2
