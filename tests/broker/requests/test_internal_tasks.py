"""Internal tasks of a broker compete with requests on a plane, in virtual time."""

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
    """A duty of ``count`` pieces on a simulated plane; ``left`` of them remain."""

    def __init__(self, world: World, count: int) -> None:
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
            submit=self.tasks.submit,
            now_ns=world.now_ns,
            moved=self.move,
        )

    def move(self) -> None:
        self.moved += 1
        self.timer.moved()

    async def run(self) -> None:
        """Submit pieces when due; return when all are done."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timer.run)
            while self.left:  # noqa: ASYNC110 - there is no event for it
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        await self.world.settle()

    def step(self) -> None:
        self.world.work(STEP_NS)
        if self.fails:
            self.fails -= 1
            raise OSError("a fault")
        self.left -= 1


@pytest.mark.parametrize("level", [0, 2, 4, 5])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_request_waits_for_one_piece_at_most(policy: str, level: int) -> None:
    """Holds under any policy and for any class, more or less urgent than the pieces."""

    @simulated(policy, seats=1)
    async def test(world: Any) -> None:
        pieces = Pieces(world, 200)
        requests = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pieces.run)
            for number in range(1, 21):
                due_ns = number * 1_370 * US
                await trio.sleep((due_ns - world.now_ns()) / 1e9)
                request = world.offer(lambda: world.slices(1), level=level)
                requests.append((due_ns, request))
        waits_ns = [request.dequeued_ns - due_ns for due_ns, request in requests]
        assert 0 < max(waits_ns) <= STEP_NS
        assert pieces.left == pieces.tasks.pending == 0
        assert pieces.duty.due_ns() is None

    test()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_requests_have_half_of_the_cpu_at_least(policy: str) -> None:
    @simulated(policy, seats=1)
    async def test(world: Any) -> None:
        pieces = Pieces(world, 1_000)
        requests = [world.offer(lambda: world.slices(1), level=4) for _ in range(100)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pieces.run)
        assert max(each.local_done_ns for each in requests) <= (2 * 100 + 1) * STEP_NS

    test()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_pieces_go_on_beside_requests_without_end(policy: str) -> None:
    """Clients wait for the load of a group, so less urgent work must not starve it."""

    @simulated(policy, seats=1)
    async def test(world: Any) -> None:
        pieces = Pieces(world, 1_000)
        clients, end_ns = 4, 200 * 1_000 * US

        async def request() -> None:
            await world.slices(1)
            if world.now_ns() < end_ns:
                world.offer(request, level=4, cost_ns=STEP_NS)

        for _ in range(clients):
            world.offer(request, level=4, cost_ns=STEP_NS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pieces.run)
            await trio.sleep(end_ns / 1e9)
            done = 1_000 - pieces.left
        if not POLICIES[policy].may_starve:
            # A poll notices the end of a pause; then all clients have a turn first.
            apart_ns = QUANTUM_NS + (clients + 3) * STEP_NS
            assert done >= end_ns // apart_ns
        assert pieces.left == 0

    test()


@simulated("priority", seats=1)
async def test_pieces_follow_each_other_without_a_timer(world: Any) -> None:
    pieces = Pieces(world, 1_000)
    await pieces.run()
    assert pieces.moved == 1
    assert pieces.tasks.pending == 0


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
async def test_cpu_of_pieces_is_billed_to_their_flow(world: Any) -> None:
    pieces = Pieces(world, 50)
    await pieces.run()
    assert world.planes[0].attained_ns == 50 * STEP_NS


def test_without_a_plane_a_piece_is_done_at_once() -> None:
    calls: list[str] = []
    submit_here(
        "group", "pieces", lambda: calls.append("work"), lambda _: calls.append("done")
    )
    assert calls == ["work", "done"]
