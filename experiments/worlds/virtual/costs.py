"""What computing costs in the virtual world: slices of handlers, and both ends of it.

Live, a request's cost is spent in four places. Its handler can be preempted between
slices, and a policy says when it runs. What reads it, cuts it out of the bytes and goes
round the event loop with it cannot: no policy has seen the request yet, and what else
is there waits, however urgent; it takes longer where the broker was asleep, and less
where many are read at once, for the event loop turns to its sockets once for all of
them. Nor can what writes the answer, nor what the event loop
and the broker's housekeeping take then, which nobody is billed. A machine's calibration
says how much of a cost these are (`experiments.design.calibration.CostParts`), and by
how much a request costs more where the broker was idle, and under another arm than the
baseline; without it they are free, and a request costs what the trace drew for it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import trio

from broker.network.transport import Bytes
from broker.requests.request import Request
from experiments.design.calibration import CostParts
from experiments.design.config import Experiment
from experiments.load.trace import Trace
from experiments.worlds.virtual.memory_network import MemoryConnection, MemoryNetwork
from planes import Task
from planes.clock import NowNs


class TraceCosts:
    """What a slice costs: a share of its request's demand, or what its class says.

    A request with a drawn demand spends what the other places leave of it in equal
    parts over its units of work (partitions), one per slice; what a handler does beyond
    them costs nothing. The slice after a preemption costs ``preemption_us`` more,
    whoever runs it: that is when the CPU is lost.
    """

    def __init__(
        self, experiment: Experiment, trace: Trace, parts: CostParts, arm: str
    ) -> None:
        virtual = experiment.virtual
        self._by_class = {
            name: round(slice_us * 1000) for name, slice_us in virtual.slice_us.items()
        }
        self._default_ns = round(virtual.other_slice_us * 1000)
        self._refusal_ns = round(virtual.refusal_us * 1000)
        self._preemption_ns = round(virtual.preemption_us * 1000)
        # Who ran the last slice, and how often it had been preempted by then.
        self._last: Task | None = None
        self._preempted = 0
        self.writing_ns = round(parts.writing_us * 1000)
        self._reading_ns = round(parts.reading_us * 1000)
        self._turning_ns = round(parts.turning_us * 1000)
        self._turned_each_ns = round(parts.turning_us * parts.turning_share * 1000)
        self._waking_ns = round(parts.waking_us * 1000)
        self._event_loop_ns = round(parts.event_loop_us * 1000)
        self._settling_ns = round(parts.settling_us * 1000)
        self._parts = parts
        self._of_arm = parts.arms.get(arm, {})
        # When those were read that found the broker idle, until they are begun; and
        # for how many of them it has not settled again.
        self._woken_ns: set[int] = set()
        # When those were read for whom the event loop had turned, until they are begun.
        self._turned_ns: set[int] = set()
        self._unsettled = 0
        self._demand_ns = trace.column("demand_ns")
        self._traffic = trace.column("traffic")
        units = {
            entry.name: getattr(entry.request, "partitions", 1)
            for entry in experiment.workload.traffic
        }
        self._units = [units[name] for name in self._traffic]
        # What is left of a request's demand, and what one slice of it costs, once it
        # has begun.
        self._left_ns: dict[int, int] = {}
        self._part_ns: dict[int, int] = {}

    @property
    def goes_round(self) -> bool:
        """Whether the event loop takes time after an answer."""
        return self._event_loop_ns + self._settling_ns > 0

    def read_ns(self, now_ns: int, *, idle: bool, behind: bool) -> int:
        """Return what it costs to read a request.

        More if the broker was idle, or had done something else than to read another.
        """
        if not idle:
            cost_ns = self._reading_ns + self._turning_ns * (not behind)
            if not behind:
                self._turned_ns.add(now_ns + cost_ns)
            return cost_ns
        cost_ns = self._reading_ns + self._waking_ns
        self._woken_ns.add(now_ns + cost_ns)
        return cost_ns

    def round_ns(self) -> int:
        """Return what the event loop costs after an answer."""
        if not self._unsettled:
            return self._event_loop_ns
        self._unsettled -= 1
        return self._event_loop_ns + self._settling_ns

    def slice_ns(self, task: Task) -> int:
        """Return the cost of the slice that ``task`` has just run."""
        assert isinstance(task, Request)
        cost_ns = self._overhead_ns() + self._own_ns(task)
        self._last, self._preempted = task, task.preemptions
        return cost_ns

    def _overhead_ns(self) -> int:
        """Return what was lost since the last slice, if its task was preempted."""
        last = self._last
        if last is None or last.preemptions == self._preempted:
            return 0
        return self._preemption_ns

    def _own_ns(self, task: Request) -> int:
        number = task.correlation_id
        if number < 0:
            return 0
        if task.refusal is not None:
            return self._refusal_ns
        demand_ns = self._demand_ns[number]
        if not demand_ns:
            return self._by_class.get(task.request_class, self._default_ns)
        left_ns = self._left_ns.get(number)
        if left_ns is None:
            left_ns = max(0, self._handler_ns(task, demand_ns))
            self._part_ns[number] = -(-left_ns // self._units[number])
        cost_ns = min(self._part_ns[number], left_ns)
        self._left_ns[number] = left_ns - cost_ns
        return cost_ns

    def _handler_ns(self, task: Request, demand_ns: int) -> int:
        """Return what of a demand is its handler's, in this state and under this arm.

        That is less what has been spent before it, and what is when it is done. What
        the event loop's turns take is every request's in equal parts, not theirs alone
        who were read first.
        """
        idle, turned = (
            task.received_ns in read_ns for read_ns in (self._woken_ns, self._turned_ns)
        )
        self._woken_ns.discard(task.received_ns)
        self._turned_ns.discard(task.received_ns)
        self._unsettled += idle
        before_ns = task.prior_ns
        if not idle:
            before_ns += self._turned_each_ns - self._turning_ns * turned
        shares = self._parts.idle_share if idle else self._parts.busy_share
        entry = self._traffic[task.correlation_id]
        share = shares.get(entry, 1.0) * self._of_arm.get(entry, 1.0)
        after_ns = self.writing_ns + self._event_loop_ns + self._settling_ns * idle
        return round(demand_ns * share) - before_ns - after_ns


class ClientsTime:
    """The time of those who compute beside the broker: its clients, and the network.

    The broker's computing moves the clock at once. What they did meanwhile is done
    afterwards, one thing after the other, and ``at_ns`` is when it was.
    """

    def __init__(self, now_ns: NowNs) -> None:
        self._now_ns = now_ns
        self.at_ns: int | None = None

    def now_ns(self) -> int:
        """Return what time it is for a client."""
        return self._now_ns() if self.at_ns is None else self.at_ns


class CostlyNetwork(MemoryNetwork):
    """A network whose server calls ``read`` when it has read some of a socket.

    ``latency_ns`` is of the way to the server, ``back_ns`` of that to a client. What
    comes to a server that is ``idle`` then, or has not begun yet, is there when that
    has begun, ``rousing_ns`` later.
    That is once for a request of up to 64 KiB, but for those that a client has sent
    behind another without waiting: they come with it. And it calls ``write`` before it
    sends some: once for an answer that the client's buffer has room for. Whoever lets
    time pass at once, as both do, calls `catch_up` then.
    """

    def __init__(
        self,
        *,
        time: ClientsTime,
        rng: random.Random,
        latency_ns: tuple[int, int],
        back_ns: tuple[int, int],
        rousing_ns: int,
        idle: Callable[[int], bool],
        read: Callable[[], None],
        write: Callable[[], None],
    ) -> None:
        super().__init__(now_ns=time.now_ns, rng=rng, latency_ns=latency_ns)
        self._back_ns = back_ns
        self._rousing_ns = rousing_ns
        self._idle = idle
        # When the server has begun, or will have, since it was idle.
        self._begun_ns = 0
        self._time = time
        self.read = read
        self.write = write
        self._rounds_due = 0
        self._some_sent = trio.Event()

    async def go_round(self, spend: Callable[[], None]) -> None:
        """Call ``spend`` for each answer, when Trio comes round after it."""
        while True:
            await self._some_sent.wait()
            self._some_sent = trio.Event()
            for _ in range(self._rounds_due):
                spend()
            self._rounds_due = 0

    def note_sent(self) -> None:
        """Take note of an answer."""
        self._rounds_due += 1
        self._some_sent.set()

    def catch_up(self) -> None:
        """Let arrive what has travelled for long enough, each at its time."""
        self._arrive(self._now_ns())

    def delay_ns(self, to: MemoryConnection) -> int:
        """Draw how long a chunk is on its way: to the server, or back."""
        if isinstance(to, _Costly):
            # What is there at once does not arrive, nor would it rouse anybody.
            return max(super().delay_ns(to), int(self._rousing_ns > 0))
        low_ns, high_ns = self._back_ns
        return self._rng.randint(low_ns, high_ns) if high_ns else 0

    def accepted(self, fileno: int, address: str) -> MemoryConnection:
        """Return the server's end of a connection."""
        return _Costly(self, fileno, address)

    def _arrive(self, now_ns: int) -> None:
        while self._travelling and self._travelling[0][0] <= now_ns:
            due_ns, number, to, chunk = heapq.heappop(self._travelling)
            if isinstance(to, _Costly) and (begun_ns := self._roused_ns(due_ns)):
                item = (begun_ns, number, to, chunk)
                heapq.heappush(self._travelling, item)
                continue
            self._time.at_ns = due_ns
            to.arrive(chunk)
        self._time.at_ns = None

    def _roused_ns(self, due_ns: int) -> int:
        """Return when a server will have begun that has not by then; else 0."""
        if due_ns > self._begun_ns and self._idle(due_ns):
            self._begun_ns = due_ns + self._rousing_ns
        return self._begun_ns if due_ns < self._begun_ns else 0


class _Costly(MemoryConnection):
    """A server's end of a connection: reading it takes time, and so does writing."""

    def __init__(self, network: CostlyNetwork, fileno: int, address: str) -> None:
        super().__init__(network, fileno, address)
        self._costs = network

    def recv(self, size: int, /) -> bytes:
        """Return some of what has arrived, and let the time pass that this takes."""
        chunk = super().recv(size)
        if chunk:
            self._costs.read()
        return chunk

    def send(self, data: Bytes, /) -> int:
        """Let the time pass that writing takes, and take as much as there is room."""
        self._costs.write()
        count = super().send(data)
        self._costs.note_sent()
        return count
