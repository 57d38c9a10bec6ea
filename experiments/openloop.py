"""The open loop: send each request at its instant, whatever the answers do.

One thread, one epoll object, non-blocking sockets. A request that its socket will not
take waits in a queue of its connection; the schedule goes on. Waiting is hybrid: asleep
until shortly before the next instant, then polling without sleep, because a sleeping
thread wakes 50 to 100 us late.

Two instants are kept apart. ``offered_ns`` is when the loop took the request up: minus
the intended instant it is the generator's own lateness, which decides whether a run
counts. ``sent_ns`` is when the kernel had taken the last byte: later, if the broker
does not read, which is a finding and not a fault.

Answers are kept, not decoded; that comes after the run.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

NEVER = -1
# Wake this long before an instant and poll the rest of the way.
_SPIN_NS = 150_000
# Requests sent between two polls: bounds how late an answer is stamped.
_SENDS_PER_POLL = 4
_RECEIVE_BYTES = 1 << 18


@dataclass(slots=True, eq=False, kw_only=True)
class Schedule:
    """What to send: one row per request, in order of the intended instants.

    ``due_ns`` counts from the origin; ``answered`` is False for a request that gets no
    answer (PRODUCE with acks=0), which is done once it is sent.
    """

    due_ns: Sequence[int]
    connection: Sequence[int]
    frames: Sequence[Sequence[bytes]]
    answered: Sequence[bool]


@dataclass(slots=True, eq=False, kw_only=True)
class Observed:
    """What became of each request; instants on the monotonic clock, ``NEVER`` if not.

    ``broken`` marks requests whose connection closed before their answer came.
    """

    offered_ns: array[int]
    sent_ns: array[int]
    done_ns: array[int]
    broken: bytearray
    answers: list[bytes | None]

    @classmethod
    def nothing(cls, requests: int) -> Observed:
        """Return the record of ``requests`` requests before the first is sent."""
        return cls(
            offered_ns=array("q", [NEVER]) * requests,
            sent_ns=array("q", [NEVER]) * requests,
            done_ns=array("q", [NEVER]) * requests,
            broken=bytearray(requests),
            answers=[None] * requests,
        )


@dataclass(slots=True, eq=False)
class _Channel:
    """One connection: what is still to be written, what has been read so far."""

    socket: socket.socket
    out: deque[tuple[int, list[memoryview]]] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)
    waiting: set[int] = field(default_factory=set)
    watched: bool = False
    open: bool = True


class OpenLoop:
    """Replays a schedule over connected, non-blocking sockets."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        schedule: Schedule,
        *,
        epoll: select.epoll,
    ) -> None:
        self._channels = [_Channel(each) for each in sockets]
        self._by_descriptor = {each.socket.fileno(): each for each in self._channels}
        self._schedule = schedule
        self._epoll = epoll
        self._outstanding = 0
        self.observed = Observed.nothing(len(schedule.due_ns))
        for channel in self._channels:
            epoll.register(channel.socket, select.EPOLLIN)

    def run(self, origin_ns: int, deadline_ns: int) -> Observed:
        """Send everything, then wait for answers until all are there or the deadline.

        Both instants are on ``time.monotonic_ns``.
        """
        now = time.monotonic_ns
        due_ns = self._schedule.due_ns
        following, count = 0, len(due_ns)
        while following < count or self._outstanding:
            for _ in range(_SENDS_PER_POLL):
                if following == count or origin_ns + due_ns[following] > now():
                    break
                self._offer(following, now())
                following += 1
            if following < count:
                self._poll(origin_ns + due_ns[following] - now() - _SPIN_NS)
            elif not self._outstanding or now() >= deadline_ns:
                break
            else:
                self._poll(deadline_ns - now())
        return self.observed

    def _poll(self, patience_ns: int) -> None:
        """Handle ready sockets; sleep for at most ``patience_ns`` if none is."""
        events = self._epoll.poll(0, 64)
        if not events and patience_ns > 0:
            # epoll's own timeout counts milliseconds; select's counts microseconds.
            select.select([self._epoll], [], [], patience_ns / 1e9)
            events = self._epoll.poll(0, 64)
        for descriptor, event in events:
            channel = self._by_descriptor[descriptor]
            if event & select.EPOLLOUT:
                self._write(channel)
            if event & ~select.EPOLLOUT:
                self._read(channel)

    def _offer(self, number: int, now_ns: int) -> None:
        """Take up a request: write it, or queue it behind what is not yet written."""
        self.observed.offered_ns[number] = now_ns
        channel = self._channels[self._schedule.connection[number]]
        self._outstanding += 1
        channel.waiting.add(number)
        if not channel.open:
            self._lose(channel)
            return
        pieces = [memoryview(piece) for piece in self._schedule.frames[number]]
        channel.out.append((number, pieces))
        if len(channel.out) == 1:
            self._write(channel)

    def _write(self, channel: _Channel) -> None:
        """Write queued requests until the socket takes no more."""
        while channel.out:
            number, pieces = channel.out[0]
            try:
                written = channel.socket.sendmsg(pieces)
            except BlockingIOError:
                self._watch(channel, writable=True)
                return
            except OSError:
                self._lose(channel)
                return
            _drop(pieces, written)
            if not pieces:
                channel.out.popleft()
                self._sent(channel, number)
        self._watch(channel, writable=False)

    def _watch(self, channel: _Channel, *, writable: bool) -> None:
        """Ask epoll for writability only while something waits to be written."""
        if channel.watched != writable:
            channel.watched = writable
            wanted = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
            self._epoll.modify(channel.socket, wanted)

    def _sent(self, channel: _Channel, number: int) -> None:
        now_ns = time.monotonic_ns()
        self.observed.sent_ns[number] = now_ns
        if not self._schedule.answered[number]:
            self.observed.done_ns[number] = now_ns
            channel.waiting.discard(number)
            self._outstanding -= 1

    def _read(self, channel: _Channel) -> None:
        """Take whole answers off the socket."""
        try:
            received = channel.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        now_ns = time.monotonic_ns()
        if not received:
            self._lose(channel)
            return
        buffered = channel.received
        buffered += received
        begin = 0
        while len(buffered) - begin >= 8:
            end = begin + 4 + int.from_bytes(buffered[begin : begin + 4])
            if len(buffered) < end:
                break
            answer = bytes(buffered[begin + 4 : end])
            begin = end
            self._answered(channel, int.from_bytes(answer[:4]), answer, now_ns)
        del buffered[:begin]

    def _answered(
        self, channel: _Channel, number: int, answer: bytes, now_ns: int
    ) -> None:
        assert number in channel.waiting, f"answer to {number}, which is not waited for"
        channel.waiting.discard(number)
        self._outstanding -= 1
        self.observed.done_ns[number] = now_ns
        self.observed.answers[number] = answer

    def _lose(self, channel: _Channel) -> None:
        """Give up a closed connection: what it still owed will never come."""
        if channel.open:
            channel.open = False
            self._epoll.unregister(channel.socket)
        now_ns = time.monotonic_ns()
        for number in channel.waiting:
            self.observed.broken[number] = 1
            self.observed.done_ns[number] = now_ns
        self._outstanding -= len(channel.waiting)
        channel.waiting.clear()
        channel.out.clear()


def _drop(pieces: list[memoryview], written: int) -> None:
    """Remove the first ``written`` bytes of a list of pieces."""
    while pieces and written >= len(pieces[0]):
        written -= len(pieces.pop(0))
    if written:
        pieces[0] = pieces[0][written:]
