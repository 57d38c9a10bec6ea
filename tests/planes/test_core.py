"""One plane: its bound, seats and stamps, against a naive account of each task."""

import random

import pytest
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

from planes import Block, PlaneCore, Task
from schedulers import POLICIES, SchedulerConfig, make

CONFIG = SchedulerConfig(ageing_ns=100, quantum_ns=5)


def plane(scheduler="fifo", seats=1, capacity=500):
    return PlaneCore(
        "data",
        make(scheduler, CONFIG),
        Block(capacity=capacity),
        seats=seats,
    )


def task(number, **fields):
    return Task(number=number, **fields)


def test_a_full_queue_refuses_and_counts_only_what_was_never_served():
    core = plane(capacity=2)
    first, second, third, fourth = map(task, range(4))
    assert core.offer(first, 0)
    assert core.offer(second, 0)
    assert not core.offer(third, 0)
    assert core.pick(1) is first
    assert core.offer(third, 1)
    assert not core.admits(fourth)
    core.suspend(first, 2)
    assert core.queued == 2
    assert len(core.scheduler) == 3
    assert not core.offer(fourth, 2)


def test_no_more_are_in_progress_than_there_are_seats():
    core = plane(seats=2)
    tasks = [task(number) for number in range(3)]
    for it in tasks:
        core.offer(it, 0)
    assert [core.pick(0), core.pick(0), core.pick(0)] == [tasks[0], tasks[1], None]
    assert not core.can_pick()
    core.finish(tasks[0], 0, 5)
    assert core.can_pick()
    assert core.pick(5) is tasks[2]


def test_a_task_that_waits_for_a_device_keeps_its_seat_and_one_in_purgatory_does_not():
    core = plane(seats=1)
    blocked, parked = task(0), task(1)
    core.offer(blocked, 0)
    core.offer(parked, 0)
    core.pick(0)
    core.block(blocked, 1)
    assert core.pick(1) is None
    core.unblock(blocked, 2)
    assert core.pick(2) is blocked
    core.finish(blocked, 0, 3)
    core.pick(3)
    core.park(parked, 4)
    assert (core.seated, core.away) == (0, 1)
    core.resume(parked, 9)
    assert core.pick(9) is parked


def test_the_time_between_preemption_and_resumption_is_suspended_time():
    core = plane("priority")
    data, control = task(0, level=4), task(1, level=0)
    core.offer(data, 0)
    core.pick(10)
    core.charge(data, 5, 15)
    core.offer(control, 15)
    assert core.must_yield(data, 15)
    core.suspend(data, 15)
    assert core.pick(15) is control
    core.finish(control, 0, 40)
    assert core.pick(40) is data
    core.charge(data, 10, 50)
    core.finish(data, 0, 50)
    assert (data.enqueued_ns, data.dequeued_ns) == (0, 10)
    assert (data.suspended_ns, data.preemptions) == (25, 1)
    assert data.attained_ns == core.attained_ns == 15


def test_purgatory_time_is_remote_and_not_suspended_time():
    core = plane()
    fetch, other = task(0), task(1)
    core.offer(fetch, 0)
    core.pick(1)
    core.park(fetch, 3)
    core.offer(other, 4)
    core.pick(4)
    core.resume(fetch, 5)
    core.finish(other, 0, 20)
    assert core.pick(20) is fetch
    core.suspend(fetch, 22)
    core.pick(30)
    core.finish(fetch, 0, 31)
    assert fetch.local_done_ns == 3
    assert fetch.suspended_ns == 0


@pytest.mark.parametrize("scheduler", POLICIES)
def test_the_last_slice_may_be_billed_before_the_task_goes_or_as_it_goes(scheduler):
    """The order of service and the accounts are equal, under every policy."""
    cores = plane(scheduler, capacity=40), plane(scheduler, capacity=40)
    orders = [], []
    for whole, (core, order) in enumerate(zip(cores, orders, strict=True)):
        rng = random.Random(5)
        for number in range(40):
            flow, cost_ns = rng.choice("abc"), rng.randrange(20)
            size_ns = rng.randrange(1, 30)
            core.offer(
                task(number, flow=flow, cost_ns=cost_ns, size_ns=size_ns), number
            )
        now_ns = 40
        while (it := core.pick(now_ns)) is not None:
            order.append(it.number)
            half_ns = it.size_ns // 2
            core.charge(it, half_ns, now_ns + half_ns)
            now_ns += it.size_ns
            if whole:
                core.finish(it, it.size_ns - half_ns, now_ns)
            else:
                core.charge(it, it.size_ns - half_ns, now_ns)
                core.finish(it, 0, now_ns)
            assert it.attained_ns == it.size_ns
            core.check()
    assert len(orders[0]) == 40
    assert orders[0] == orders[1]
    assert cores[0].attained_ns == cores[1].attained_ns


def test_phases_sum_to_the_total():
    it = task(
        0,
        received_ns=1,
        enqueued_ns=2,
        dequeued_ns=10,
        suspended_ns=7,
        local_done_ns=40,
        remote_done_ns=100,
        response_dequeued_ns=101,
        response_sent_ns=130,
    )
    phases = it.phases()
    assert phases == (9, 23, 7, 60, 1, 29, 129)
    assert sum(phases[:-1]) == phases.total_ns


def test_phases_of_an_unfinished_request_are_not_to_be_had():
    with pytest.raises(AssertionError):
        task(0, received_ns=1).phases()


class PlaneContract(RuleBasedStateMachine):
    """Random histories of a plane, against a dictionary of each task's place and time.

    Local time is time seated before the first park. Suspended time is time spent
    waiting after a preemption or for a device, before the first park.
    """

    def __init__(self, scheduler):
        super().__init__()
        self.scheduler = scheduler
        self.now_ns = 0
        self.where = {}
        self.since = {}
        self.seated_ns = {}
        self.suspended_ns = {}
        self.parked_once = set()

    @initialize(seats=st.integers(1, 3), capacity=st.integers(1, 5))
    def begin(self, seats, capacity):
        self.core = plane(self.scheduler, seats=seats, capacity=capacity)

    def move(self, it, place):
        """Account for the time in the old place, then move the task to the new one."""
        spent_ns = self.now_ns - self.since.get(it, self.now_ns)
        if it not in self.parked_once:
            if self.where.get(it) in ("seated", "blocked"):
                self.seated_ns[it] = self.seated_ns.get(it, 0) + spent_ns
            elif self.where.get(it) == "suspended":
                self.suspended_ns[it] = self.suspended_ns.get(it, 0) + spent_ns
        self.where[it] = place
        self.since[it] = self.now_ns

    def those(self, *places):
        return [it for it, place in self.where.items() if place in places]

    @rule(level=st.integers(0, 2), cost_ns=st.integers(0, 9))
    def offer(self, level, cost_ns):
        it = task(len(self.where), level=level, flow=str(level), cost_ns=cost_ns)
        admitted = self.core.offer(it, self.now_ns)
        assert admitted == (len(self.those("queued")) < self.core.admission.capacity)
        if admitted:
            self.move(it, "queued")

    @rule()
    def pick(self):
        ready = self.those("queued", "suspended", "resumed")
        free = self.core.seats - len(self.those("seated", "blocked"))
        it = self.core.pick(self.now_ns)
        assert (it is not None) == bool(ready and free > 0)
        if it is not None:
            assert it in ready
            self.move(it, "seated")

    @rule(used_ns=st.integers(0, 9), data=st.data())
    @precondition(lambda self: self.those("seated"))
    def charge(self, used_ns, data):
        it = data.draw(st.sampled_from(self.those("seated")))
        self.now_ns += used_ns
        self.core.charge(it, used_ns, self.now_ns)

    @rule(data=st.data(), verb=st.sampled_from(("suspend", "park", "block")))
    @precondition(lambda self: self.those("seated"))
    def stop(self, data, verb):
        it = data.draw(st.sampled_from(self.those("seated")))
        self.move(
            it, {"suspend": "suspended", "park": "parked", "block": "blocked"}[verb]
        )
        getattr(self.core, verb)(it, self.now_ns)
        if verb == "park":
            self.parked_once.add(it)

    @rule(used_ns=st.integers(0, 9), data=st.data())
    @precondition(lambda self: self.those("seated"))
    def finish(self, used_ns, data):
        it = data.draw(st.sampled_from(self.those("seated")))
        self.now_ns += used_ns
        self.move(it, "gone")
        self.core.finish(it, used_ns, self.now_ns)
        assert it.suspended_ns == self.suspended_ns.get(it, 0)
        # Local work ends with the first park, which the plane stamps, or here.
        done_ns = self.now_ns if it.local_done_ns < 0 else it.local_done_ns
        local_ns = done_ns - it.dequeued_ns - it.suspended_ns
        assert local_ns == self.seated_ns.get(it, 0)

    @rule(data=st.data())
    @precondition(lambda self: self.those("parked", "blocked"))
    def come_back(self, data):
        it = data.draw(st.sampled_from(self.those("parked", "blocked")))
        if self.where[it] == "parked":
            self.core.resume(it, self.now_ns)
            self.move(it, "resumed")
        else:
            self.core.unblock(it, self.now_ns)
            self.move(it, "suspended")

    @rule(seats=st.integers(1, 3))
    def resize(self, seats):
        before = self.core.seated
        self.core.resize(seats, self.now_ns)
        # Seated tasks keep their seats.
        assert self.core.seated == before

    @rule(wait_ns=st.integers(0, 50))
    def let_time_pass(self, wait_ns):
        self.now_ns += wait_ns

    @invariant()
    def the_counts_agree(self):
        if not hasattr(self, "core"):
            return
        self.core.check()
        assert self.core.queued == len(self.those("queued"))
        assert self.core.seated == len(self.those("seated", "blocked"))
        assert self.core.away == len(self.those("parked", "blocked"))
        assert self.core.attained_ns == sum(it.attained_ns for it in self.where)


@pytest.mark.parametrize("scheduler", ["fifo", "priority", "wfq"])
def test_a_plane_accounts_for_every_task_whatever_happens(scheduler):
    run_state_machine_as_test(
        lambda: PlaneContract(scheduler),
        settings=hypothesis_settings(
            max_examples=30, stateful_step_count=40, deadline=None
        ),
    )
