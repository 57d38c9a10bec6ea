"""Planes under Trio: handlers run one slice at a time on one CPU.

Theory
======

Problem. Trio has no priorities. It polls sockets once per batch of runnable tasks and
shuffles the batch. If several handlers were runnable Trio tasks, Trio's random order
would schedule requests, not the policy.

Model. A *plane* (`PlaneCore`) has a policy and *seats*; a task in service has a seat.
The *CPU token* exists once. Its holder is a *worker*, a Trio task. A *slice* is the
work of a handler between two traps. A *turn* is the sequence of slices of one task from
its pick to its suspension. The worker with the token repeats::

    pick a task -> run its turn -> pick a task -> ...          no Trio checkpoint

and polls the sockets through Trio whenever a *quantum* has passed. Without work the
worker frees the token and sleeps; any event that makes a task ready wakes a worker.

All decisions are made in pure modules, without a clock and without Trio. The plane's
policy selects the next task and decides whether it must yield, `Cpu` selects the next
plane, admission the requests that enter. This shell executes the decisions and charges
the time.

A slice ends with a *trap*, a value that the handler's coroutine yields:

=================  =====================================================================
trap               effect
=================  =====================================================================
`PREEMPT`          The task continues unless `must_yield` is true. Then it returns to
                   its scheduler and gives up its seat.
`Park`             The task leaves its seat until `wake` is called (purgatory, groups).
`Acquire`          The task takes a lock, or waits for it (see below).
`Release`          The task frees a lock; a preemption point as well.
a trap of Trio     The handler waits for a device. Its worker passes the token on and
                   yields the trap to Trio; the task keeps its seat. Afterwards it waits
                   in its scheduler again, and continues in this same worker.
`Finished`         The handler has returned; `done` receives the result.
=================  =====================================================================

Preemption, seats and time slices are checked by one function, `must_yield`, after every
trap that is not a wait. It is true in these cases:

* The policy preempts: another task outranks this one. The seat is free meanwhile.
* It is another plane's turn (`planes.cpu`), or a lender needs its seat back
  (`planes.lending`). The seat is free meanwhile, as above.
* The time slice is over (`planes.time_slices`), under policies that never preempt. The
  task keeps its seat and is *aside*, since Kafka's thread keeps its request as well.

A task that waits for a lock with inheritance stays among its scheduler's waiting tasks.
When it is picked, its turn is *lent*: slices of the holder at the end of the chain of
holders run in it, billed to the waiter (`planes.lock`). The holder stays in its own
scheduler and may continue in either turn. In a lent turn the holder's waits are not
carried out; a lock holder may neither park nor wait for a device.

Invariants
----------

1. At most one worker runs handlers: the one with the token.
2. A coroutine is resumed by `_step` only, so every slice is billed exactly once, to the
   owner of the turn. The ledger's `until_ns` separates billed time from unbilled time.
   Time from there to the start of a turn is billed to that turn (`prior_ns`).
3. A task in `_suspended` has a coroutine that no worker is inside of. At the end of
   `run` these coroutines are closed.
4. A plane is in `_wanted` from a refused offer until its waiting requests have entered.
   Waiting requests enter in order of arrival, before any later request.
5. A handler suspends outside all cancel scopes (`CancelStatusGuard`): it may be resumed
   by another Trio task.
6. `_served_at_once` bills as `_begin`, `_step` and `_finish` do. Most requests await
   nothing, so the code of these functions is repeated there, without the calls.

Shape. Turns, locks, queue room and workers share the token, the ledger and the poll
time. Separate classes would access each other's state, so there is one class with four
sections.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Final, NamedTuple

import trio

from planes.clock import NowNs
from planes.cpu import Cpu
from planes.cpu_ledger import CpuLedger
from planes.lock import (
    LOCK_TRAPS,
    Acquire,
    LockError,
    LockTrap,
    Release,
    TaskLock,
    expect_none_held,
    lend,
    locking_of,
)
from planes.plane import PlaneCore
from planes.slices import PREEMPT, CancelStatusGuard, Park, rescheduled, reseat, stay
from planes.task import BrokenRule, Task
from planes.upkeep import Spend, Upkeep, no_upkeep

# Traps of this package, apart from ``PREEMPT``.
_OWN_TRAPS: Final = frozenset({Park, *LOCK_TRAPS})

# The next step of a coroutine: its ``send`` or its ``throw``.
_Step = Callable[[Any], Any]


class Finished(NamedTuple):
    """The end of a handler, in place of a trap."""

    result: Any


class Dispatcher:
    """Runs the tasks of ``planes`` on one CPU, on the Trio thread.

    ``now_ns`` is the clock of every stamp. ``spend`` is called after each slice; the
    virtual world moves its clock there. ``quantum_ns`` is the longest time between two
    polls of the sockets. ``upkeep`` runs while no task is ready.
    """

    def __init__(
        self,
        planes: Sequence[PlaneCore],
        *,
        now_ns: NowNs,
        quantum_ns: int,
        spend: Spend | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self.planes = tuple(planes)
        self.now_ns = now_ns
        self._cpu = Cpu(planes, quantum_ns=quantum_ns)
        # A single plane needs no sharing of the CPU.
        self._turns = self._cpu if len(planes) > 1 else planes[0]
        self._charge = self._turns.charge
        self.ledger = CpuLedger(now_ns)
        self._quantum_ns = quantum_ns
        self._token_free = True
        self._closed = False
        self._suspended: dict[Task, None] = {}
        self._back_from_device: set[Task] = set()
        self._sources: list[Callable[[], None]] = []
        self._after_poll: list[Callable[[], None]] = []
        self._upkeep = upkeep or no_upkeep()
        self._spend = spend
        # State of the worker with the token: the time of its next poll, and the number
        # of tasks served since it last read the sources.
        self._poll_due_ns = 0
        self._served = 0
        # Workers without the token, and the nursery of all workers while `run` runs.
        self._idle: deque[trio.lowlevel.Task] = deque()
        self._nursery: trio.Nursery | None = None
        # The earliest time for which an alarm is set.
        self._alarm_ns: int | None = None
        # Requests that wait in front of a full queue, and listeners for room in it.
        self._waiting: dict[PlaneCore, dict[Task, trio.lowlevel.Task]] = {
            plane: {} for plane in planes
        }
        self._listeners: dict[PlaneCore, list[Callable[[], None]]] = {
            plane: [] for plane in planes
        }
        # Planes that have refused a task.
        self._wanted: set[PlaneCore] = set()

    # ---- interface for the broker -----------------------------------------------

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until cancelled; then close every handler that is not finished."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._close()
        finally:
            for task in self._suspended:
                assert task.coroutine is not None
                task.coroutine.close()

    def offer(self, plane: PlaneCore, task: Task) -> bool:
        """Put a new task into ``plane``; False if its queue is full."""
        if not plane.offer(task, self.now_ns()):
            self._wanted.add(plane)
            return False
        # As in `enter`, without a call for each request.
        if plane is not self._turns:
            self._cpu.wake(plane)
        if self._token_free:
            self._awaken()
        return True

    def enter(self, plane: PlaneCore, task: Task) -> None:
        """Put an internal task into ``plane``, which never refuses it."""
        plane.enter(task, self.now_ns())
        if plane is not self._turns:
            self._cpu.wake(plane)
        if self._token_free:
            self._awaken()

    def after_poll(self, call: Callable[[], None]) -> None:
        """Poll the sockets at the end of this turn, then call ``call``."""
        self._after_poll.append(call)
        self._poll_due_ns = 0

    async def put(self, plane: PlaneCore, task: Task) -> None:
        """Put a new task into ``plane``, waiting while its queue is full."""
        if not self.offer(plane, task):
            waiting = self._waiting[plane]
            waiting[task] = trio.lowlevel.current_task()
            await rescheduled(lambda: waiting.pop(task))

    def resize(self, plane: PlaneCore, seats: int) -> None:
        """Change a plane's number of seats (`PlaneCore.resize`)."""
        self._cpu.resize(plane, seats, self.now_ns())
        self._awaken()

    def debit(self, task: Task, used_ns: int) -> None:
        """Charge a task's flow for work after its turns."""
        if used_ns:
            self._turns.debit(task, used_ns, self.now_ns())

    def on_room(self, plane: PlaneCore, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever there is room again after ``offer`` refused."""
        self._listeners[plane].append(listener)

    def on_empty(self, look: Callable[[], None]) -> None:
        """Call ``look``, which may offer tasks, when the planes run empty under load.

        A busy source can then offer tasks without a pass of Trio's event loop.
        """
        self._sources.append(look)

    def begin_upkeep(self) -> None:
        """Queue a step of upkeep for its turn."""
        self._upkeep.begin(self.now_ns())
        self._awaken()

    # ---- workers and the token --------------------------------------------------

    def _awaken(self) -> None:
        """Give a free token to an idle worker, or to a new one."""
        if self._token_free and not self._closed:
            self._token_free = False
            self._wake_worker()

    def _wake_worker(self) -> None:
        """Resume an idle worker; start a new one only if there is none."""
        if self._idle:
            trio.lowlevel.reschedule(self._idle.popleft())
        else:
            assert self._nursery is not None, "the dispatcher does not run"
            self._nursery.start_soon(self._work, name="worker")

    async def _sleep(self) -> None:
        """Wait, as a worker without the token, until woken."""
        worker = trio.lowlevel.current_task()
        self._idle.append(worker)
        await rescheduled(lambda: self._idle.remove(worker))

    def _set_alarm(self, due_ns: int | None) -> None:
        """Wake a worker at ``due_ns`` (None: never), unless an alarm comes earlier."""
        if due_ns is not None and (self._alarm_ns is None or due_ns < self._alarm_ns):
            self._alarm_ns = due_ns
            assert self._nursery is not None, "the dispatcher does not run"
            self._nursery.start_soon(self._ring, due_ns, name="alarm")

    async def _ring(self, due_ns: int) -> None:
        await trio.sleep(max(0, due_ns - self.now_ns()) / 1e9)
        if self._alarm_ns == due_ns:
            self._alarm_ns = None
        self._awaken()

    async def _work(self) -> None:
        """Hold the token while there is work; sleep without it otherwise."""
        guard = CancelStatusGuard()
        while True:
            self.ledger.begin_ns()
            now_ns = self.now_ns()
            self._poll_due_ns = now_ns + self._quantum_ns
            self._served = 0
            task = await self._serve(guard, now_ns)
            if task is not None:
                # Back from a device, the task continues in the worker that waited.
                self._back_from_device.discard(task)
                reseat(task)
            elif self._upkeep.waits and not self._closed:
                self._upkeep.step(self.ledger, self._spend)
                await self._poll()
                continue
            else:
                self._token_free = True
                if not self._closed:
                    self._set_alarm(self._turns.next_event_ns(self.now_ns()))
            await self._sleep()

    async def _serve(self, guard: CancelStatusGuard, now_ns: int) -> Task | None:
        """Run turns until no task is ready; return a task that has its own worker."""
        ledger, pick, wanted = self.ledger, self._turns.pick, self._wanted
        while not self._closed:
            task = pick(now_ns) or self._poll_sources()
            if wanted and task is not None and task.plane in wanted:
                self._made_room(task.plane)
            if task is None or task.go_on is not None:
                return task
            try:
                if task.locking is not None:
                    await self._turn_with_locks(task, guard)
                elif task.coroutine is not None or not self._served_at_once(task):
                    await self._turn(task, guard)
            except BaseException:
                # This worker ends; no other worker may take the token.
                self._close()
                raise
            self._served += 1
            now_ns = ledger.until_ns
            if now_ns >= self._poll_due_ns:
                now_ns = await self._poll()
            if now_ns >= self._upkeep.overdue_ns:
                now_ns = self._upkeep.step(ledger, self._spend)
        return None

    def _poll_sources(self) -> Task | None:
        """Read the sources again if several tasks were served in a row, then pick."""
        if self._served <= 1:
            return None
        self._served = 0
        for read in self._sources:
            read()
        return self._turns.pick(self.now_ns())

    async def _poll(self) -> int:
        """Poll sockets through Trio and run the runnable tasks; return the time."""
        # Two checkpoints: tasks made runnable by the poll share a batch with this
        # worker, in random order. The second one ends after that batch.
        await trio.lowlevel.cancel_shielded_checkpoint()
        await trio.lowlevel.cancel_shielded_checkpoint()
        self.ledger.begin_ns()
        if self._after_poll:
            calls, self._after_poll = self._after_poll, []
            for call in calls:
                call()
        now_ns = self.now_ns()
        self._poll_due_ns = now_ns + self._quantum_ns
        return now_ns

    def _close(self) -> None:
        """Start no more turns; resume handlers that wait for the token, to end them."""
        self._closed = True
        for task in self._back_from_device:
            reseat(task)
        self._back_from_device.clear()

    # ---- one turn of one task ---------------------------------------------------

    def _begin(self, task: Task) -> int:
        """Bill a task for the time since the last billed moment; return the time."""
        began_ns = self.now_ns()
        task.prior_ns += began_ns - self.ledger.until_ns
        self.ledger.until_ns = began_ns
        return began_ns

    def _step(
        self, owner: Task, runner: Task, step: _Step, argument: object, began_ns: int
    ) -> tuple[Any, int]:
        """Run ``runner`` in the turn of ``owner`` until its next trap.

        Returns the trap, or `Finished`, and the time. The step is billed from
        ``began_ns`` on, even if it raises. Within a turn, ``began_ns`` is the end of
        the previous step, so a task pays for its own traps. ``spend`` is not called at
        the traps of a lock: in virtual time, the work before such a trap is charged
        together with the work after it.
        """
        trap = None
        try:
            trap = step(argument)
        except StopIteration as stop:
            trap = Finished(stop.value)
        finally:
            if self._spend is not None and type(trap) not in LOCK_TRAPS:
                self._spend(runner)
            ended_ns = self.now_ns()
            self._charge(owner, ended_ns - began_ns, ended_ns)
        return trap, ended_ns

    def _served_at_once(self, task: Task) -> bool:
        """Begin a task; return whether it finished without awaiting anything."""
        # `serve` may refer to the task: drop it, so that no reference cycle remains.
        serve, task.serve, done = task.serve, None, task.done
        assert serve is not None
        assert done is not None
        # `_begin`, `_step` and `_finish`, inlined (invariant 6).
        ledger, now_ns = self.ledger, self.now_ns
        began_ns = now_ns()
        task.prior_ns += began_ns - ledger.until_ns
        ledger.until_ns = began_ns
        served = serve()
        if type(served) is types.CoroutineType:
            task.coroutine = served
            return False
        if self._spend is not None:
            self._spend(task)
        task.local_done_ns = task.remote_done_ns = ended_ns = now_ns()
        task.service_ns = ended_ns - began_ns
        done(task, served)
        ledger.until_ns = left_ns = now_ns()
        self._turns.finish(task, task.prior_ns + left_ns - began_ns, left_ns)
        return True

    @types.coroutine
    def _turn(self, task: Task, guard: CancelStatusGuard) -> Generator[Any, Any, None]:
        """Run slices of a seated task until it ends, parks or is preempted.

        The worker holds the token when this begins and when it returns.
        """
        assert task.coroutine is not None
        self._suspended.pop(task, None)
        step: _Step = task.coroutine.send
        argument: object = None
        began_ns = self._begin(task)
        while True:
            trap, now_ns = self._step(task, task, step, argument, began_ns)
            if type(trap) is Finished:
                self._finish(task, now_ns, trap.result)
                return
            began_ns = self.ledger.until_ns = now_ns
            step, argument = task.coroutine.send, None
            if trap is PREEMPT or type(trap) in _OWN_TRAPS:
                breach = guard.breach(task)
                if breach is None and trap is not PREEMPT:
                    waits, breach = self._obey(task, trap, now_ns)
                    if waits:
                        return
                if breach is not None:
                    step, argument = task.coroutine.throw, breach
                    continue
                if now_ns >= self._poll_due_ns:
                    yield from self._poll()
                    began_ns = self._begin(task)
                if self._closed or self._turns.must_yield(task, now_ns):
                    self._suspend(task)
                    return
            else:
                step, argument = yield from self._wait_for_device(task, trap, now_ns)
                if self._closed:
                    yield from _unserved(task.coroutine, step, argument)
                    return
                self.ledger.begin_ns()
                began_ns = self._begin(task)

    def _obey(
        self, task: Task, trap: Park | LockTrap, now_ns: int
    ) -> tuple[bool, LockError | None]:
        """Execute a trap of this package, unless it breaks a rule.

        Return whether the task has to wait now, and the broken rule, if any.
        """
        try:
            if isinstance(trap, Park):
                expect_none_held(task)
                self._park(task, trap, now_ns)
                return True, None
            waits = self._obey_lock(task, trap, now_ns)
        except LockError as error:
            return False, error
        if waits:
            self._suspended[task] = None
        return waits, None

    def _suspend(self, task: Task) -> None:
        """Return a preempted task to its scheduler."""
        self._suspended[task] = None
        task.plane.suspend(task, self.ledger.until_ns)

    def _finish(self, task: Task, now_ns: int, result: Any) -> None:
        """Pass the result of a handler to ``done``, and release the task.

        Intake and response handling are part of the turn and billed to the flow.
        """
        if task.local_done_ns < 0:
            task.local_done_ns = now_ns
        task.remote_done_ns = now_ns
        task.service_ns = task.own_cpu_ns()
        assert task.done is not None
        task.done(task, result)
        ended_ns = self.now_ns()
        self._turns.finish(task, task.prior_ns + ended_ns - now_ns, ended_ns)
        self.ledger.until_ns = ended_ns

    def _park(self, task: Task, trap: Park, now_ns: int) -> None:
        """Suspend a task and free its seat until ``wake`` is called."""
        plane = task.plane
        self._suspended[task] = None
        (plane.park if trap.is_done else plane.sleep)(task, now_ns)

        def wake() -> None:
            plane.resume(task, self.now_ns())
            self._cpu.wake(plane)
            self._awaken()

        waits = trap.register(wake)
        self.debit(task, self.now_ns() - now_ns)
        if not waits:
            wake()
        self.ledger.until_ns = self.now_ns()

    @types.coroutine
    def _wait_for_device(
        self, task: Task, trap: Any, now_ns: int
    ) -> Generator[Any, Any, tuple[_Step, object]]:
        """Pass a trap of Trio to Trio; wait for its result, then for a turn.

        Returns how the handler continues: by ``send`` of the trap's answer, or by
        ``throw`` of the exception (``Cancelled`` too) that Trio raised.
        """
        assert task.coroutine is not None
        try:
            expect_none_held(task)
        except LockError as error:
            return task.coroutine.throw, error
        plane = task.plane
        plane.block(task, now_ns)
        self._wake_worker()
        step: _Step = task.coroutine.send
        argument: object
        try:
            argument = yield trap
        except BaseException as error:  # it is the handler's to deal with
            step, argument = task.coroutine.throw, error
        if not self._closed:
            stay(task)
            self._back_from_device.add(task)
            plane.unblock(task, self.now_ns())
            self._cpu.wake(plane)
            self._awaken()
            # At shutdown too: a cancellation must reach the handler while it runs.
            yield from rescheduled()
        return step, argument

    # ---- turns at locks, and lent turns -----------------------------------------

    def _obey_lock(self, task: Task, trap: LockTrap, now_ns: int) -> bool:
        """Execute a task's trap in its own turn; return whether the task has to wait.

        :raises LockError: if the trap breaks a rule of locks.
        """
        lock = trap.lock
        if type(trap) is Release:
            self._release(task, lock, now_ns)
            return False
        if lock.take_or_wait(task):
            return False
        if lock.inherits:
            task.plane.step_back(task, now_ns)
            self._cpu.wake(task.plane)
        else:
            lock.sleepers.append(task)
            task.plane.sleep(task, now_ns)
        return True

    @types.coroutine
    def _turn_with_locks(
        self, task: Task, guard: CancelStatusGuard
    ) -> Generator[Any, Any, None]:
        """Run the holders of the lock that a task waits for; then the task."""
        lock = locking_of(task).waits_for
        while lock is not None and (runner := lock.runner(task)) is not task:
            began_ns = self._begin(task)
            now_ns = self._lent_slice(task, runner, guard, began_ns)
            self.ledger.until_ns = now_ns
            if now_ns >= self._poll_due_ns:
                yield from self._poll()
                self._begin(task)
            if self._closed or self._turns.must_yield(task, now_ns):
                self._suspend(task)
                return
        yield from self._turn(task, guard)

    def _lent_slice(
        self, owner: Task, runner: Task, guard: CancelStatusGuard, now_ns: int
    ) -> int:
        """Run a slice of ``runner`` in the turn of ``owner``; return the time."""
        assert runner.coroutine is not None
        step: _Step = runner.coroutine.send
        argument: object = None
        while True:
            before_ns = owner.attained_ns
            trap, now_ns = self._step(owner, runner, step, argument, now_ns)
            # A lock holder releases the lock before it ends.
            assert type(trap) is not Finished, runner
            lend(owner, runner, owner.attained_ns - before_ns)
            breach: BrokenRule | None
            try:
                self._obey_lent(runner, trap, now_ns)
                breach = guard.breach(runner)
            except LockError as error:
                breach = error
            if breach is None:
                return now_ns
            step, argument = runner.coroutine.throw, breach

    def _obey_lent(self, runner: Task, trap: object, now_ns: int) -> None:
        """Execute a holder's trap in a lent turn; leave its waits to its own turn."""
        if type(trap) is Acquire:
            trap.lock.take_or_wait(runner)
        elif type(trap) is Release:
            self._release(runner, trap.lock, now_ns)
        elif trap is not PREEMPT:
            expect_none_held(runner)

    def _release(self, task: Task, lock: TaskLock, now_ns: int) -> None:
        heir = lock.give_back(task)
        if heir is not None:
            heir.plane.resume(heir, now_ns)
            self._cpu.wake(heir.plane)

    # ---- room in full queues ----------------------------------------------------

    def _made_room(self, plane: PlaneCore) -> None:
        """Admit waiting requests, and call the listeners if room is left."""
        waiting = self._waiting[plane]
        for task in list(waiting):
            if plane.offer(task, self.now_ns()):
                trio.lowlevel.reschedule(waiting.pop(task))
        if not waiting:
            self._wanted.discard(plane)
        for listener in self._listeners[plane]:
            listener()


@types.coroutine
def _unserved(
    coroutine: Coroutine[Any, Any, Any], step: _Step, argument: object
) -> Generator[Any, Any, None]:
    """Run a handler after the dispatcher has closed, to its end or its next own trap.

    The task left its plane when it began to wait for a device, so no flow is billed.
    An exception of the handler, also Trio's ``Cancelled``, reaches its worker.
    """
    while True:
        try:
            trap = step(argument)
        except StopIteration:
            return
        if trap is PREEMPT or type(trap) in _OWN_TRAPS:
            coroutine.close()
            return
        try:
            step, argument = coroutine.send, (yield trap)
        except BaseException as error:  # it is the handler's to deal with
            step, argument = coroutine.throw, error
