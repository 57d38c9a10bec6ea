"""Planes under Trio: the order of admission to a full queue, and its callbacks."""

import trio
from trio.testing import wait_all_tasks_blocked

from planes.admission import Reserve
from tests.planes.simulation import US, simulated


@simulated("fifo", capacity=2)
async def test_blocked_putters_are_let_in_in_order_and_nobody_slips_in(world):
    entered = []

    async def put(number):
        task = world.task(lambda: world.slices(5), name=number)
        await world.dispatcher.put(world.planes[0], task)
        entered.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(put, number)
            await wait_all_tasks_blocked()
        intruder = world.task(lambda: world.slices(1), name="intruder")
        while len(entered) < 9:
            assert not world.dispatcher.offer(world.planes[0], intruder)
            await trio.sleep(0.0005)
    await world.settle()
    assert entered == list(range(10))
    assert [name for name, _ in world.log] == list(range(10))


@simulated(
    "fifo",
    seats=1,
    admission=Reserve(capacity=3, reserved=1, favoured=frozenset({"control"})),
)
async def test_a_favoured_putter_need_not_wait_behind_one_that_finds_no_room(world):
    await world.fill(waiting=2)
    plane = world.planes[0]
    entered = []

    async def put(name):
        task = world.task(lambda: world.slices(10), request_class=name)
        await world.dispatcher.put(plane, task)
        entered.append((name, world.now_ns() // US))

    async with trio.open_nursery() as nursery:
        for name in ("data", "data", "control", "control"):
            nursery.start_soon(put, name)
            await wait_all_tasks_blocked()
    names = [name for name, _ in entered]
    assert names[0] == "control"
    assert names.count("data") == 2
    await world.settle()


@simulated("fifo", capacity=1, seats=1)
async def test_a_cancelled_putter_leaves_its_place_to_the_next(world):
    await world.fill(waiting=1)

    async def put(name):
        task = world.task(lambda: world.slices(1), name=name)
        await world.dispatcher.put(world.planes[0], task)

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.0001) as scope:
            await put("impatient")
        assert scope.cancelled_caught
        nursery.start_soon(put, "patient")
    await world.settle()
    assert world.log[-1][0] == "patient"
    assert len(world.log) == 3


@simulated("fifo", capacity=1, seats=1)
async def test_a_listener_learns_of_room_after_each_refusal_and_only_then(world):
    calls = []
    plane = world.planes[0]
    world.dispatcher.on_room(plane, lambda: calls.append(world.now_ns() // US))
    await world.fill(waiting=1)
    assert calls == []
    refused = world.task(lambda: world.slices(10))
    assert not world.dispatcher.offer(plane, refused)
    await trio.sleep(0.0015)
    assert calls == [1_000]
    assert world.dispatcher.offer(plane, refused)
    await world.settle()
    assert calls == [1_000]
