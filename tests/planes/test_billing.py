"""Billing of a task: its turns, and the work for it before and after them."""

import threading
import time
from functools import partial

import trio

from broker.observation.busy_time import BusyTime
from planes.cpu_ledger import CpuLedger
from planes.slices import parked
from schedulers import make
from tests.planes.simulation import US, simulated


def answered_in(world, task, cost_ns):
    """Use ``cost_ns`` of CPU for handling a task's response."""
    done = task.done

    def slowly(task, result):
        done(task, result)
        world.clock.jump(cost_ns)

    task.done = slowly


async def nothing():
    """Return without doing anything."""


@simulated("wfq")
async def test_handling_of_an_answer_is_billed_to_the_turn(world):
    plane = world.planes[0]
    sent = world.task(partial(world.slices, 2), level=1)
    told = []
    sent.done = lambda task, result: (
        told.append((task.attained_ns, task.remote_done_ns)),
        world.clock.jump(300 * US),
    )
    began_ns = world.now_ns()
    assert world.dispatcher.offer(plane, sent)
    await world.settle()
    # The task's stamps and service time cover its handler; its flow pays for all work.
    assert told == [(200 * US, began_ns + 200 * US)]
    assert sent.attained_ns == plane.attained_ns == 500 * US
    assert sent.service_ns == 200 * US


@simulated("fifo", "wfq")
async def test_a_task_that_is_served_at_once_is_billed_as_one_that_has_turns(world):
    sent = world.task(lambda: world.work(200 * US))
    sent.prior_ns = 70 * US
    told = []
    sent.done = lambda task, result: (
        told.append((task.service_ns, task.local_done_ns, task.remote_done_ns)),
        world.clock.jump(300 * US),
    )
    began_ns = world.now_ns()
    assert world.dispatcher.offer(world.planes[1], sent)
    await world.settle()
    done_ns = began_ns + 200 * US
    assert told == [(200 * US, done_ns, done_ns)]
    assert sent.service_ns == 200 * US
    assert sent.attained_ns == 570 * US
    assert [plane.attained_ns for plane in world.planes] == [0, 570 * US]


@simulated("wfq")
async def test_a_flow_whose_answers_are_dear_to_send_gets_fewer_turns(world):
    for number in range(20):
        serve = partial(world.slices, 1)
        task = world.task(serve, name=number % 2, level=number % 2, cost_ns=100 * US)
        if task.level:
            answered_in(world, task, 900 * US)
        assert world.dispatcher.offer(world.planes[0], task)
    await world.settle()
    first = [name for name, _ in world.log[:10]]
    assert first.count(0) >= 8


@simulated("fifo")
async def test_intake_of_a_task_is_billed_at_its_end(world):
    task = world.offer(partial(world.slices, 1))
    task.prior_ns = 70 * US
    await world.settle()
    assert world.planes[0].attained_ns == 170 * US


def dear_to_pick(config):
    """Return a FIFO policy whose picks take time."""
    policy = make("fifo", config)
    pick = policy.pick

    def slowly(now_ns):
        if len(policy):
            clocks[-1].jump(30 * US)
        return pick(now_ns)

    policy.pick = slowly
    return policy


clocks = []


@simulated(dear_to_pick)
async def test_a_picked_task_pays_for_the_pick_outside_its_service_time(
    world,
):
    clocks.append(world.clock)
    tasks = [world.offer(partial(world.slices, 1)) for _ in range(3)]
    served = []
    for task in tasks:
        done = task.done
        task.done = lambda task, result, done=done: (
            served.append(task.service_ns),
            done(task, result),
        )
    await world.settle()
    assert served == [100 * US] * 3
    assert [task.attained_ns for task in tasks] == [130 * US] * 3
    assert [(task.service_ns, task.prior_ns) for task in tasks] == [
        (100 * US, 30 * US)
    ] * 3


@simulated("fifo")
async def test_a_loop_that_reports_its_waits_leaves_no_unbilled_time(
    world,
):
    ledger = world.dispatcher.ledger
    ledger.spans, ledger.until_ns = True, world.now_ns()
    began_ns = world.now_ns()
    task = world.offer(partial(world.slices, 1))
    world.clock.jump(40 * US)  # the event loop, before the task runs
    await world.settle()
    assert task.attained_ns == 140 * US
    world.clock.jump(60 * US)
    ledger.until_ns = world.now_ns() - 5 * US
    with ledger.of("samples"):
        world.clock.jump(10 * US)
    assert ledger.housekeeping_ns == 15 * US
    assert ledger.until_ns == world.now_ns() > began_ns


def test_a_wait_of_the_loop_is_nobodys_and_a_look_is_somebodys():
    now_ns = 0
    ledger = CpuLedger(lambda: now_ns)
    busy = BusyTime(lambda: now_ns)
    busy.begin(ledger)
    now_ns = 10
    assert busy.deadline_to_sleep_time(busy.current_time() - 1) < 0
    now_ns = 12
    busy.current_time()
    assert (ledger.until_ns, busy.busy_ns()) == (0, 12)
    now_ns = 20
    assert 9 < busy.deadline_to_sleep_time(busy.current_time() + 10) < 11
    now_ns = 100
    busy.current_time()
    now_ns = 103
    busy.current_time()
    assert (ledger.until_ns, busy.busy_ns()) == (100, 23)


def test_trio_asks_the_clock_where_its_loop_waits_and_where_a_wait_has_ended():
    busy = BusyTime()
    ledger = CpuLedger(time.monotonic_ns)

    async def main():
        busy.begin(ledger)
        began_ns = time.monotonic_ns()
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert ledger.until_ns <= began_ns
        there = trio.Event()
        token = trio.lowlevel.current_trio_token()
        thread = threading.Thread(target=token.run_sync_soon, args=(there.set,))
        thread.start()
        await there.wait()
        thread.join()
        assert began_ns < ledger.until_ns <= time.monotonic_ns()
        spent_ns = time.monotonic_ns() - began_ns
        assert busy.busy_ns() < spent_ns

    trio.run(main, clock=busy)


@simulated("fifo", "wfq")
async def test_work_for_a_task_after_its_turns_is_billed_to_its_plane(world):
    task = world.offer(partial(world.slices, 1), plane=1)
    await world.settle()
    world.dispatcher.debit(task, 40 * US)
    assert [plane.attained_ns for plane in world.planes] == [0, 140 * US]


@simulated("fifo")
async def test_a_seat_is_occupied_while_a_handler_waits_for_a_device_or_a_turn(world):
    plane = world.planes[0]
    began_ns = world.now_ns()
    world.offer(partial(trio.sleep, 0.004))
    world.offer(partial(trio.sleep, 0.001))
    await trio.sleep(0.002)
    assert plane.occupied_ns(world.now_ns()) == 3_000 * US
    await world.settle()
    assert plane.occupied_ns(world.now_ns()) == 5_000 * US
    assert plane.occupied_ns(world.now_ns()) == plane.occupied_ns(began_ns)


@simulated("fifo")
async def test_a_seat_is_free_while_a_request_is_in_purgatory(world):
    wakes = []

    async def serve():
        world.work(100 * US)
        await parked(lambda wake: wakes.append(wake) or True)
        world.work(100 * US)

    world.offer(serve)
    await trio.sleep(0.005)
    assert world.planes[0].occupied_ns(world.now_ns()) == 100 * US
    wakes[0]()
    await world.settle()
    assert world.planes[0].occupied_ns(world.now_ns()) == 200 * US


def test_housekeeping_within_housekeeping_is_billed_once():
    now_ns = 0
    ledger = CpuLedger(lambda: now_ns)
    with ledger.of("upkeep"):
        now_ns = 5
        with ledger.of("upkeep"), ledger.of("samples"):
            now_ns = 9
        now_ns = 10
    now_ns = 20
    with ledger.of("samples"):
        now_ns = 21
    assert ledger.by_kind_ns == {"upkeep": 10, "samples": 1}
    assert ledger.housekeeping_ns == 11
