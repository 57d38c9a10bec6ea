"""Arbitrary handlers and arrivals under Trio: no lost task, idle CPU or lost time."""

from functools import partial

import trio
from hypothesis import given
from hypothesis import strategies as st

from planes.slices import parked, preempt
from tests.planes.simulation import US, World, in_virtual_time

STEP = st.one_of(
    st.tuples(st.just("work"), st.integers(1, 900)),
    st.tuples(st.just("device"), st.integers(1, 2_000)),
    st.tuples(st.just("parked"), st.integers(0, 2_000)),
)
PROGRAM = st.tuples(
    st.integers(0, 3_000),  # arrival, in microseconds
    st.integers(0, 2),  # level
    st.integers(0, 1),  # plane
    st.booleans(),  # admission: put, or offer and listen
    st.lists(STEP, max_size=6),
)
PROGRAMS = st.lists(PROGRAM, min_size=1, max_size=25)


class Load:
    """Runs programs in a world; records CPU time and idle periods."""

    def __init__(self, world, programs):
        self.world = world
        self.programs = programs
        self.tasks = []
        self.refused = []
        self.worked_ns = 0

    async def serve(self, steps, nursery):
        for verb, us in steps:
            if verb == "work":
                self.world.work(us * US)
                self.worked_ns += us * US
                await preempt()
            elif verb == "device":
                await trio.sleep(us / 1e6)
            elif us:
                await parked(partial(self.register, nursery, us))
            else:
                await parked(lambda wake: False)
        return len(steps)

    def register(self, nursery, us, wake):
        async def complete():
            await trio.sleep(us / 1e6)
            wake()

        nursery.start_soon(complete)
        return True

    async def arrive(self, nursery, program):
        arrival_us, level, plane, puts, steps = program
        await trio.sleep(arrival_us / 1e6)
        task = self.world.task(partial(self.serve, steps, nursery), level=level)
        self.tasks.append((task, steps))
        core = self.world.planes[plane % len(self.world.planes)]
        if puts:
            await self.world.dispatcher.put(core, task)
        elif not self.world.dispatcher.offer(core, task):
            self.refused.append((core, task))

    def on_room(self):
        refused, self.refused = self.refused, []
        for core, task in refused:
            if not self.world.dispatcher.offer(core, task):
                self.refused.append((core, task))

    async def run(self, completions):
        for core in self.world.planes:
            self.world.dispatcher.on_room(core, self.on_room)
        async with trio.open_nursery() as nursery:
            for program in self.programs:
                nursery.start_soon(self.arrive, completions, program)
        while self.refused:  # noqa: ASYNC110 - time is virtual
            await trio.sleep(0.001)
        await self.world.settle()


def play(policies, programs, **settings):
    async def main(clock):
        world = World(clock, *policies, **settings)
        load = Load(world, programs)
        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            with trio.fail_after(60):
                await load.run(nursery)
            nursery.cancel_scope.cancel()
        return load

    return in_virtual_time(main)


POLICIES = st.sampled_from(
    [("fifo",), ("priority",), ("wfq",), ("fifo", "wfq"), ("priority", "fifo")]
)


@given(POLICIES, PROGRAMS, st.integers(1, 3), st.integers(1, 4))
def test_every_task_is_served_once_and_fully_accounted_for(
    policies, programs, seats, capacity
):
    load = play(policies, programs, seats=seats, capacity=capacity)
    world = load.world
    assert len(load.tasks) == len(programs)
    assert sorted(name for name, _ in world.log) == list(range(len(programs)))
    for task, steps in load.tasks:
        assert world.results[task.number] == len(steps)
        cpu_ns = sum(us * US for verb, us in steps if verb == "work")
        assert task.attained_ns == cpu_ns
        assert task.enqueued_ns <= task.dequeued_ns <= task.local_done_ns
        assert task.local_done_ns <= task.remote_done_ns
        inside_ns = task.local_done_ns - task.dequeued_ns
        assert 0 <= task.suspended_ns <= inside_ns
    assert sum(plane.attained_ns for plane in world.planes) == load.worked_ns


@given(POLICIES, PROGRAMS, st.integers(1, 3), st.integers(1, 4))
def test_the_same_seed_gives_the_same_history(policies, programs, seats, capacity):
    first, second = (
        play(policies, programs, seats=seats, capacity=capacity) for _ in range(2)
    )
    assert first.world.log == second.world.log


def lone_cpu_ends_us(programs):
    """Return the time at which one work-conserving CPU has completed all work."""
    now_us = 0
    for arrival_us, *_, steps in sorted(programs, key=lambda program: program[0]):
        now_us = max(now_us, arrival_us) + sum(us for _, us in steps)
    return now_us


WORK_ONLY = st.lists(
    st.tuples(
        st.integers(0, 3_000),
        st.integers(0, 2),
        st.integers(0, 1),
        st.booleans(),
        st.lists(st.tuples(st.just("work"), st.integers(1, 900)), max_size=6),
    ),
    min_size=1,
    max_size=25,
)


@given(POLICIES, WORK_ONLY, st.integers(1, 3))
def test_the_cpu_never_idles_while_work_waits(policies, programs, seats):
    """Busy periods do not depend on the policy: the last one ends as computed."""
    load = play(policies, programs, seats=seats, capacity=100)
    assert max(end_us for _, end_us in load.world.log) == lone_cpu_ends_us(programs)
