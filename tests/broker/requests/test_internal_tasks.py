"""Tasks that no client sent, beside requests, on a plane in virtual time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.lowlevel

from broker.node.background import RETRY_NS, PlaneDuty
from broker.requests.internal_tasks import InternalTasks, submit_here
from broker.requests.timer import DeadlineTimer
from schedulers.registry import POLICIES
from tests.planes.simulation import QUANTUM_NS, US, World, simulated

STEP_NS = 100 * US


class Pieces:
    """A duty of so many steps on a simulated plane, and the number that is done."""

    def __init__(self, world: World, count: int, steps_per_piece: int = 1) -> None:
        self.world = world
        self.left = count
        self.fails = 0
        self.tasks = InternalTasks(
            world.dispatcher,
            world.planes[0],
            numbers=(world.task(None).number for _ in itertools.count()),
            levels={"group": 2},
        )
        self.moved = 0
        self.timer = DeadlineTimer(
            lambda: self.duty.due_ns(),
            lambda now_ns: self.duty.run(now_ns),
            world.now_ns,
        )
        self.duty = PlaneDuty(
            "pieces",
            "group",
            lambda: 0 if self.left else None,
            self.step,
            steps_per_piece=steps_per_piece,
            submit=self.tasks.submit,
            now_ns=world.now_ns,
            moved=self.move,
        )

    def move(self) -> None:
        self.moved += 1
        self.timer.moved()

    async def run(self) -> None:
        """Submit pieces when they are due, and return when all are done."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timer.run)
            while self.left:  # noqa: ASYNC110 - there is no event for it
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        await self.world.settle()

    def step(self) -> bool:
        if not self.left:
            return False
        self.world.work(STEP_NS)
        if self.fails:
            self.fails -= 1
            raise OSError("a fault")
        self.left -= 1
        return True


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_pieces_and_requests_take_turns_under_every_policy(policy: str) -> None:
    @simulated(policy, seats=1)
    async def test(world: Any) -> None:
        pieces = Pieces(world, 200)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pieces.run)
            requests = []
            for _ in range(20):
                await trio.sleep(0.00137)
                requests.append(world.offer(lambda: world.slices(1), level=4))
        # A piece is in service, and another one was ahead in the queue.
        waits_ns = [each.dequeued_ns - each.received_ns for each in requests]
        assert max(waits_ns) <= QUANTUM_NS + 2 * STEP_NS
        assert pieces.left == pieces.tasks.pending == 0
        assert pieces.moved == 200
        assert pieces.duty.due_ns() is None

    test()


@simulated("priority", seats=1)
async def test_others_have_half_of_the_cpu_whatever_the_policy_prefers(
    world: Any,
) -> None:
    pieces = Pieces(world, 1_000)
    request = world.offer(lambda: world.slices(100), level=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pieces.run)
    # A hundred slices of its own, and as many pieces between.
    assert request.local_done_ns - request.received_ns <= 2 * 100 * STEP_NS + QUANTUM_NS


@simulated("priority", seats=1)
async def test_a_more_urgent_request_preempts_a_piece(world: Any) -> None:
    pieces = Pieces(world, 1_000, steps_per_piece=1_000)
    pieces.duty.run(world.now_ns())
    await trio.sleep(0.00325)
    control = world.offer(lambda: world.slices(1), level=0)
    await world.settle()
    assert control.dequeued_ns - control.received_ns <= 500 * US + STEP_NS
    assert pieces.left == 0


@simulated("fifo", capacity=1, seats=1)
async def test_a_piece_enters_a_full_queue_and_takes_no_room_in_it(world: Any) -> None:
    await world.fill(waiting=1)
    pieces = Pieces(world, 3)
    pieces.duty.run(world.now_ns())
    plane = world.planes[0]
    assert len(plane.scheduler) == 2
    assert plane.queued == 1
    plane.check()
    await pieces.run()
    assert pieces.left == 0


@simulated("fifo", seats=1)
async def test_a_fault_costs_a_piece_and_a_pause(world: Any) -> None:
    pieces = Pieces(world, 5)
    pieces.fails = 1
    pieces.duty.run(world.now_ns())
    await world.settle()
    assert (pieces.duty.failures, pieces.left) == (1, 5)
    due_ns = pieces.duty.due_ns()
    assert due_ns is not None
    assert due_ns >= RETRY_NS
    pieces.duty.run(due_ns - 1)
    await world.settle()
    assert pieces.left == 5
    await pieces.run()
    assert (pieces.duty.failures, pieces.left) == (1, 0)


@simulated("wfq", seats=1)
async def test_what_pieces_use_is_billed_to_their_flow(world: Any) -> None:
    pieces = Pieces(world, 50)
    await pieces.run()
    assert world.planes[0].attained_ns == 50 * STEP_NS


def test_without_a_plane_a_piece_is_done_at_once() -> None:
    steps = iter(range(3))

    async def work() -> None:
        next(steps)

    done: list[None] = []
    submit_here("group", "pieces", work, lambda pause_ns: done.append(None))
    assert (next(steps), done) == (1, [None])
