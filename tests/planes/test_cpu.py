"""Alternation of planes on one CPU, and its bounds."""

import random

import pytest

from planes import Block, Cpu, PlaneCore, Task
from schedulers import SchedulerConfig, make

QUANTUM_NS, SLICE_NS = 100, 30


def planes(count):
    return [
        PlaneCore(
            str(number),
            make("fifo", SchedulerConfig()),
            Block(capacity=10**6),
            seats=2,
        )
        for number in range(count)
    ]


class OneCpu:
    """Runs tasks of given lengths in slices, as the dispatcher does, without Trio."""

    def __init__(self, cores, rng):
        self.cores = cores
        self.cpu = Cpu(cores, quantum_ns=QUANTUM_NS)
        self.rng = rng
        self.now_ns = 0
        self.rest_ns = {}
        self.running = None
        self.blocked = []
        self.received_ns = dict.fromkeys(cores, 0)

    def arrive(self, core, size_ns):
        task = Task(number=len(self.rest_ns))
        self.rest_ns[task] = size_ns
        assert core.offer(task, self.now_ns)
        self.cpu.wake(core)

    def unblock(self):
        task = self.blocked.pop(self.rng.randrange(len(self.blocked)))
        task.plane.unblock(task, self.now_ns)
        self.cpu.wake(task.plane)

    def ready(self, core):
        """Return whether the plane runs or could run."""
        return core.can_pick() or (self.running and self.running.plane is core)

    def step(self, block=0.0):
        """Run one slice; return the plane that got it, or None."""
        if self.running is None:
            self.running = self.cpu.pick(self.now_ns)
        task = self.running
        if task is None:
            assert not any(core.can_pick() for core in self.cores)
            return None
        core = task.plane
        used_ns = min(self.rng.randrange(1, SLICE_NS + 1), self.rest_ns[task])
        self.now_ns += used_ns
        self.rest_ns[task] -= used_ns
        self.received_ns[core] += used_ns
        if not self.rest_ns[task]:
            self.cpu.finish(task, used_ns, self.now_ns)
            self.running = None
            return core
        self.cpu.charge(task, used_ns, self.now_ns)
        if self.rng.random() < block:
            core.block(task, self.now_ns)
            self.blocked.append(task)
            self.running = None
        elif self.cpu.must_yield(task, self.now_ns):
            core.suspend(task, self.now_ns)
            self.cpu.wake(core)
            self.running = None
        return core


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [2, 3])
def test_planes_that_are_ready_throughout_receive_the_same_within_the_bound(
    seed, count
):
    """The bound of the docstring of ``planes.cpu``, after any history."""
    rng = random.Random(f"{count}/{seed}")
    cores = planes(count)
    world = OneCpu(cores, rng)
    low, high = {}, {}
    bound_ns = count * QUANTUM_NS + 2 * SLICE_NS
    for _ in range(3_000):
        for core in cores:
            if rng.random() < 0.02:
                for _ in range(rng.randrange(1, 12)):
                    world.arrive(core, rng.randrange(1, 8 * SLICE_NS))
        if world.blocked and rng.random() < 0.1:
            world.unblock()
        if world.step(block=0.05) is None:
            world.now_ns += 50
        for i, one in enumerate(cores):
            for other in cores[i + 1 :]:
                pair = one, other
                if not (world.ready(one) and world.ready(other)):
                    low.pop(pair, None)
                    high.pop(pair, None)
                    continue
                gap_ns = world.received_ns[one] - world.received_ns[other]
                low[pair] = min(low.get(pair, gap_ns), gap_ns)
                high[pair] = max(high.get(pair, gap_ns), gap_ns)
                assert high[pair] - low[pair] <= bound_ns


def test_a_plane_that_wakes_preempts_at_the_next_preemption_point():
    control, data = cores = planes(2)
    world = OneCpu(cores, random.Random(1))
    world.arrive(data, 10_000)
    for _ in range(100):
        world.step()
    world.arrive(control, 1)
    assert world.step() is data
    assert world.step() is control
    assert world.step() is data


def wake_after_idling(idle, idler, other, world):
    """Leave one plane idle while the other runs, then give both work."""
    idle(idler, other, world)
    before = dict(world.received_ns)
    for core in (other, idler):
        for _ in range(40):
            world.arrive(core, 500)
    while world.blocked:
        world.unblock()
    for _ in range(200):
        world.step()
    return [world.received_ns[core] - before[core] for core in (idler, other)]


def idle_beside_a_busy_plane(idler, other, world):
    world.arrive(other, 50_000)
    while world.step():
        pass


def idle_while_all_idle(idler, other, world):
    idle_beside_a_busy_plane(idler, other, world)
    # The idler wakes first, alone: the other plane must not be far ahead of it.
    world.arrive(idler, 500)


def idle_waiting_for_a_device(idler, other, world):
    for _ in range(idler.seats):
        world.arrive(idler, 1_000)
    while world.step(block=1.0):
        pass
    idle_beside_a_busy_plane(idler, other, world)


@pytest.mark.parametrize(
    "idle",
    [idle_beside_a_busy_plane, idle_while_all_idle, idle_waiting_for_a_device],
)
def test_idle_time_is_not_saved_up_as_credit(idle):
    idler, other = cores = planes(2)
    world = OneCpu(cores, random.Random(2))
    idler_ns, other_ns = wake_after_idling(idle, idler, other, world)
    assert abs(idler_ns - other_ns) <= 2 * (QUANTUM_NS + SLICE_NS)


def test_of_two_planes_that_wake_the_one_that_had_less_goes_first():
    busy, rested = cores = planes(2)
    world = OneCpu(cores, random.Random(4))
    world.arrive(busy, 10_000)
    while world.step():
        pass
    world.arrive(busy, 10)
    world.arrive(rested, 10)
    assert world.step() is rested


def test_a_plane_that_time_alone_set_going_is_one_of_those_that_run():
    """A plane at its ceiling wakes by the clock, without an arrival."""
    limits = SchedulerConfig(options={"limit.data": 0.5})
    capped = PlaneCore("capped", make("mclock", limits), Block(capacity=9), seats=1)
    (other,) = planes(1)
    world = OneCpu([capped, other], random.Random(5))
    for number in range(2):
        task = Task(number=number, request_class="data", cost_ns=1_000)
        world.rest_ns[task] = 1_000
        assert capped.offer(task, 0)
        world.cpu.wake(capped)
    while capped.seated or not capped.attained_ns:
        world.step()
    assert world.cpu.pick(world.now_ns) is None
    world.now_ns = world.cpu.next_event_ns(world.now_ns)
    world.step()
    world.arrive(other, 10)
    # The other plane is a quantum behind the running one, so it gets the turn.
    assert world.cpu.must_yield(world.running, world.now_ns)


def test_one_plane_alone_is_left_to_its_own_policy():
    (core,) = cores = planes(1)
    world = OneCpu(cores, random.Random(3))
    for _ in range(5):
        world.arrive(core, 1_000)
    while world.step():
        pass
    assert all(task.preemptions == 0 for task in world.rest_ns)
