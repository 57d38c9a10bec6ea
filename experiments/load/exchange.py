"""Use of connections by a load: send requests and receive answers, without loss.

The core of every load, without a clock, an event loop or sockets of its own: the live
generator drives it with epoll, the virtual world with Trio in virtual time. A request
that its connection does not accept waits in a queue of that connection, and delays no
other connection. Answers are kept, and decoded after the run.

Two instants are distinct. ``offered_ns`` is the start of sending a request; its
difference from the intended instant is the load's own lateness, which decides whether a
run is valid. ``sent_ns`` is the instant at which the last byte was accepted. It is
later if the broker does not read, which is a result and not a fault.

A connection may belong to a slow client: received bytes then stay unread for a time, so
that the broker's sockets are full. Or it has a client in a closed loop (`closed_loop`),
whose requests carry several rows of the schedule; such a request has a number above
those of all rows.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from experiments.load.closed_loop import ClosedLoop, Rules

NEVER = -1


def _composes_nothing(connection: int, number: int, rows: int) -> Sequence[bytes]:
    raise ValueError("an open loop sends the frames of its schedule")


def _refuses_nothing(row: int, answer: bytes) -> bool:
    return False


@dataclass(slots=True, eq=False, kw_only=True)
class Schedule:
    """The requests to send: one row each, in order of the intended instants.

    ``due_ns`` counts from the origin. ``answered`` is False for a request without an
    answer (PRODUCE with acks=0), which is complete when it is sent. ``read_delay_ns``
    is the time for which each connection's client leaves received bytes in the socket.
    ``rules`` are those of connections in a closed loop. ``compose`` creates the frame
    of (connection, number, number of rows), and ``is_refused`` returns whether a row
    must be sent again because of its answer.
    """

    due_ns: Sequence[int]
    connection: Sequence[int]
    frames: Sequence[Sequence[bytes]]
    answered: Sequence[bool]
    read_delay_ns: Sequence[int]
    rules: Mapping[int, Rules] = field(default_factory=dict)
    compose: Callable[[int, int, int], Sequence[bytes]] = _composes_nothing
    is_refused: Callable[[int, bytes], bool] = _refuses_nothing


@dataclass(slots=True, eq=False, kw_only=True)
class Observed:
    """The outcome of each request; instants on the load's clock, or ``NEVER``.

    ``broken`` marks requests whose connection closed before their answer arrived.
    ``carrier`` is the number of the last request that carried a row.
    """

    offered_ns: array[int]
    sent_ns: array[int]
    done_ns: array[int]
    broken: bytearray
    answers: list[bytes | None]
    carrier: array[int]

    @classmethod
    def nothing(cls, requests: int) -> Observed:
        """Return the record of ``requests`` requests before the first is sent."""
        return cls(
            offered_ns=array("q", [NEVER]) * requests,
            sent_ns=array("q", [NEVER]) * requests,
            done_ns=array("q", [NEVER]) * requests,
            broken=bytearray(requests),
            answers=[None] * requests,
            carrier=array("q", range(requests)),
        )


class Link(Protocol):
    """A non-blocking connection; its methods raise the exceptions of a socket."""

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send some bytes of the pieces; return how many."""

    def receive(self) -> bytes:
        """Return some bytes; none if the peer has finished."""

    def watch(self, *, readable: bool, writable: bool) -> None:
        """Select the events to report: the link can be read, or be written to."""

    def close(self) -> None:
        """Close this link, which then reports no more events."""


@dataclass(slots=True, eq=False)
class Channel:
    """One connection: the bytes to write, and the bytes read so far."""

    link: Link
    number: int
    read_delay_ns: int = 0
    loop: ClosedLoop | None = None
    out: deque[tuple[int, list[memoryview]]] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)
    waiting: set[int] = field(default_factory=set)
    watched: bool = False
    postponed: bool = False
    open: bool = True


class _Alarm(NamedTuple):
    """A call at an instant; ``number`` breaks ties."""

    due_ns: int
    number: int
    call: Callable[[int], None]


class Exchange:
    """Sends the offered requests of a schedule, and receives the answers.

    ``connect`` opens a connection's link again, for clients that give up an answer.
    """

    def __init__(
        self,
        links: Sequence[Link],
        schedule: Schedule,
        now_ns: Callable[[], int],
        connect: Callable[[Channel], Link],
    ) -> None:
        self.channels = [
            Channel(link, number, delay_ns)
            for number, (link, delay_ns) in enumerate(
                zip(links, schedule.read_delay_ns, strict=True)
            )
        ]
        for number, rules in schedule.rules.items():
            channel = self.channels[number]
            channel.loop = ClosedLoop(rules, _Wire(self, channel))
        self._alarms: list[_Alarm] = []
        self._alarms_set = 0
        self.outstanding = 0
        self.observed = Observed.nothing(len(schedule.due_ns))
        # The rows that each request of a closed loop carries.
        self._carried: list[Sequence[int]] = []
        self._schedule = schedule
        self._now_ns = now_ns
        self._connect = connect

    def offer(self, number: int) -> None:
        """Start a request: write it, or queue it behind unwritten ones."""
        now_ns = self._now_ns()
        self.observed.offered_ns[number] = now_ns
        channel = self.channels[self._schedule.connection[number]]
        self.outstanding += 1
        if channel.loop is not None:
            channel.loop.offer(number, now_ns)
            return
        channel.waiting.add(number)
        if not channel.open:
            self._lose(channel)
            return
        self._put(channel, number, self._schedule.frames[number])

    def rows_of(self, number: int) -> Sequence[int]:
        """Return the rows that a request carries."""
        first = len(self._schedule.due_ns)
        return (number,) if number < first else self._carried[number - first]

    def _put(self, channel: Channel, number: int, frame: Sequence[bytes]) -> None:
        channel.out.append((number, [memoryview(piece) for piece in frame]))
        if len(channel.out) == 1:
            self.write(channel)

    def write(self, channel: Channel) -> None:
        """Write queued requests until the link accepts no more."""
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
        """Read complete answers from the link; later, if the client is slow."""
        if not channel.read_delay_ns:
            self._read(channel)
        elif not channel.postponed:
            channel.postponed = True
            due_ns = self._now_ns() + channel.read_delay_ns
            self.at(due_ns, partial(self._read_late, channel))
            channel.link.watch(readable=False, writable=channel.watched)

    def at(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Schedule `call` at an instant."""
        self._alarms_set += 1
        heapq.heappush(self._alarms, _Alarm(at_ns, self._alarms_set, call))

    def next_alarm_ns(self) -> int | None:
        """Instant of the next alarm; None without alarms."""
        return self._alarms[0].due_ns if self._alarms else None

    def ring(self) -> None:
        """Run due alarms: slow clients read, others time out or retry."""
        now_ns = self._now_ns()
        while self._alarms and self._alarms[0].due_ns <= now_ns:
            heapq.heappop(self._alarms).call(now_ns)

    def _read_late(self, channel: Channel, now_ns: int) -> None:
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
        rows = self.rows_of(number)
        for row in rows:
            self.observed.done_ns[row] = now_ns
            self.observed.answers[row] = answer
        if channel.loop is None:
            self.outstanding -= 1
        else:
            refused = self._schedule.is_refused(rows[0], answer)
            channel.loop.answered(number, now_ns, is_refused=refused)

    def _sent(self, channel: Channel, number: int) -> None:
        now_ns = self._now_ns()
        for row in self.rows_of(number):
            self.observed.sent_ns[row] = now_ns
        if channel.loop is None and not self._schedule.answered[number]:
            self.observed.done_ns[number] = now_ns
            channel.waiting.discard(number)
            self.outstanding -= 1

    def _watch(self, channel: Channel, *, writable: bool) -> None:
        """Watch for writability only while data waits to be written."""
        if channel.watched != writable:
            channel.watched = writable
            channel.link.watch(readable=not channel.postponed, writable=writable)

    def _lose(self, channel: Channel) -> None:
        """Give up a closed connection: its pending answers will never arrive."""
        if channel.open:
            channel.open = False
            channel.link.close()
        now_ns = self._now_ns()
        channel.out.clear()
        if channel.loop is not None:
            # Deferred, because its client may be sending right now.
            self.at(now_ns, channel.loop.lost)
            return
        for number in channel.waiting:
            self.observed.broken[number] = 1
            self.observed.done_ns[number] = now_ns
        self.outstanding -= len(channel.waiting)
        channel.waiting.clear()

    # ---- for clients in a closed loop ----

    def send(self, channel: Channel, rows: Sequence[int]) -> int:
        """Send a request that carries rows of the schedule; return its number."""
        number = len(self._schedule.due_ns) + len(self._carried)
        self._carried.append(rows)
        for row in rows:
            self.observed.carrier[row] = number
            self.observed.sent_ns[row] = self.observed.done_ns[row] = NEVER
            self.observed.answers[row] = None
        channel.waiting.add(number)
        frame = self._schedule.compose(channel.number, number, len(rows))
        self._put(channel, number, frame)
        return number

    def reconnect(self, channel: Channel) -> None:
        """Close a connection without reading its answers, and open another."""
        if channel.open:
            channel.link.close()
        channel.out.clear()
        channel.received.clear()
        channel.waiting.clear()
        channel.watched, channel.open = False, True
        channel.link = self._connect(channel)

    def end(self, rows: Sequence[int]) -> None:
        """Stop waiting for answers to rows."""
        self.outstanding -= len(rows)


class _Wire:
    """The connection of a client in a closed loop (`closed_loop.Wire`)."""

    def __init__(self, exchange: Exchange, channel: Channel) -> None:
        self._exchange = exchange
        self._channel = channel
        self.at = exchange.at

    def send(self, rows: Sequence[int], now_ns: int) -> int:
        """Send one request that carries ``rows``; return its number."""
        return self._exchange.send(self._channel, rows)

    def give_up(self, sending: int, now_ns: int) -> None:
        """Close the connection with a pending answer, and open another."""
        self._exchange.reconnect(self._channel)

    def ended(self, rows: Sequence[int], sending: int, now_ns: int) -> None:
        """Stop waiting for answers to rows."""
        self._exchange.end(rows)


def _drop(pieces: list[memoryview], written: int) -> None:
    """Remove the first ``written`` bytes of a list of pieces."""
    while pieces and written >= len(pieces[0]):
        written -= len(pieces.pop(0))
    if written:
        pieces[0] = pieces[0][written:]
