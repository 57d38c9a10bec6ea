"""Tasks without a coroutine, and polls for work when planes run empty."""

from itertools import pairwise

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.planes.simulation import QUANTUM_NS, US, World, in_virtual_time, simulated


def at_once(world, cost_ns=100 * US, result=None):
    """Return a ``serve`` that has finished when it returns."""

    def serve():
        world.work(cost_ns)
        return result

    return serve


async def longest_ns_without_trio(world, seconds):
    """Return the longest time in which Trio did not run a task that never sleeps."""
    turns_ns = []

    async def tick():
        while True:
            turns_ns.append(world.now_ns())
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return max(after - before for before, after in pairwise(turns_ns))


@simulated("fifo")
async def test_a_result_instead_of_a_coroutine_ends_the_task(world):
    task = world.offer(at_once(world, result="answer"))
    await world.settle()
    assert world.results == {0: "answer"}
    assert task.attained_ns == world.planes[0].attained_ns == 100 * US
    assert task.local_done_ns - task.dequeued_ns == 100 * US
    assert (task.serve, task.coroutine, task.preemptions) == (None, None, 0)


@simulated("fifo")
async def test_none_is_a_result_too(world):
    world.offer(at_once(world))
    await world.settle()
    assert world.results == {0: None}


@simulated("priority", seats=1)
async def test_both_kinds_of_task_are_served_in_the_order_of_their_policy(world):
    for number in range(8):
        kind = at_once(world) if number % 2 else lambda: world.slices(1)
        world.offer(kind, level=number // 4, name=number)
    urgent = world.offer(at_once(world), level=-1, name="urgent")
    await world.settle()
    assert [name for name, _ in world.log] == ["urgent", *range(8)]
    assert urgent.dequeued_ns == 0


@simulated("fifo")
async def test_tasks_served_at_once_leave_the_sockets_their_quantum(world):
    for _ in range(50):
        world.offer(at_once(world))
    assert await longest_ns_without_trio(world, 0.0045) == QUANTUM_NS


def test_a_fault_in_a_task_that_is_served_at_once_ends_the_dispatcher():
    def fault():
        raise ZeroDivisionError

    async def main(clock):
        world = World(clock, "fifo")
        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(fault)

    with pytest.RaisesGroup(
        pytest.RaisesExc(ZeroDivisionError), flatten_subgroups=True
    ):
        in_virtual_time(main)


class Source:
    """Offers up to two tasks at each poll for work."""

    def __init__(self, world, count):
        self._world = world
        self.left = count
        self.looks = []
        world.dispatcher.on_empty(self.look)

    def look(self):
        self.looks.append(self._world.now_ns() // US)
        for _ in range(min(self.left, 2)):
            self.left -= 1
            self._world.offer(at_once(self._world))


@simulated("fifo")
async def test_more_is_looked_for_when_several_were_served_until_there_is_no_more(
    world,
):
    source = Source(world, count=4)
    for _ in range(2):
        world.offer(at_once(world))
    await wait_all_tasks_blocked()
    assert [at_us for _, at_us in world.log] == [100, 200, 300, 400, 500, 600]
    # The plane runs empty after two tasks each time, until the source is empty.
    assert (source.looks, source.left) == ([200, 400, 600], 0)


@simulated("fifo")
async def test_a_lone_task_has_nobody_look_for_more(world):
    source = Source(world, count=4)
    for _ in range(3):
        world.offer(at_once(world))
        await wait_all_tasks_blocked()
    assert (source.looks, source.left) == ([], 4)


@simulated("fifo")
async def test_a_source_that_never_runs_dry_leaves_the_sockets_their_quantum(world):
    source = Source(world, count=1_000)
    for _ in range(2):
        world.offer(at_once(world))
    assert await longest_ns_without_trio(world, 0.0905) == QUANTUM_NS
    assert 0 < source.left < 1_000 - 2 * 400
