"""The open loop: send each request at its instant, independent of answers.

One thread, one epoll object, non-blocking sockets, around the core in ``exchange``.
Waiting is hybrid: sleep until shortly before the next instant, then poll without sleep.
Linux wakes a thread late, by its timer slack (50 us, ``prctl(2)``) and by the time to
schedule it.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence

from experiments.load.exchange import Channel, Exchange, Observed, Schedule

# Wake up this long before an instant and poll for the remaining time.
_SPIN_NS = 150_000
# Requests sent between two polls, which bounds the delay of an answer's stamp.
_SENDS_PER_POLL = 4
_SELECT_MAX = 1024
_EVENTS_PER_POLL = 64
_RECEIVE_BYTES = 1 << 18
CONNECT_TIMEOUT_S = 20.0


class _Clock:
    """A monotonic clock that its owner reads before and after each piece of work.

    ``off_cpu_ns`` is the longest time between two readings, without sleep, that ended
    at ``from_ns`` or later. No work in between takes 0.1 ms, for any answer. In a
    longer gap another process had the CPU, or the host had withdrawn it.
    """

    __slots__ = ("_last_ns", "from_ns", "off_cpu_ns")

    def __init__(self) -> None:
        self.off_cpu_ns = self.from_ns = 0
        self._last_ns = time.monotonic_ns()

    def __call__(self) -> int:
        now_ns = time.monotonic_ns()
        if now_ns - self._last_ns > self.off_cpu_ns and now_ns >= self.from_ns:
            self.off_cpu_ns = now_ns - self._last_ns
        self._last_ns = now_ns
        return now_ns

    def woke_up(self, until_ns: int) -> None:
        """Restart after a sleep that should end at ``until_ns`` at the latest."""
        self._last_ns = time.monotonic_ns()
        if self._last_ns >= self.from_ns:
            self.off_cpu_ns = max(self.off_cpu_ns, self._last_ns - until_ns)


def connected(address: tuple[str, int]) -> socket.socket:
    """Return a non-blocking socket that is connected to a broker."""
    found = socket.create_connection(address, CONNECT_TIMEOUT_S)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setblocking(False)
    return found


def connecting(family: int, address: tuple[str | int, ...]) -> socket.socket:
    """Return a non-blocking socket with a connection in progress.

    Nothing waits for a peer that does not accept. The first use of the socket reports a
    failed connection.
    """
    found = socket.socket(family)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setblocking(False)
    found.connect_ex(address)
    return found


class SocketLink:
    """A connected, non-blocking socket on an epoll object."""

    __slots__ = ("_epoll", "_socket")

    def __init__(self, connected: socket.socket, epoll: select.epoll) -> None:
        self._socket = connected
        self._epoll = epoll
        epoll.register(connected, select.EPOLLIN)

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send some bytes of the pieces; return how many."""
        return self._socket.sendmsg(pieces)

    def receive(self) -> bytes:
        """Return some bytes; none if the peer has finished."""
        return self._socket.recv(_RECEIVE_BYTES)

    def watch(self, *, readable: bool, writable: bool) -> None:
        """Select the events to report: the socket can be read, or be written to."""
        reading = select.EPOLLIN if readable else 0
        self._epoll.modify(self._socket, reading | (select.EPOLLOUT if writable else 0))

    def close(self) -> None:
        """Close the socket, which then reports no more events."""
        self._epoll.unregister(self._socket)
        self._socket.close()


class OpenLoop:
    """Replays a schedule over sockets, in real time.

    A socket that a client in a closed loop gives up is replaced in ``sockets``; the
    replacement may still be connecting at the end.
    """

    def __init__(
        self, sockets: list[socket.socket], schedule: Schedule, epoll: select.epoll
    ) -> None:
        self._clock = _Clock()
        self._due_ns = schedule.due_ns
        self._epoll = epoll
        self._sockets = sockets
        self._replaced = False
        self._peers = {
            number: (sockets[number].family, sockets[number].getpeername())
            for number in schedule.rules
        }
        links = [SocketLink(each, epoll) for each in sockets]
        self._exchange = Exchange(links, schedule, self._clock, self._connect)
        self._by_descriptor = {
            each.fileno(): channel
            for each, channel in zip(sockets, self._exchange.channels, strict=True)
        }

    def _connect(self, channel: Channel) -> SocketLink:
        number = channel.number
        each = connecting(*self._peers[number])
        self._replaced = True
        self._sockets[number] = each
        self._by_descriptor[each.fileno()] = channel
        return SocketLink(each, self._epoll)

    @property
    def drained(self) -> bool:
        """Whether every request that was sent is done."""
        return not self._exchange.outstanding

    @property
    def intact(self) -> bool:
        """Whether every connection is still open, and none was replaced."""
        channels = self._exchange.channels
        return not self._replaced and all(channel.open for channel in channels)

    @property
    def off_cpu_ns(self) -> int:
        """The longest time without a CPU.

        The generator woke up late from a sleep, or stood still during its work. The
        machine causes both; no answer does.
        """
        return self._clock.off_cpu_ns

    def watch_from(self, instant_ns: int) -> None:
        """Count `off_cpu_ns` only from an instant of ``time.monotonic_ns``."""
        self._clock.from_ns = instant_ns

    def run(self, origin_ns: int, deadline_ns: int) -> Observed:
        """Send all requests, then wait for all answers or the deadline.

        Both instants are on ``time.monotonic_ns``.
        """
        now, due_ns, exchange = self._clock, self._due_ns, self._exchange
        following, count = 0, len(due_ns)
        now.woke_up(time.monotonic_ns())
        while following < count or exchange.outstanding:
            for _ in range(_SENDS_PER_POLL):
                if following == count or origin_ns + due_ns[following] > now():
                    break
                exchange.offer(following)
                following += 1
            if following < count:
                self._poll(origin_ns + due_ns[following] - now() - _SPIN_NS)
            elif not exchange.outstanding or now() >= deadline_ns:
                break
            else:
                self._poll(deadline_ns - now())
        return exchange.observed

    def _poll(self, patience_ns: int) -> None:
        """Handle ready sockets; without any, sleep for at most ``patience_ns``."""
        self._exchange.ring()
        alarm_ns = self._exchange.next_alarm_ns()
        if alarm_ns is not None:
            patience_ns = min(patience_ns, alarm_ns - self._clock())
        events = self._epoll.poll(0, _EVENTS_PER_POLL)
        if not events and patience_ns > 0:
            self._sleep(patience_ns)
            events = self._epoll.poll(0, _EVENTS_PER_POLL)
        for descriptor, event in events:
            channel = self._by_descriptor[descriptor]
            if event & select.EPOLLOUT and channel.open:
                self._exchange.write(channel)
            if event & ~select.EPOLLOUT and channel.open:
                self._exchange.read(channel)

    def _sleep(self, patience_ns: int) -> None:
        """Sleep until a socket is ready, for at most ``patience_ns``.

        epoll's own timeout counts milliseconds. select's counts microseconds, but
        accepts no descriptor from 1024 on; polling covers the rest of a millisecond.
        """
        until_ns = self._clock() + patience_ns
        if self._epoll.fileno() < _SELECT_MAX:
            select.select([self._epoll], [], [], patience_ns / 1e9)
        else:
            self._epoll.poll(patience_ns // 1_000_000 / 1000, 1)
        self._clock.woke_up(until_ns)
