"""Planes that lend idle seats: use of idle seats, and their return.

The laws are checked on random histories, against a plain account of the seats. Each
plane owns its seats; a plane that uses more seats has borrowed them.
"""

from functools import partial

import trio
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from experiments.worlds.model.engine import Engine
from experiments.worlds.model.open_loop import OpenLoop
from experiments.worlds.model.site import Overheads, Site
from experiments.worlds.model.task import ModelTask
from planes import Block, PlaneCore, Task
from planes.lending import Lending
from schedulers import SchedulerConfig, make
from tests.planes.simulation import US, simulated

MS = 1_000_000


def two_planes(*seats, policy="fifo"):
    return tuple(
        PlaneCore(
            name,
            make(policy, SchedulerConfig()),
            Block(capacity=10**6),
            seats=count,
        )
        for name, count in zip(("data", "control"), seats, strict=True)
    )


class Pool(RuleBasedStateMachine):
    """Two planes over one pool of seats, which are always filled."""

    @initialize(
        seats=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        borrows=st.tuples(st.booleans(), st.booleans()),
    )
    def begin(self, seats, borrows):
        self.planes = two_planes(*seats)
        self.borrows = dict(zip(self.planes, borrows, strict=True))
        borrowers = [plane for plane in self.planes if self.borrows[plane]]
        self.lending = Lending(self.planes, borrowers)
        self.seated = {plane: [] for plane in self.planes}
        self.number = 0

    def fill(self):
        while (task := self.lending.pick(0)) is not None:
            self.seated[task.plane].append(task)

    @rule(which=st.integers(0, 1))
    def arrive(self, which):
        self.number += 1
        assert self.planes[which].offer(Task(number=self.number), 0)
        self.fill()

    @rule(data=st.data(), verb=st.sampled_from(("finish", "park", "suspend")))
    @precondition(lambda self: any(self.seated.values()))
    def stop(self, data, verb):
        sitting = [task for tasks in self.seated.values() for task in tasks]
        task = data.draw(st.sampled_from(sitting))
        self.seated[task.plane].remove(task)
        if verb == "finish":
            self.lending.finish(task, 0, 0)
        else:
            getattr(task.plane, verb)(task, 0)
        self.fill()

    @rule(data=st.data())
    @precondition(lambda self: any(self.seated.values()))
    def come_to_a_preemption_point(self, data):
        sitting = [task for tasks in self.seated.values() for task in tasks]
        task = data.draw(st.sampled_from(sitting))
        if self.lending.must_yield(task, 0):
            owner = self.lending.planes[self.lending.planes[0] is task.plane]
            waited = len(owner.scheduler)
            self.seated[task.plane].remove(task)
            task.plane.suspend(task, 0)
            self.fill()
            # The owner takes the returned seat.
            assert len(owner.scheduler) == waited - 1

    @invariant()
    def the_laws_hold(self):
        if not hasattr(self, "planes"):
            return
        first, second = self.planes
        taken = sum(map(len, self.seated.values()))
        assert taken <= self.lending.seats
        for plane, other in ((first, second), (second, first)):
            plane.check()
            mine, theirs = len(self.seated[plane]), len(self.seated[other])
            waits = len(plane.scheduler) > 0
            # A plane uses only idle seats of others, and only if it may borrow.
            assert mine <= plane.seats or self.borrows[plane]
            # Work conservation.
            if waits and self.borrows[plane]:
                assert taken == self.lending.seats
            if waits and not self.borrows[plane]:
                assert mine >= plane.seats or taken == self.lending.seats
            # Restraint: a plane that waits below its own number of seats gets one back
            # soon.
            if waits and mine < plane.seats:
                assert theirs > other.seats
                assert all(
                    self.lending.must_yield(task, 0) for task in self.seated[other]
                )
            elif theirs > other.seats:
                assert not any(
                    self.lending.must_yield(task, 0) for task in self.seated[other]
                )


def test_lending_keeps_its_laws_whatever_happens():
    run_state_machine_as_test(
        Pool,
        settings=hypothesis_settings(
            max_examples=60, stateful_step_count=40, deadline=None
        ),
    )


# ---- under Trio ---------------------------------------------------------------------


def control_behind_a_device(lending):
    """Two control requests wait for a disk while data handlers are idle."""
    answered_us = []

    @simulated("fifo", "fifo", seats=1)
    async def scenario(world):
        if lending:
            Lending(world.planes, world.planes)
        for name in ("first", "second"):
            world.offer(partial(trio.sleep, 0.001), plane=1, name=name)
        await world.settle()
        answered_us.extend(us for _, us in world.log)

    scenario()
    return answered_us


def test_control_uses_an_idle_data_handler():
    assert control_behind_a_device(lending=False) == [1000, 2000]
    assert control_behind_a_device(lending=True) == [1000, 1000]


@simulated("fifo", "fifo", seats=1)
async def test_a_borrowed_handler_is_given_back_at_the_next_preemption_point(world):
    """Data holds both seats: one waits for a disk, the other computes in slices."""
    Lending(world.planes, world.planes)
    world.offer(partial(trio.sleep, 0.1), name="disk")
    world.offer(partial(world.slices, 20), name="slices")
    await trio.sleep(0.00025)
    assert [plane.seated for plane in world.planes] == [2, 0]
    offered_us = world.now_ns() // US
    world.offer(partial(world.slices, 1), plane=1, name="control")
    await world.settle()
    assert [name for name, _ in world.log] == ["control", "slices", "disk"]
    # At most the running slice and the request's own.
    assert dict(world.log)["control"] <= offered_us + 2 * 100


# ---- in the model world, where each seat is a server --------------------------------


def served(planes, borrowers, jobs, *, granularity_ns=0):
    """Serve ``(at_ms, plane, need_ms)``; return the tasks."""
    sites = (
        [Site([plane], Overheads(granularity_ns=granularity_ns)) for plane in planes]
        if borrowers is None
        else [
            Site(
                planes,
                Overheads(granularity_ns=granularity_ns),
                shared=Lending(planes, borrowers),
            )
        ]
    )
    engine = Engine(sites, quantum_ns=MS)
    done = []
    tasks = [
        ModelTask(number, round(at * MS), round(need * MS))
        for number, (at, which, need) in enumerate(jobs)
    ]
    for task, (_, which, _) in zip(tasks, jobs, strict=True):
        task.plane = planes[which]
    engine.run(OpenLoop(engine, iter(tasks), done.append))
    for plane in planes:
        plane.check()
    return {task.number: task.remote_done_ns / MS for task in done}


DATA, CONTROL = 0, 1


def test_at_saturation_the_control_handler_works_too():
    """The control handler is free from 1 ms and serves data until 11 ms if it lends."""
    jobs = [(0, DATA, 10), (0, CONTROL, 1), (1, DATA, 10), (2, DATA, 10)]
    assert served(two_planes(1, 1), None, jobs) == {0: 10, 1: 1, 2: 20, 3: 30}
    planes = two_planes(1, 1)
    assert served(planes, planes, jobs) == {0: 10, 1: 1, 2: 11, 3: 20}


def test_control_takes_its_seat_back_in_the_middle_of_a_request():
    planes = two_planes(1, 1)
    jobs = [(0, DATA, 10), (0, DATA, 10), (3, CONTROL, 2)]
    found = served(planes, planes, jobs)
    assert found[2] == 5
    assert sorted(found.values()) == [5, 10, 12]


def test_a_lent_seat_returns_at_a_preemption_point():
    planes = two_planes(1, 1)
    jobs = [(0, DATA, 10), (0, DATA, 10), (3, CONTROL, 2)]
    found = served(planes, planes, jobs, granularity_ns=4 * MS)
    assert found[2] == 6
    assert sorted(found.values()) == [6, 10, 12]


def test_lending_one_way_leaves_the_other_way_as_it_was():
    jobs = [(0, DATA, 10), (0, DATA, 10), (0, CONTROL, 5), (0, CONTROL, 5)]
    planes = two_planes(1, 1)
    assert served(planes, planes[1:], jobs) == {0: 10, 1: 20, 2: 5, 3: 10}
    jobs = [(0, DATA, 10), (0, DATA, 10), (12, CONTROL, 5), (30, CONTROL, 9)]
    jobs += [(30, CONTROL, 9)]
    planes = two_planes(1, 1)
    assert served(planes, planes[:1], jobs) == {0: 10, 1: 10, 2: 17, 3: 39, 4: 48}
    planes = two_planes(1, 1)
    assert served(planes, planes[1:], jobs) == {0: 10, 1: 20, 2: 17, 3: 39, 4: 39}
