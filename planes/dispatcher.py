"""Planes under Trio: workers that run handlers, one slice at a time.

Trio has no priorities, polls sockets once per batch of runnable tasks and shuffles the
batch. If several handlers were runnable, Trio's random order would schedule them, not
the scheduler. So there is one CPU token. Its holder runs slices of the tasks that
``Cpu`` picks, back to back and without a Trio checkpoint, until a quantum has passed.
Then it lets Trio poll the sockets and goes on. A worker whose handler waits for a
device (any of Trio's own traps) passes the token on; that handler waits for the token
again afterwards, in its scheduler, like everything that resumes work.

The dispatcher decides nothing: ``Cpu`` picks the next task, ``Stepper`` runs a handler
up to its next trap, and ``Room`` admits requests that wait for a full queue.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Sequence
from typing import Any

import trio

from planes.clock import NowNs
from planes.cpu import Cpu
from planes.cpu_ledger import CpuLedger
from planes.lock import LockError, LockTrap, expect_none_held, locking_of
from planes.lock_turns import LockTurns
from planes.plane import PlaneCore
from planes.room import Room
from planes.slices import PREEMPT, CancelStatusGuard, Park, rescheduled, reseat, stay
from planes.stepping import OWN_TRAPS, Spend, Step, Stepper, unserved
from planes.task import Task
from planes.upkeep import Upkeep, no_upkeep
from planes.workers import Alarm, Workers


class Dispatcher:
    """Runs the tasks of ``planes`` on one CPU, on the Trio thread.

    ``now_ns`` is the clock of every stamp. ``spend`` is called after each slice; the
    virtual world moves its clock there. ``quantum_ns`` bounds how long sockets go
    unpolled. ``upkeep`` is done where nothing is to be served.
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
        # To one plane a CPU adds nothing.
        self._turns = self._cpu if len(planes) > 1 else planes[0]
        self._stepper = Stepper(self._turns, now_ns, spend)
        self._locks = LockTurns(self._cpu, self._stepper)
        self._room, self._workers = Room(planes, now_ns), Workers(self._work)
        self.ledger = CpuLedger(now_ns)
        self._quantum_ns = quantum_ns
        self._token_free, self._closed = True, False
        self._suspended: dict[Task, None] = {}
        self._back_from_device: set[Task] = set()
        self._alarm = Alarm(self._workers, now_ns, self._awaken)
        self._sources: list[Callable[[], None]] = []
        self._after_poll: list[Callable[[], None]] = []
        self._upkeep, self._spend = upkeep or no_upkeep(), spend
        # By the worker with the token; served since it last looked for more to serve.
        self._poll_due_ns = self._served = 0

    # ---- what the broker calls --------------------------------------------------

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until cancelled; then close every handler that is not finished."""
        try:
            async with trio.open_nursery() as self._workers.nursery:
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
            self._room.wanted.add(plane)
            return False
        # As in `enter`, without a call for each request.
        if plane is not self._turns:
            self._cpu.wake(plane)
        if self._token_free:
            self._awaken()
        return True

    def enter(self, plane: PlaneCore, task: Task) -> None:
        """Put a task that no client sent into ``plane``, which never refuses it."""
        plane.enter(task, self.now_ns())
        if plane is not self._turns:
            self._cpu.wake(plane)
        if self._token_free:
            self._awaken()

    def after_poll(self, call: Callable[[], None]) -> None:
        """Poll sockets at the end of this turn, and call ``call`` then."""
        self._after_poll.append(call)
        self._poll_due_ns = 0

    async def put(self, plane: PlaneCore, task: Task) -> None:
        """Put a new task into ``plane``, waiting while its queue is full."""
        if not self.offer(plane, task):
            await self._room.wait(plane, task)

    def resize(self, plane: PlaneCore, seats: int) -> None:
        """Give a plane another number of seats (`PlaneCore.resize`)."""
        self._cpu.resize(plane, seats, self.now_ns())
        self._awaken()

    def debit(self, task: Task, used_ns: int) -> None:
        """Charge a task's flow for work that followed its turns."""
        if used_ns:
            self._turns.debit(task, used_ns, self.now_ns())

    def on_room(self, plane: PlaneCore, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever there is room again after ``offer`` refused."""
        self._room.listen(plane, listener)

    def on_empty(self, look: Callable[[], None]) -> None:
        """Call ``look``, which may offer tasks, where the planes ran empty under load.

        It spares a busy source of tasks, and the CPU, the way through Trio's loop.
        """
        self._sources.append(look)

    def begin_upkeep(self) -> None:
        """Queue a step of upkeep for its turn."""
        self._upkeep.begin(self.now_ns())
        self._awaken()

    # ---- the token --------------------------------------------------------------

    def _awaken(self) -> None:
        """See that a worker holds the token: an idle one, or a new one."""
        if self._token_free and not self._closed:
            self._token_free = False
            self._workers.wake()

    async def _work(self) -> None:
        """Hold the token while there is work; sleep without it otherwise."""
        guard = CancelStatusGuard()
        while True:
            self.ledger.begin_ns()
            now_ns = self.now_ns()
            self._poll_due_ns, self._served = now_ns + self._quantum_ns, 0
            task = await self._serve(guard, now_ns)
            if task is not None:
                # Back from a device: it goes on in the worker that waited for it.
                self._back_from_device.discard(task)
                reseat(task)
            elif self._upkeep.waits and not self._closed:
                self._upkeep.step(self.ledger, self._spend)
                await self._poll()
                continue
            else:
                self._token_free = True
                if not self._closed:
                    self._alarm.set(self._turns.next_event_ns(self.now_ns()))
            await self._workers.sleep()

    async def _serve(self, guard: CancelStatusGuard, now_ns: int) -> Task | None:
        """Take turns until nothing is left, or a task that has its own worker."""
        ledger, pick, wanted = self.ledger, self._turns.pick, self._room.wanted
        while not self._closed:
            task = pick(now_ns) or self._look_for_more()
            if wanted and task is not None and task.plane in wanted:
                self._room.made(task.plane)
            if task is None or task.go_on is not None:
                return task
            try:
                if task.locking is not None:
                    await self._turn_with_locks(task, guard)
                elif task.coroutine is not None or not self._served_at_once(task):
                    await self._turn(task, guard)
            except BaseException:
                # Without its worker, no other worker may take the token.
                self._close()
                raise
            self._served += 1
            now_ns = ledger.until_ns
            if now_ns >= self._poll_due_ns:
                now_ns = await self._poll()
            if now_ns >= self._upkeep.overdue_ns:
                now_ns = self._upkeep.step(ledger, self._spend)
        return None

    def _look_for_more(self) -> Task | None:
        """Read the sources again after several tasks came at once, then pick."""
        if self._served <= 1:
            return None
        self._served = 0
        for look in self._sources:
            look()
        return self._turns.pick(self.now_ns())

    async def _poll(self) -> int:
        """Poll sockets through Trio and run the runnable tasks; return the time."""
        # Twice: tasks made runnable by the poll share a batch with this worker, in
        # random order; after the second checkpoint all of that batch has run.
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
        """Start no turn any more; let handlers that wait for the token end."""
        self._closed = True
        for task in self._back_from_device:
            reseat(task)
        self._back_from_device.clear()

    # ---- one turn of one task ---------------------------------------------------

    def _begin(self, task: Task) -> int:
        """Bill to a task what its turn took to come to it; return the time."""
        began_ns = self.now_ns()
        task.prior_ns += began_ns - self.ledger.until_ns
        self.ledger.until_ns = began_ns
        return began_ns

    def _served_at_once(self, task: Task) -> bool:
        """Begin a task; return whether it finished without awaiting anything."""
        # Drop the reference: it may refer to the task, and cycles cost a collection.
        serve, task.serve, done = task.serve, None, task.done
        assert serve is not None
        assert done is not None
        # `_begin`, `_finish` and all bills, written out for what most requests are.
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
        ledger.until_ns = gone_ns = now_ns()
        self._turns.finish(task, task.prior_ns + gone_ns - began_ns, gone_ns)
        return True

    @types.coroutine
    def _turn(self, task: Task, guard: CancelStatusGuard) -> Generator[Any, Any, None]:
        """Run slices of a seated task until it ends, parks or is preempted.

        The worker holds the token when this begins and when it returns.
        """
        assert task.coroutine is not None
        self._suspended.pop(task, None)
        step: Step = task.coroutine.send
        argument: object = None
        stepper = self._stepper
        began_ns = self._begin(task)
        while True:
            try:
                trap = stepper.step(task, task, step, argument, began_ns)
            except StopIteration as stop:
                self._finish(task, stepper.ended_ns, stop.value)
                return
            began_ns = now_ns = self.ledger.until_ns = stepper.ended_ns
            step, argument = task.coroutine.send, None
            if trap is PREEMPT or type(trap) in OWN_TRAPS:
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
                    yield from unserved(task.coroutine, step, argument)
                    return
                self.ledger.begin_ns()
                began_ns = self._begin(task)

    def _obey(
        self, task: Task, trap: Park | LockTrap, now_ns: int
    ) -> tuple[bool, LockError | None]:
        """Carry out one of our own traps, unless it is misused.

        Return whether the task has to wait now, and the broken rule, if any.
        """
        try:
            if isinstance(trap, Park):
                expect_none_held(task)
                self._park(task, trap, now_ns)
                return True, None
            waits = self._locks.obey(task, trap, now_ns)
        except LockError as error:
            return False, error
        if waits:
            self._suspended[task] = None
        return waits, None

    @types.coroutine
    def _turn_with_locks(
        self, task: Task, guard: CancelStatusGuard
    ) -> Generator[Any, Any, None]:
        """Run the holders of the lock that a task waits for; then the task."""
        lock = locking_of(task).waits_for
        while lock is not None and (runner := lock.runner(task)) is not task:
            began_ns = self._begin(task)
            now_ns = self._locks.slice(task, runner, guard, began_ns)
            self.ledger.until_ns = now_ns
            if now_ns >= self._poll_due_ns:
                yield from self._poll()
                self._begin(task)
            if self._closed or self._turns.must_yield(task, now_ns):
                self._suspend(task)
                return
        yield from self._turn(task, guard)

    def _suspend(self, task: Task) -> None:
        """Send a preempted task back to its scheduler."""
        self._suspended[task] = None
        task.plane.suspend(task, self.ledger.until_ns)

    def _finish(self, task: Task, now_ns: int, result: Any) -> None:
        """Hand on the result of a handler, and release the task.

        Intake and the handling of the response are part of the turn: the flow pays for
        both.
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
        """Suspend a task without its seat; the other side calls ``wake``."""
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
    ) -> Generator[Any, Any, tuple[Step, object]]:
        """Hand one of Trio's traps to Trio, without the token; then wait for both.

        Returns how the handler goes on: by ``send`` of the trap's answer, or by
        ``throw`` of the exception (``Cancelled`` too) that Trio raised.
        """
        assert task.coroutine is not None
        try:
            expect_none_held(task)
        except LockError as error:
            return task.coroutine.throw, error
        plane = task.plane
        plane.block(task, now_ns)
        self._workers.wake()
        step: Step = task.coroutine.send
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
