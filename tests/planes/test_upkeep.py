"""Upkeep: less urgent than every request, under every policy, and never starved."""

from functools import partial

import pytest
import trio

from planes.upkeep import Upkeep
from schedulers.registry import POLICIES
from tests.planes.simulation import US, World, in_virtual_time

STEP_NS, PATIENCE_NS = 200 * US, 3_000 * US


class Chores:
    """A number of steps of equal length, all due at once."""

    def __init__(self, world, count):
        self.world = world
        self.left = count
        self.began_ns = []
        self.settled = 0

    def due_ns(self):
        return 0 if self.left else None

    def step(self, now_ns):
        self.began_ns.append(now_ns)
        self.left -= 1
        self.world.work(STEP_NS)

    def upkeep(self):
        def settled():
            self.settled += 1

        return Upkeep(self.due_ns, self.step, patience_ns=PATIENCE_NS, settled=settled)


def with_chores(scenario, *policies, count, **settings):
    """Run ``scenario(world, chores)`` with steps that are due."""

    async def main(clock):
        made = []

        def upkeep(world):
            made.append(Chores(world, count))
            return made[0].upkeep()

        world = World(clock, *policies, upkeep=upkeep, **settings)
        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            await scenario(world, made[0])
            nursery.cancel_scope.cancel()

    in_virtual_time(main)


def test_an_idle_broker_does_all_upkeep_at_once_and_reports_its_end():
    async def scenario(world, chores):
        world.dispatcher.begin_upkeep()
        await trio.sleep(0.1)
        first = chores.began_ns[0]
        assert chores.began_ns == [first + STEP_NS * n for n in range(10)]
        assert chores.settled == 1
        assert world.dispatcher.ledger.by_kind_ns == {"upkeep": 10 * STEP_NS}
        chores.left = 1
        world.dispatcher.begin_upkeep()
        await trio.sleep(0.1)
        assert chores.settled == 2

    with_chores(scenario, "fifo", count=10)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_request_waits_for_no_more_than_the_step_that_it_meets(policy):
    async def scenario(world, chores):
        world.dispatcher.begin_upkeep()
        for number in range(20):
            await trio.sleep(0.0007)
            came_ns = world.now_ns()
            task = world.offer(partial(world.slices, 1), level=number % 3)
            while task.remote_done_ns < 0:  # noqa: ASYNC110 - time is virtual
                await trio.sleep(1e-5)
            assert task.dequeued_ns - came_ns <= STEP_NS
        assert chores.left
        world.planes[0].check()

    with_chores(scenario, policy, count=10_000)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_under_endless_requests_a_step_runs_whenever_it_is_overdue(policy):
    async def scenario(world, chores):
        for number in range(600):
            world.offer(partial(world.slices, 1), level=number % 3)
        world.dispatcher.begin_upkeep()
        await world.settle()
        # Requests of 100 us for 60 ms: one of them may delay each step.
        served_ns = 600 * 100 * US
        begun = [at_ns for at_ns in chores.began_ns if at_ns < served_ns]
        assert served_ns // (PATIENCE_NS + STEP_NS + 100 * US) <= len(begun)
        assert len(begun) <= -(-served_ns // PATIENCE_NS)

    with_chores(scenario, policy, count=10_000, capacity=1000)


def test_upkeep_takes_no_seat_and_no_place_in_the_queue():
    async def scenario(world, chores):
        world.dispatcher.begin_upkeep()
        await trio.sleep(0.001)
        assert chores.began_ns
        assert chores.left
        plane = world.planes[0]
        assert (plane.queued, plane.seated, len(plane.scheduler)) == (0, 0, 0)
        for _ in range(2):
            world.offer(partial(world.slices, 1))
        refused = world.task(partial(world.slices, 1))
        assert not world.dispatcher.offer(plane, refused)
        await world.settle()

    with_chores(scenario, "fifo", count=50, seats=1, capacity=2)
