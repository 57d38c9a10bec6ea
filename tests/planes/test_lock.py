"""Locks over preemption points: inversion with and without inheritance, chains, misuse.

The bounds are those of Sha, Rajkumar and Lehoczky (1990). With inheritance, an urgent
task waits for the rest of one critical section per lock, whatever the load of medium
priority.
"""

import pytest
import trio

from planes.lock import LockError, TaskLock
from planes.slices import parked, preempt
from schedulers import POLICIES
from tests.planes.simulation import QUANTUM_NS, US, in_virtual_time, simulated
from tests.planes.simulation import World as PlanesWorld

SLICE_NS = 100 * US
SECTION_SLICES = 20
LOW, MEDIUM, HIGH = 5, 3, 0


def pathfinder(*, inherits, flood, planes=1):
    """A high task needs the lock of a low one while ``flood`` medium tasks arrive.

    Return the latency of the high task, the tasks by name, and the order of their ends.
    """

    async def main(clock):
        world = PlanesWorld(clock, *["priority"] * planes, capacity=200)
        lock = TaskLock("bus", inherits=inherits)

        async def hold(slices):
            async with lock:
                await world.slices(slices)

        async def low():
            await hold(SECTION_SLICES)
            await world.slices(5)

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            tasks = {"low": world.offer(low, name="low", level=LOW)}
            await trio.sleep(0.00025)
            for number in range(flood):
                world.offer(lambda: world.slices(10), name=number, level=MEDIUM)
            tasks["high"] = world.offer(
                lambda: hold(1), plane=planes - 1, name="high", level=HIGH
            )
            await world.settle()
            nursery.cancel_scope.cancel()
        assert lock.holder is None
        assert not lock.sleepers
        high = tasks["high"]
        return high.remote_done_ns - high.received_ns, tasks, world.log

    return in_virtual_time(main)


@pytest.mark.parametrize("flood", [0, 1, 10, 100])
def test_with_inheritance_an_urgent_task_waits_for_one_critical_section(flood):
    took_ns, _, log = pathfinder(inherits=True, flood=flood)
    # The task's own slice, the rest of the section, and one poll of the sockets.
    assert took_ns <= (SECTION_SLICES + 1) * SLICE_NS + QUANTUM_NS
    assert [name for name, _ in log] == ["high", *range(flood), "low"]


@pytest.mark.parametrize("flood", [1, 10, 100])
def test_without_inheritance_it_waits_for_all_that_outranks_the_holder(flood):
    took_ns, _, log = pathfinder(inherits=False, flood=flood)
    assert took_ns >= flood * 10 * SLICE_NS
    assert [name for name, _ in log] == [*range(flood), "high", "low"]


def test_the_holder_is_back_at_its_own_rank_when_it_releases():
    _, tasks, log = pathfinder(inherits=True, flood=3)
    # Low has five slices left after its section: the medium tasks run before them.
    assert log[-1][0] == "low"
    assert tasks["low"].service_ns == (SECTION_SLICES + 5) * SLICE_NS
    assert tasks["high"].service_ns == 1 * SLICE_NS


def test_turns_are_billed_to_the_waiter_and_nothing_is_billed_twice():
    _, tasks, _ = pathfinder(inherits=True, flood=3)
    low, high = tasks["low"], tasks["high"]
    lent_ns = high.attained_ns - high.service_ns
    assert lent_ns == low.service_ns - low.attained_ns > 0
    assert low.attained_ns + high.attained_ns == (SECTION_SLICES + 6) * SLICE_NS


def test_a_holder_in_another_plane_runs_in_the_turn_of_the_waiter():
    """Data holds a lock that a controller's request in its own plane needs."""
    took_ns, _, _ = pathfinder(inherits=True, flood=100, planes=2)
    # The planes share the CPU, so the medium tasks get half of it.
    assert took_ns <= 2 * (SECTION_SLICES + 1) * SLICE_NS + 3 * QUANTUM_NS
    unbounded_ns, _, _ = pathfinder(inherits=False, flood=100, planes=2)
    assert unbounded_ns >= 100 * 10 * SLICE_NS


@pytest.mark.parametrize("inherits", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_all_tasks_that_share_locks(policy, inherits):
    """One task at a time holds a lock, and each task completes its work."""
    inside = {"a": 0, "b": 0}

    async def main(clock):
        world = PlanesWorld(clock, policy, policy, seats=3)
        locks = [TaskLock(name, inherits=inherits) for name in inside]

        async def hold(lock, slices):
            async with lock:
                inside[lock.name] += 1
                assert inside[lock.name] == 1
                await world.slices(slices)
                inside[lock.name] -= 1

        async def nested():
            async with locks[0]:
                await preempt()
                await hold(locks[1], 3)

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            tasks = []
            for number in range(40):
                serve = (
                    lambda: hold(locks[0], 4),
                    lambda: hold(locks[1], 2),
                    nested,
                    lambda: world.slices(3),
                )[number % 4]
                tasks.append(
                    world.offer(serve, plane=number // 4 % 2, level=number % 6)
                )
                await trio.sleep(0.0003)
            await world.settle()
            nursery.cancel_scope.cancel()
        assert len(world.log) == 40
        slices = sum((4, 2, 3, 3)) * 10
        assert sum(task.service_ns for task in tasks) == slices * SLICE_NS
        assert sum(plane.attained_ns for plane in world.planes) == slices * SLICE_NS

    in_virtual_time(main)


@simulated("priority")
async def test_rank_is_inherited_through_a_chain_of_locks(world):
    """High waits for b, held by middle, which waits for a, held by low."""
    a, b = TaskLock("a"), TaskLock("b")

    async def low():
        async with a:
            await world.slices(20)

    async def middle():
        async with b:
            await preempt()
            async with a:
                await world.slices(2)

    async def high():
        async with b:
            await world.slices(1)

    world.offer(low, name="low", level=5)
    await trio.sleep(0.00015)
    world.offer(middle, name="middle", level=4)
    await trio.sleep(0.00055)
    for number in range(50):
        world.offer(lambda: world.slices(10), name=number, level=MEDIUM)
    waiter = world.offer(high, name="high", level=HIGH)
    await world.settle()
    assert world.log[0][0] == "high"
    assert waiter.remote_done_ns - waiter.received_ns <= 23 * SLICE_NS + QUANTUM_NS


@simulated("priority")
async def test_of_several_waiters_the_policy_chooses(world):
    lock = TaskLock("lock")

    async def hold():
        async with lock:
            await world.slices(5)

    world.offer(hold, name="first", level=4)
    await trio.sleep(0.00015)
    for level in (3, 1, 2):
        world.offer(hold, name=level, level=level)
    await world.settle()
    # Releasing is a preemption point: the first task is preempted there.
    assert [name for name, _ in world.log] == [1, 2, 3, "first"]


# ---- misuse -------------------------------------------------------------------------


@simulated("priority")
async def test_a_circle_of_waiters_is_an_error_where_it_would_close(world):
    a, b = TaskLock("a"), TaskLock("b")
    caught = []

    async def take(first, second):
        async with first:
            await world.slices(10)
            try:
                async with second:
                    await world.slices(1)
            except LockError as error:
                caught.append(str(error))

    # The second task is admitted by a poll during the section of the first.
    world.offer(lambda: take(a, b), level=4)
    await trio.sleep(0.00005)
    world.offer(lambda: take(b, a), level=0)
    await world.settle()
    assert len(caught) == 1
    assert "whose holder waits for it" in caught[0]
    assert (a.holder, b.holder) == (None, None)


@simulated("fifo")
async def test_no_task_takes_a_lock_twice(world):
    lock = TaskLock("lock")

    async def twice():
        async with lock:
            with pytest.raises(LockError, match="whose holder waits for it"):
                async with lock:
                    pass

    world.offer(twice)
    await world.settle()
    assert lock.holder is None


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("wait", ["purgatory", "device"])
def test_a_holder_waits_neither_in_purgatory_nor_for_a_device(wait, lent):
    async def elsewhere():
        if wait == "device":
            await trio.sleep(1)
        else:
            await parked(lambda wake: True)

    async def main(clock):
        world = PlanesWorld(clock, "priority")
        lock = TaskLock("lock")

        async def low():
            async with lock:
                await world.slices(5)
                with pytest.raises(LockError, match="while it holds a lock"):
                    await elsewhere()

        async def high():
            async with lock:
                await world.slices(1)

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            world.offer(low, level=LOW)
            if lent:
                await trio.sleep(0.00015)
                world.offer(high, level=HIGH)
            await world.settle()
            nursery.cancel_scope.cancel()
        assert len(world.log) == 1 + lent
        assert lock.holder is None

    in_virtual_time(main)


@simulated("priority")
async def test_a_task_without_locks_may_wait_anywhere(world):
    outer, inner = TaskLock("outer"), TaskLock("inner")
    wakes = []

    async def low():
        async with outer:
            async with inner:
                await world.slices(5)
            with pytest.raises(LockError, match="while it holds a lock"):
                await trio.sleep(1)
        await trio.sleep(1)
        await parked(lambda wake: wakes.append(wake) or True)

    async def high():
        async with inner:
            await world.slices(1)

    world.offer(low, name="low", level=LOW)
    await trio.sleep(0.00015)
    world.offer(high, name="high", level=HIGH)
    while not wakes:  # noqa: ASYNC110 - there is no event for it, and time is virtual
        await trio.sleep(0.01)
    wakes.pop()()
    await world.settle()
    assert world.results == {"low": None, "high": None}


@pytest.mark.parametrize("inherits", [True, False])
def test_a_stop_closes_holders_and_waiters_alike(inherits):
    closed = []

    async def main(clock):
        world = PlanesWorld(clock, "priority")
        lock = TaskLock("lock", inherits=inherits)

        async def hold(name):
            try:
                async with lock:
                    await world.slices(10_000)
            finally:
                closed.append(name)

        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            for name, level in (("low", LOW), ("middle", 2), ("high", HIGH)):
                world.offer(lambda name=name: hold(name), level=level)
                await trio.sleep(0.0006)
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    assert sorted(closed) == ["high", "low", "middle"]


@simulated("priority")
async def test_a_handler_that_fails_in_its_section_frees_the_lock(world):
    lock = TaskLock("lock")

    async def fail():
        try:
            async with lock:
                await world.slices(3)
                raise OSError("disk")
        except OSError:
            return "failed"

    async def hold():
        async with lock:
            await world.slices(1)

    world.offer(fail, name="fails", level=LOW)
    await trio.sleep(0.00015)
    world.offer(hold, name="waits", level=HIGH)
    await world.settle()
    assert world.results == {"fails": "failed", "waits": None}
