"""Seats that share the CPU by time slices: the bounds of `planes.time_slices`."""

import random
from functools import partial

import pytest
import trio
import trio.lowlevel

from planes import Block, Cpu, PlaneCore, Task
from planes.lending import Lending
from planes.lock import TaskLock
from schedulers import NEVER, POLICIES, SchedulerConfig, make
from schedulers.registry import find
from tests.planes.simulation import US, World, in_virtual_time

SLICE_NS = 1_000
STEP_NS = 100
# `reserved` may keep all seats but one for other classes.
NON_PREEMPTIVE = [
    name for name in POLICIES if find(name).preempts == NEVER and name != "reserved"
]


def plane(scheduler="fifo", seats=4, slice_ns=SLICE_NS):
    core = PlaneCore(
        "data", make(scheduler, SchedulerConfig()), Block(capacity=9_999), seats=seats
    )
    core.share_cpu(slice_ns)
    return core


def serve(core, demands, arrivals, *, until_ns=10**9):
    """Serve tasks on one CPU; return when each one began and ended."""
    now_ns, began, ended, due = (
        0,
        {},
        {},
        sorted(arrivals.items(), key=lambda it: it[1]),
    )
    while now_ns < until_ns:
        while due and due[0][1] <= now_ns:
            number, _ = due.pop(0)
            assert core.offer(Task(number=number, flow=str(number)), now_ns)
        task = core.pick(now_ns)
        core.check()
        if task is None:
            if not due:
                break
            now_ns = due[0][1]
            continue
        began.setdefault(task.number, now_ns)
        while True:
            left_ns = demands[task.number] - task.attained_ns
            now_ns += min(STEP_NS, left_ns)
            while due and due[0][1] <= now_ns:
                number, _ = due.pop(0)
                assert core.offer(Task(number=number, flow=str(number)), now_ns)
            if left_ns <= STEP_NS:
                core.finish(task, left_ns, now_ns)
                ended[task.number] = now_ns
                break
            core.charge(task, STEP_NS, now_ns)
            if core.must_yield(task, now_ns):
                core.suspend(task, now_ns)
                break
    return began, ended


@pytest.mark.parametrize("scheduler", NON_PREEMPTIVE)
def test_a_small_request_waits_for_one_slice_of_a_large_one(scheduler):
    core = plane(scheduler)
    demands = {0: 100_000} | dict.fromkeys(range(1, 90), STEP_NS)
    arrivals = {0: 0} | {number: 1_050 * number for number in range(1, 90)}
    began, ended = serve(core, demands, arrivals)
    assert len(ended) == 90
    waits = [began[number] - arrivals[number] for number in range(1, 90)]
    assert max(waits) <= SLICE_NS + STEP_NS


def test_without_slices_it_waits_for_all_of_it():
    demands, arrivals = {0: 100_000, 1: STEP_NS}, {0: 0, 1: 50}
    began, _ = serve(plane(slice_ns=None), demands, arrivals)
    assert began[1] == 100_000
    # A single seat has no other seat to share the CPU with.
    began, _ = serve(plane(seats=1), demands, arrivals)
    assert began[1] == 100_000


@pytest.mark.parametrize("seats", [2, 4, 8])
def test_each_seat_has_its_part_of_the_cpu_under_a_backlog(seats):
    """The large request gets 1 / ``seats`` of the CPU time."""
    core = plane(seats=seats)
    large_ns = 20 * SLICE_NS
    count = 2 * large_ns * seats // STEP_NS
    demands = {0: large_ns} | dict.fromkeys(range(1, count), STEP_NS)
    _, ended = serve(core, demands, dict.fromkeys(demands, 0))
    assert len(ended) == count
    assert ended[0] == pytest.approx(large_ns * seats, abs=(seats + 1) * SLICE_NS)


@pytest.mark.parametrize("large", [2, 3, 4])
def test_large_requests_take_turns(large):
    """Seated requests alternate; a request without a seat waits until one ends."""
    core = plane(seats=3)
    demands = dict.fromkeys(range(large), 10 * SLICE_NS)
    began, ended = serve(core, demands, dict.fromkeys(demands, 0))
    sharing = min(large, 3)
    for number in range(sharing):
        assert began[number] == number * SLICE_NS
        assert ended[number] == (9 * sharing + number + 1) * SLICE_NS
    if large == 4:
        assert began[3] >= ended[0]


@pytest.mark.parametrize("scheduler", NON_PREEMPTIVE)
def test_short_requests_are_served_as_without_slices(scheduler):
    """Requests of at most one slice run to completion, under every policy."""
    orders = []
    for slice_ns in (SLICE_NS, None):
        rng = random.Random(7)
        demands = {number: rng.randrange(1, SLICE_NS + 1) for number in range(200)}
        arrivals = {number: rng.randrange(60_000) for number in demands}
        arrivals = dict(zip(demands, sorted(arrivals.values()), strict=True))
        orders.append(serve(plane(scheduler, slice_ns=slice_ns), demands, arrivals))
    assert orders[0] == orders[1]


def test_fifo_gives_seats_in_order_of_arrival():
    rng = random.Random(3)
    demands = {number: rng.choice((50, 500, 5_000)) for number in range(300)}
    came_ns = sorted(rng.randrange(300_000) for _ in demands)
    arrivals = dict(zip(demands, came_ns, strict=True))
    began, ended = serve(plane(), demands, arrivals)
    assert list(began) == sorted(began)
    assert len(ended) == 300
    assert max(ended.values()) >= sum(demands.values())


def test_time_aside_is_suspended_time():
    core = plane(seats=2)
    first, second = Task(number=0), Task(number=1)
    for task in (first, second):
        core.offer(task, 0)
    assert core.pick(0) is first
    core.charge(first, SLICE_NS, SLICE_NS)
    assert core.must_yield(first, SLICE_NS)
    core.suspend(first, SLICE_NS)
    assert (core.seated, first.preemptions) == (1, 1)
    assert core.pick(SLICE_NS) is second
    core.finish(second, 400, 1_400)
    assert core.pick(1_400) is first
    assert first.suspended_ns == 400
    assert not core.must_yield(first, 1_500)


def test_a_policy_that_preempts_has_no_slices():
    core = plane("priority")
    for number in range(2):
        core.offer(Task(number=number), 0)
    task = core.pick(0)
    core.charge(task, 100 * SLICE_NS, 100)
    assert not core.must_yield(task, 100)


def test_a_borrowed_seat_is_given_back_at_the_end_of_a_slice():
    first, second = plane(seats=1), plane(seats=1)
    lending = Lending((first, second), (first, second))
    tasks = [Task(number=number) for number in range(2)]
    for task in tasks:
        first.offer(task, 0)
        assert lending.pick(0) is task
    second.offer(Task(number=2), 0)
    first.charge(tasks[1], SLICE_NS, SLICE_NS)
    assert first.must_yield(tasks[1], SLICE_NS)
    first.suspend(tasks[1], SLICE_NS)
    assert first.seated == 1
    assert lending.pick(SLICE_NS).number == 2


def test_planes_share_the_cpu_while_one_of_them_has_a_task_aside():
    planes = [plane(), plane()]
    cpu = Cpu(planes, quantum_ns=100)
    for number, core in enumerate((planes[0], planes[0], planes[1])):
        core.offer(Task(number=number), 0)
        cpu.wake(core)
    used = dict.fromkeys(planes, 0)
    now_ns = 0
    for _ in range(400):
        task = cpu.pick(now_ns)
        while True:
            now_ns += 50
            cpu.charge(task, 50, now_ns)
            used[task.plane] += 50
            if cpu.must_yield(task, now_ns):
                task.plane.suspend(task, now_ns)
                break
        for core in planes:
            core.check()
    assert abs(used[planes[0]] - used[planes[1]]) <= 2 * 150


def sharing_world(clock, *policies, **fields):
    world = World(clock, *policies, **fields)
    for core in world.planes:
        core.share_cpu(1_000 * US)
    return world


def test_handlers_share_the_cpu_by_slices():
    async def main(clock):
        world = sharing_world(clock, "fifo")
        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(partial(world.slices, 50), name="large")
            await trio.lowlevel.checkpoint()
            world.offer(partial(world.slices, 15), name="middle")
            world.offer(partial(world.slices, 1), name="small")
            await world.settle()
            nursery.cancel_scope.cancel()
        return world.log

    # One slice of the large request, one of the middle one, the small one, and so on.
    assert in_virtual_time(main) == [
        ("small", 2_100),
        ("middle", 3_600),
        ("large", 6_600),
    ]


def test_a_holder_of_a_lock_that_is_aside_goes_on_in_the_turn_of_a_waiter():
    async def main(clock):
        world = sharing_world(clock, "fifo", seats=8)
        lock = TaskLock("state")

        async def holds():
            async with lock:
                await world.slices(30)
            await world.slices(30)

        async def waits():
            async with lock:
                await world.slices(1)

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(holds, name="holder")
            await trio.lowlevel.checkpoint()
            world.offer(waits, name="waiter")
            await world.settle()
            nursery.cancel_scope.cancel()
        return dict(world.log)

    done = in_virtual_time(main)
    # The waiter lends its turns for the rest of the section, then runs.
    assert done["waiter"] <= 4_100
    assert done["holder"] == 6_100


def test_the_end_of_a_dispatcher_closes_handlers_that_are_aside():
    closed = []

    async def main(clock):
        world = sharing_world(clock, "fifo")

        async def large(name):
            try:
                await world.slices(1_000)
            finally:
                closed.append(name)

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            for name in "abc":
                world.offer(partial(large, name))
            await trio.sleep(0.004)
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    assert sorted(closed) == ["a", "b", "c"]
