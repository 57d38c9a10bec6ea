"""Who pays for what: all that is done for a task, in its turns and around them."""

from functools import partial

import trio

from planes.housekeeping import Housekeeping
from planes.slices import parked
from tests.planes.simulation import US, simulated


def answered_in(world, task, cost_ns):
    """Let what is done with a task's answer take ``cost_ns`` of CPU."""
    done = task.done

    def slowly(task, result):
        done(task, result)
        world.clock.jump(cost_ns)

    task.done = slowly


async def nothing():
    """Answer without doing anything."""


@simulated("wfq")
async def test_what_is_done_with_an_answer_is_billed_to_the_turn(world):
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
    # Its own stamps and service are those of its handler; its flow pays for all.
    assert told == [(200 * US, began_ns + 200 * US)]
    assert sent.attained_ns == plane.attained_ns == 500 * US


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
async def test_what_it_took_to_take_a_task_in_is_billed_when_it_is_done(world):
    task = world.offer(partial(world.slices, 1))
    task.prior_ns = 70 * US
    await world.settle()
    assert world.planes[0].attained_ns == 170 * US


@simulated("fifo", "wfq")
async def test_what_is_done_for_a_task_after_its_turns_is_billed_to_its_plane(world):
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
    housekeeping = Housekeeping(lambda: now_ns)
    with housekeeping:
        now_ns = 5
        with housekeeping:
            now_ns = 9
        now_ns = 10
    now_ns = 20
    with housekeeping:
        now_ns = 21
    assert housekeeping.billed_ns == 11
