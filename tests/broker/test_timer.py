"""Deadlines expire at their time, and the timer is idle without deadlines."""

import heapq

import trio

from broker.requests.timer import DeadlineTimer


class Deadlines:
    """A naive purgatory: a heap of deadlines, and the time at which each expired."""

    def __init__(self):
        self.waiting = []
        self.met = []
        self.looks = 0

    def next_expiry_ns(self):
        return self.waiting[0] if self.waiting else None

    def expire(self, now_ns):
        self.looks += 1
        while self.waiting and self.waiting[0] <= now_ns:
            self.met.append((heapq.heappop(self.waiting), now_ns))


def now_ns():
    return round(trio.current_time() * 1e9)


async def test_each_deadline_is_met_at_its_time_in_whatever_order_they_come(
    autojump_clock, nursery
):
    deadlines = Deadlines()
    timer = DeadlineTimer(deadlines.next_expiry_ns, deadlines.expire, now_ns)
    nursery.start_soon(timer.run)
    began_ns = now_ns()
    for delay_ms in (50, 20, 80, 5, 5, 65):
        heapq.heappush(deadlines.waiting, began_ns + delay_ms * 1_000_000)
        timer.moved()
        await trio.sleep(0.001)
    await trio.sleep(1)
    delays = [(due - began_ns, at - due) for due, at in deadlines.met]
    assert [due // 1_000_000 for due, _ in delays] == [5, 5, 20, 50, 65, 80]
    assert max(late for _, late in delays) <= 1
    nursery.cancel_scope.cancel()


async def test_nothing_is_looked_at_while_nothing_waits(autojump_clock, nursery):
    deadlines = Deadlines()
    timer = DeadlineTimer(deadlines.next_expiry_ns, deadlines.expire, now_ns)
    nursery.start_soon(timer.run)
    await trio.sleep(3600)
    assert deadlines.looks == 0
    nursery.cancel_scope.cancel()
