"""Planes under Trio in virtual time, for the tests of the dispatcher.

A slice takes the time that its handler declares (``world.work``), a device wait is a
``trio.sleep``, and the clock jumps when no task is runnable.
"""

from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from planes import Block, PlaneCore, Task
from planes.dispatcher import Dispatcher
from planes.slices import preempt
from schedulers import SchedulerConfig, make
from simulation.virtual_time.determinism import run_virtual

US = 1_000
QUANTUM_NS = 500 * US


class World:
    """A dispatcher in virtual time, with a log of completions."""

    def __init__(
        self, clock, *policies, seats=4, capacity=100, admission=None, upkeep=None
    ):
        self.clock = clock
        self.cost_ns = 0
        self.log = []
        self.results = {}
        config = SchedulerConfig(quantum_ns=QUANTUM_NS)
        self.planes = [
            PlaneCore(
                str(index),
                make(policy, config) if isinstance(policy, str) else policy(config),
                admission or Block(capacity=capacity),
                seats=seats,
            )
            for index, policy in enumerate(policies)
        ]
        self.dispatcher = Dispatcher(
            self.planes,
            now_ns=self.now_ns,
            quantum_ns=QUANTUM_NS,
            spend=self.spend,
            upkeep=upkeep and upkeep(self),
        )
        self.count = 0

    def now_ns(self):
        return self.clock.now_ns()

    def spend(self, task):
        cost_ns, self.cost_ns = self.cost_ns, 0
        self.clock.jump(cost_ns)

    def work(self, cost_ns):
        """Use CPU time; the clock moves at the end of the slice."""
        self.cost_ns += cost_ns

    async def slices(self, count, each_ns=100 * US):
        for _ in range(count):
            self.work(each_ns)
            await preempt()

    def task(self, serve, name=None, level=0, **fields):
        number = self.count
        self.count += 1
        name = number if name is None else name

        def done(task, result):
            self.log.append((name, self.now_ns() // US))
            self.results[name] = result

        return Task(
            number=number,
            level=level,
            flow=str(level),
            serve=serve,
            done=done,
            received_ns=self.now_ns(),
            **fields,
        )

    def offer(self, serve, plane=0, **fields):
        task = self.task(serve, **fields)
        assert self.dispatcher.offer(self.planes[plane], task)
        return task

    async def fill(self, *, waiting):
        """Occupy the only seat with one task for a millisecond, and queue others."""
        for _ in range(1 + waiting):
            self.offer(partial(trio.sleep, 0.001))
            await wait_all_tasks_blocked()

    async def settle(self):
        """Wait until no task is queued or seated."""
        while any(  # noqa: ASYNC110 - there is no event for it, and time is virtual
            len(plane.scheduler) or plane.seated or plane.away for plane in self.planes
        ):
            await trio.sleep(0.01)
        for plane in self.planes:
            plane.check()


def in_virtual_time(main):
    """Run ``main(clock)`` with a fixed order of Trio's runnable tasks."""
    return run_virtual(main, seed=0)


def simulated(*policies, **settings):
    """Make a test of an async function of a world whose dispatcher runs."""

    def decorate(scenario):
        async def main(clock):
            world = World(clock, *policies, **settings)
            async with trio.open_nursery() as nursery:
                await nursery.start(world.dispatcher.run)
                await scenario(world)
                nursery.cancel_scope.cancel()

        def test():
            in_virtual_time(main)

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        return test

    return decorate


def crash(*serves):
    """End the dispatcher by errors of handlers; return the error."""

    async def main(clock):
        world = World(clock, "fifo")
        async with trio.open_nursery() as nursery:
            await nursery.start(world.dispatcher.run)
            for serve in serves:
                world.offer(serve(world))

    with pytest.raises(BaseExceptionGroup) as caught:
        in_virtual_time(main)
    return caught
