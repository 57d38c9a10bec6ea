"""Use of connections by a load: send requests, take answers, lose neither.

The core of every load, without a clock, an event loop or sockets of its own: the live
generator drives it with epoll, the virtual world with Trio in virtual time. A request
that its connection will not take waits in a queue of that connection; no other waits
for it. Answers are kept, and decoded after the run.

Two instants are kept apart. ``offered_ns`` is when the load took the request up; its
difference to the intended instant is the load's own lateness, which decides whether a
run counts. ``sent_ns`` is when the last byte had been taken from it: later, if the
broker does not read, which is a finding and not a fault.

A connection may be that of a slow client: received bytes then stay unread for a time,
so that the broker meets full sockets.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

NEVER = -1


@dataclass(slots=True, eq=False, kw_only=True)
class Schedule:
    """The requests to send: one row each, in order of the intended instants.

    ``due_ns`` counts from the origin; ``answered`` is False for a request that gets no
    answer (PRODUCE with acks=0), which is done once it is sent. ``read_delay_ns`` is
    the time, for each connection, that its client leaves received bytes in the socket.
    """

    due_ns: Sequence[int]
    connection: Sequence[int]
    frames: Sequence[Sequence[bytes]]
    answered: Sequence[bool]
    read_delay_ns: Sequence[int]


@dataclass(slots=True, eq=False, kw_only=True)
class Observed:
    """The outcome of each request; instants on the load's clock, ``NEVER`` if not.

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


class Link(Protocol):
    """A non-blocking connection; its verbs raise the exceptions of a socket."""

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Take some bytes of the pieces; return how many."""

    def receive(self) -> bytes:
        """Return some bytes; none if the peer has finished."""

    def watch(self, *, readable: bool, writable: bool) -> None:
        """Select the events to report: the link can be read, or be written to."""

    def close(self) -> None:
        """Report no more events of this link."""


@dataclass(slots=True, eq=False)
class Channel:
    """One connection: the bytes to write, and the bytes read so far."""

    link: Link
    read_delay_ns: int = 0
    out: deque[tuple[int, list[memoryview]]] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)
    waiting: set[int] = field(default_factory=set)
    watched: bool = False
    postponed: bool = False
    open: bool = True


class _Late(NamedTuple):
    """A channel whose client is slow, and when it reads; ``number`` breaks ties."""

    due_ns: int
    number: int
    channel: Channel


class Exchange:
    """Sends the offered requests of a schedule, and takes the answers."""

    def __init__(
        self, links: Sequence[Link], schedule: Schedule, now_ns: Callable[[], int]
    ) -> None:
        self.channels = [
            Channel(link, delay_ns)
            for link, delay_ns in zip(links, schedule.read_delay_ns, strict=True)
        ]
        self._late: list[_Late] = []
        self._postponed = 0
        self.outstanding = 0
        self.observed = Observed.nothing(len(schedule.due_ns))
        self._schedule = schedule
        self._now_ns = now_ns

    def offer(self, number: int) -> None:
        """Take up a request: write it, or queue it behind unwritten ones."""
        self.observed.offered_ns[number] = self._now_ns()
        channel = self.channels[self._schedule.connection[number]]
        self.outstanding += 1
        channel.waiting.add(number)
        if not channel.open:
            self._lose(channel)
            return
        pieces = [memoryview(piece) for piece in self._schedule.frames[number]]
        channel.out.append((number, pieces))
        if len(channel.out) == 1:
            self.write(channel)

    def write(self, channel: Channel) -> None:
        """Write queued requests until the link takes no more."""
        while channel.out:
            number, pieces = channel.out[0]
            try:
                written = channel.link.send(pieces)
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

    def read(self, channel: Channel) -> None:
        """Take whole answers off the link; later, if the client is slow."""
        if not channel.read_delay_ns:
            self._read(channel)
        elif not channel.postponed:
            channel.postponed = True
            self._postponed += 1
            due_ns = self._now_ns() + channel.read_delay_ns
            heapq.heappush(self._late, _Late(due_ns, self._postponed, channel))
            channel.link.watch(readable=False, writable=channel.watched)

    def next_read_ns(self) -> int | None:
        """When `read_late` has something to read; None if nothing was postponed."""
        return self._late[0].due_ns if self._late else None

    def read_late(self) -> None:
        """Read what slow clients have left for long enough."""
        now_ns = self._now_ns()
        while self._late and self._late[0].due_ns <= now_ns:
            channel = heapq.heappop(self._late).channel
            channel.postponed = False
            if channel.open:
                channel.link.watch(readable=True, writable=channel.watched)
                self._read(channel)

    def _read(self, channel: Channel) -> None:
        try:
            received = channel.link.receive()
        except BlockingIOError:
            return
        except OSError:
            received = b""
        now_ns = self._now_ns()
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
            self._answered(channel, bytes(buffered[begin + 4 : end]), now_ns)
            begin = end
        del buffered[:begin]

    def _answered(self, channel: Channel, answer: bytes, now_ns: int) -> None:
        number = int.from_bytes(answer[:4])
        assert number in channel.waiting, f"answer to {number}, which is not waited for"
        channel.waiting.discard(number)
        self.outstanding -= 1
        self.observed.done_ns[number] = now_ns
        self.observed.answers[number] = answer

    def _sent(self, channel: Channel, number: int) -> None:
        now_ns = self._now_ns()
        self.observed.sent_ns[number] = now_ns
        if not self._schedule.answered[number]:
            self.observed.done_ns[number] = now_ns
            channel.waiting.discard(number)
            self.outstanding -= 1

    def _watch(self, channel: Channel, *, writable: bool) -> None:
        """Ask for writability only while something waits to be written."""
        if channel.watched != writable:
            channel.watched = writable
            channel.link.watch(readable=not channel.postponed, writable=writable)

    def _lose(self, channel: Channel) -> None:
        """Give up a closed connection: its outstanding answers will never come."""
        if channel.open:
            channel.open = False
            channel.link.close()
        now_ns = self._now_ns()
        for number in channel.waiting:
            self.observed.broken[number] = 1
            self.observed.done_ns[number] = now_ns
        self.outstanding -= len(channel.waiting)
        channel.waiting.clear()
        channel.out.clear()


def _drop(pieces: list[memoryview], written: int) -> None:
    """Remove the first ``written`` bytes of a list of pieces."""
    while pieces and written >= len(pieces[0]):
        written -= len(pieces.pop(0))
    if written:
        pieces[0] = pieces[0][written:]
