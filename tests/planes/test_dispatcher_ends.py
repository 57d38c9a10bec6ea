"""Planes under Trio: forbidden awaits of handlers, crashes and shutdown."""

from functools import partial

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from planes.slices import parked, preempt
from schedulers.registry import POLICIES
from simulation.virtual_time.determinism import run_virtual
from tests.planes.simulation import (
    QUANTUM_NS,
    US,
    World,
    crash,
    in_virtual_time,
    simulated,
)

# ---- awaits at preemption points only -----------------------------------------------


@pytest.mark.parametrize("trap", [preempt, lambda: parked(lambda wake: True)])
@pytest.mark.parametrize("holder", [lambda: trio.CancelScope(), trio.open_nursery])
def test_a_cancel_scope_across_a_preemption_point_is_caught(trap, holder):
    async def serve():
        scope = holder()
        if isinstance(scope, trio.CancelScope):
            with scope:
                await trap()
        else:
            async with scope:
                await trap()

    caught = crash(lambda world: serve)
    assert caught.group_contains(AssertionError, match="inside a cancel scope")


@simulated("fifo")
async def test_a_cancel_scope_between_preemption_points_is_fine(world):

    async def serve():
        await preempt()
        with trio.move_on_after(0.001) as scope:
            await trio.sleep(1)
        await preempt()
        return scope.cancelled_caught

    world.offer(serve)
    await world.settle()
    assert world.results == {0: True}


# ---- crashes and shutdown -----------------------------------------------------------


def test_an_exception_of_a_handler_ends_the_dispatcher():
    def faulty(world):
        async def serve():
            await world.slices(2)
            raise ValueError("a bug of ours")

        return serve

    async def never():
        raise AssertionError("no turn begins after a crash")

    caught = crash(faulty, lambda world: never)
    assert caught.group_contains(ValueError, match="a bug of ours")
    assert not caught.group_contains(AssertionError)


def test_shutdown_closes_every_unfinished_handler_wherever_it_is():
    async def main(clock):
        world = World(clock, "priority", seats=3)
        ended = []

        def serve(name, wait):
            async def run():
                try:
                    await wait()
                finally:
                    ended.append(name)

            return run

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(serve("suspended", lambda: world.slices(10**6)), level=5)
            await trio.sleep(0.001)
            world.offer(serve("parked", lambda: parked(lambda wake: True)), level=0)
            world.offer(serve("device", trio.sleep_forever), level=1)
            world.offer(serve("running", lambda: world.slices(10**6)), level=3)
            await trio.sleep(0.01)
            world.offer(serve("unstarted", lambda: world.slices(1)), level=6)
            assert not ended
            began_ns = world.now_ns()
            nursery.cancel_scope.cancel()
        assert sorted(ended) == ["device", "parked", "running", "suspended"]
        assert world.now_ns() - began_ns <= QUANTUM_NS + 100 * US
        assert world.log == []

    in_virtual_time(main)


def test_a_handler_back_from_its_device_at_shutdown_is_not_forgotten():
    """The handler waits for the token, which the busy worker will not pass on."""

    async def main(clock):
        world = World(clock, "priority")
        ended = []

        async def read_disk():
            try:
                await trio.sleep(0.001)
                await trio.sleep(0.001)
            finally:
                ended.append("device")

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(read_disk, level=5)
            await trio.sleep(0.0005)
            world.offer(lambda: world.slices(10**6), level=0)
            await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert ended == ["device"]

    in_virtual_time(main)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_task_back_from_a_device_after_the_end_is_not_billed(policy, seed):
    """The scheduler has released the task: ``simulate --seed 51967``, under eevdf."""
    bills = []

    async def main(clock):
        world = World(clock, policy)
        scheduler = world.planes[0].scheduler
        ran = scheduler.ran
        ended = []

        def count(job, used_ns, now_ns):
            bills.append(job.number)
            ran(job, used_ns, now_ns)

        scheduler.ran = count

        def serve(name, cleaning_up):
            async def run():
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await cleaning_up()
                    ended.append(name)

            return run

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(serve("at once", trio.lowlevel.checkpoint))
            world.offer(serve("later", partial(trio.sleep, 0.01)), level=1)
            await wait_all_tasks_blocked()
            bills.clear()
            nursery.cancel_scope.cancel()
        assert ended == ["at once", "later"]
        world.planes[0].scheduler.check()

    run_virtual(main, seed=seed)
    assert bills == []


def test_a_wake_after_the_end_is_harmless():
    async def main(clock):
        world = World(clock, "fifo")
        wakes = []

        async def fetch():
            await parked(lambda wake: wakes.append(wake) or True)

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(fetch)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        wakes[0]()

    in_virtual_time(main)
