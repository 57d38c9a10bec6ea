"""Planes under Trio: running, preemption, devices, purgatory and timed wake-ups."""

from functools import partial
from itertools import pairwise

import trio
from trio.testing import wait_all_tasks_blocked

from planes.slices import asleep, parked
from schedulers import Fifo
from tests.planes.simulation import QUANTUM_NS, US, simulated

# ---- running ------------------------------------------------------------------------


@simulated("fifo")
async def test_every_task_ends_once_with_its_result_in_order(world):

    def serve(number):
        async def run():
            await world.slices(number % 3)
            return number * number

        return run

    for number in range(20):
        world.offer(serve(number))
    await world.settle()
    assert [name for name, _ in world.log] == list(range(20))
    assert world.results == {number: number * number for number in range(20)}


@simulated("fifo")
async def test_a_slice_is_charged_what_it_cost_also_the_last_one(world):

    async def serve():
        await world.slices(3)
        world.work(50 * US)

    task = world.offer(serve)
    await world.settle()
    assert task.attained_ns == world.planes[0].attained_ns == 350 * US
    assert task.local_done_ns - task.dequeued_ns == 350 * US


@simulated("priority")
async def test_a_long_task_is_preempted_at_any_depth_and_resumes_intact(world):

    async def dig(depth):
        if depth:
            return [depth, *await dig(depth - 1)]
        await world.slices(100)
        return []

    produce = world.offer(lambda: dig(7), name="produce", level=4)
    await trio.sleep(0.00225)
    control = world.offer(lambda: world.slices(2), name="control", level=0)
    await world.settle()
    assert [name for name, _ in world.log] == ["control", "produce"]
    assert world.results["produce"] == [7, 6, 5, 4, 3, 2, 1]
    # The request is found at the next poll of the sockets, at most a quantum away.
    assert control.dequeued_ns - control.received_ns <= QUANTUM_NS + 100 * US
    assert (produce.preemptions, produce.suspended_ns) == (1, 200 * US)
    assert produce.attained_ns == 100 * 100 * US


@simulated("priority")
async def test_a_task_that_nothing_outranks_goes_on_in_place(world):
    first = world.offer(lambda: world.slices(50), level=1)
    second = world.offer(lambda: world.slices(50), level=1)
    await world.settle()
    assert (first.preemptions, second.preemptions) == (0, 0)


@simulated("fifo")
async def test_sockets_are_polled_once_per_quantum_even_under_full_load(world):
    ticks = []

    async def tick():
        while True:
            ticks.append(world.now_ns())
            await trio.sleep(0.0001)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        for _ in range(10):
            world.offer(lambda: world.slices(30))
        await world.settle()
        nursery.cancel_scope.cancel()
    gaps = [later - earlier for earlier, later in pairwise(ticks)]
    assert len(gaps) >= 60
    assert max(gaps) <= QUANTUM_NS + 2 * 100 * US


@simulated("fifo", "fifo", seats=1)
async def test_two_planes_share_the_cpu_and_the_idle_one_loses_nothing(world):
    data = world.offer(lambda: world.slices(300), plane=1, name="data")
    await trio.sleep(0.01)
    control = world.offer(lambda: world.slices(40), plane=0, name="control")
    await world.settle()
    assert [name for name, _ in world.log] == ["control", "data"]
    assert data.preemptions >= 2
    # Half of the CPU each, and one quantum for the plane that wakes.
    spent_ns = control.local_done_ns - control.received_ns
    assert 40 * 100 * US < spent_ns <= 2 * 40 * 100 * US + 2 * QUANTUM_NS


# ---- devices ------------------------------------------------------------------------


@simulated("fifo", seats=2)
async def test_a_device_wait_passes_the_token_on_and_keeps_the_seat(world):

    async def read_disk():
        world.work(100 * US)
        await trio.sleep(0.005)
        world.work(100 * US)
        return "read"

    world.offer(read_disk, name="disk")
    for number in range(3):
        world.offer(lambda: world.slices(10), name=number)
    await world.settle()
    assert world.log == [(0, 1100), (1, 2100), (2, 3100), ("disk", 5100)]


@simulated("fifo", seats=2)
async def test_no_third_is_served_while_two_seats_wait_for_devices(world):
    for number in range(3):
        world.offer(partial(trio.sleep, 0.005), name=number)
    await world.settle()
    assert sorted(world.log) == [(0, 5_000), (1, 5_000), (2, 10_000)]


@simulated("priority")
async def test_a_task_back_from_a_device_waits_for_its_turn(world):
    """Its level is lower than the running task's, so it must wait."""

    async def read_disk():
        await trio.sleep(0.0012)
        return "read"

    world.offer(read_disk, name="low", level=5)
    await wait_all_tasks_blocked()
    world.offer(lambda: world.slices(40), name="high", level=0)
    await world.settle()
    assert world.log == [("high", 4_000), ("low", 4_000)]


@simulated("fifo", "fifo")
async def test_time_at_a_device_is_no_credit_against_another_plane(world):
    """Both planes have work from 50 ms on, so 10 ms of work take 20 ms."""

    async def away():
        await trio.sleep(0.05)
        await world.slices(100)

    world.offer(away, plane=1, name="away")
    world.offer(lambda: world.slices(1_000), plane=0, name="busy")
    await world.settle()
    names, ends_us = zip(*world.log, strict=True)
    assert names == ("away", "busy")
    bound_us = 2 * QUANTUM_NS // US + 200
    assert abs(ends_us[0] - 70_000) <= bound_us
    assert ends_us[1] == 110_000


@simulated("fifo")
async def test_an_exception_of_a_device_reaches_the_handler(world):

    async def serve():
        try:
            with trio.fail_after(0.001):
                await trio.sleep_forever()
        except trio.TooSlowError:
            return "too slow"

    world.offer(serve)
    await world.settle()
    assert world.results == {0: "too slow"}


# ---- purgatory ----------------------------------------------------------------------


@simulated("priority", seats=1)
async def test_a_parked_task_frees_its_seat_and_comes_back_through_the_scheduler(world):
    wakes = []

    async def fetch():
        await parked(lambda wake: wakes.append(wake) or True)
        world.work(100 * US)
        return "fetched"

    task = world.offer(fetch, name="fetch", level=3)
    await wait_all_tasks_blocked()
    assert (world.planes[0].seated, world.planes[0].away) == (0, 1)
    world.offer(lambda: world.slices(10), name="urgent", level=0)
    (wake,) = wakes
    wake()
    await world.settle()
    assert world.log == [("urgent", 1_000), ("fetch", 1_100)]
    assert (task.local_done_ns, task.remote_done_ns) == (0, 1_100 * US)


@simulated("fifo")
async def test_a_task_with_nothing_to_wait_for_continues_at_once(world):

    async def fetch():
        await parked(lambda wake: False)
        return "complete"

    world.offer(fetch)
    await world.settle()
    assert world.results == {0: "complete"}


@simulated("fifo", seats=1)
async def test_a_task_asleep_until_another_ends_frees_its_seat(world):
    wakes = []

    async def first():
        await asleep(lambda wake: wakes.append(wake) or True)
        world.work(100 * US)

    task = world.offer(first, name="first")
    await wait_all_tasks_blocked()
    assert (world.planes[0].seated, world.planes[0].away) == (0, 1)

    async def second():
        world.work(200 * US)
        (wake,) = wakes
        wake()

    world.offer(second, name="second")
    await world.settle()
    assert [name for name, _ in world.log] == ["second", "first"]
    # The task was in the middle of its work, unlike a task in purgatory.
    assert (task.local_done_ns, task.suspended_ns) == (300 * US, 200 * US)


# ---- timed wake-ups -----------------------------------------------------------------


class Late(Fifo):
    """Serves no job before it is a millisecond old."""

    work_conserving = False

    def pick(self, now_ns):
        due_ns = self.next_event_ns(now_ns)
        return super().pick(now_ns) if due_ns is None or due_ns <= now_ns else None

    def next_event_ns(self, now_ns):
        first = next(iter(self.waiting()), None)
        return first and first.enqueued_ns + 1_000 * US


@simulated(Late)
async def test_a_policy_that_names_its_next_event_is_asked_again_then(world):
    world.offer(lambda: world.slices(1), name="first")
    await trio.sleep(0.0005)
    world.offer(lambda: world.slices(1), name="second")
    await world.settle()
    assert world.log == [("first", 1_100), ("second", 1_600)]
