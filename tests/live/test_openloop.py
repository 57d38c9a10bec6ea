"""The open loop with peers that answer late, never or in bulk, or close.

Peers are threads at the other end of a socket pair. Waits are real and bounds are wide:
the tests check the order of events, not the speed of this machine.
"""

from __future__ import annotations

import fcntl
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from experiments.load.exchange import NEVER, Observed, Schedule
from experiments.load.openloop import OpenLoop

pytestmark = pytest.mark.live

MS = 1_000_000
Peer = Callable[[socket.socket], None]


def request(number: int, padding: int = 0) -> tuple[bytes, ...]:
    """Return a frame; only its correlation id is significant."""
    body = b"\0\0\0\1" + number.to_bytes(4) + bytes(padding)
    frame = len(body).to_bytes(4) + body
    return (frame,) if padding < 2048 else (frame[:12], frame[12:])


def read_request(stream: socket.socket) -> int | None:
    """Return the correlation id of the next complete request, None at the end."""
    size = _exactly(stream, 4)
    if size is None:
        return None
    body = _exactly(stream, int.from_bytes(size))
    return None if body is None else int.from_bytes(body[4:8])


def _exactly(stream: socket.socket, size: int) -> bytes | None:
    received = b""
    while len(received) < size:
        piece = stream.recv(size - len(received))
        if not piece:
            return None
        received += piece
    return received


def answer(stream: socket.socket, number: int) -> None:
    stream.sendall((10).to_bytes(4) + number.to_bytes(4) + b"answer")


@contextmanager
def peers(*behaviours: Peer) -> Iterator[list[socket.socket]]:
    """Yield our ends of connections whose other ends run the behaviours."""
    pairs = [socket.socketpair() for _ in behaviours]
    threads = [
        threading.Thread(target=behaviour, args=(theirs,))
        for behaviour, (_, theirs) in zip(behaviours, pairs, strict=True)
    ]
    for thread in threads:
        thread.start()
    for ours, _ in pairs:
        ours.setblocking(False)
    yield [ours for ours, _ in pairs]
    for ours, _ in pairs:
        ours.close()
    for thread in threads:
        thread.join()
    for _, theirs in pairs:
        theirs.close()


def replay(
    sockets: list[socket.socket],
    due_ns: list[int],
    connection: list[int],
    *,
    padding: int = 0,
    answered: bool = True,
    patience_ms: int = 5000,
    read_delay_ms: float = 0,
    descriptor: int = 0,
) -> tuple[Observed, int]:
    """Replay a schedule; return the observations and the origin.

    The descriptor of the loop's epoll object is at least ``descriptor``.
    """
    schedule = Schedule(
        due_ns=due_ns,
        connection=connection,
        frames=[request(number, padding) for number in range(len(due_ns))],
        answered=[answered] * len(due_ns),
        read_delay_ns=[round(read_delay_ms * MS)] * len(sockets),
    )
    with select.epoll() as low:
        high = fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, descriptor)
    with select.epoll.fromfd(high) as epoll:
        loop = OpenLoop(sockets, schedule, epoll)
        origin_ns = time.monotonic_ns() + 5 * MS
        observed = loop.run(origin_ns, origin_ns + patience_ms * MS)
        assert loop.intact is not any(observed.broken)
        return observed, origin_ns


def echo(stream: socket.socket) -> None:
    while (number := read_request(stream)) is not None:
        answer(stream, number)


def test_every_request_is_answered_once_and_stamps_are_in_order() -> None:
    due_ns = [number * MS // 2 for number in range(400)]
    connection = [number % 3 for number in range(400)]
    with peers(echo, echo, echo) as sockets:
        observed, origin_ns = replay(sockets, due_ns, connection)
    for number, due in enumerate(due_ns):
        assert observed.answers[number] == number.to_bytes(4) + b"answer"
        assert origin_ns + due <= observed.offered_ns[number]
        assert observed.offered_ns[number] <= observed.sent_ns[number]
        assert observed.sent_ns[number] <= observed.done_ns[number]
    assert not any(observed.broken)


def test_for_how_long_its_cpu_was_away_says_nothing_of_answers() -> None:
    """Sleeping until a due time or a response is not off-CPU time."""

    def slow(stream: socket.socket) -> None:
        while (number := read_request(stream)) is not None:
            time.sleep(0.05)
            answer(stream, number)

    with peers(slow) as sockets, select.epoll() as epoll:
        schedule = Schedule(
            due_ns=[20 * MS, 40 * MS],
            connection=[0, 0],
            frames=[request(0), request(1)],
            answered=[True, True],
            read_delay_ns=[0],
        )
        loop = OpenLoop(sockets, schedule, epoll)
        origin_ns = time.monotonic_ns()
        observed = loop.run(origin_ns, origin_ns + 5000 * MS)
    late_ns = [
        at - origin_ns - due_ns
        for at, due_ns in zip(observed.offered_ns, schedule.due_ns, strict=True)
    ]
    # The loop wakes shortly before a due time and then reads the clock repeatedly. It
    # does not read the clock after the last response.
    done_ns = time.monotonic_ns() - origin_ns - 120 * MS
    assert 0 < loop.off_cpu_ns <= max(*late_ns, done_ns) + MS
    assert observed.answers == [n.to_bytes(4) + b"answer" for n in range(2)]


def test_time_before_the_warm_up_ends_is_not_off_cpu_time() -> None:
    with peers(echo) as sockets, select.epoll() as epoll:
        schedule = Schedule(
            due_ns=[2 * MS],
            connection=[0],
            frames=[request(0)],
            answered=[True],
            read_delay_ns=[0],
        )
        loop = OpenLoop(sockets, schedule, epoll)
        origin_ns = time.monotonic_ns()
        loop.watch_from(origin_ns + 3600 * 1000 * MS)
        observed = loop.run(origin_ns, origin_ns + 5000 * MS)
    assert observed.answers == [(0).to_bytes(4) + b"answer"]
    assert loop.off_cpu_ns == 0


def test_a_generator_of_more_descriptors_than_select_takes_sends_on_time() -> None:
    """The epoll object is created last, so that its descriptor is the highest."""
    most = 1_500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most + 1), hard))
    due_ns = [number * 3 * MS for number in range(30)]
    try:
        with peers(echo) as sockets:
            observed, origin_ns = replay(sockets, due_ns, [0] * 30, descriptor=most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number, due in enumerate(due_ns):
        assert observed.answers[number] == number.to_bytes(4) + b"answer"
        assert origin_ns + due <= observed.offered_ns[number]


def test_a_slow_reader_leaves_its_answers_in_the_socket_for_so_long() -> None:
    due_ns = [number * 20 * MS for number in range(10)]
    with peers(echo) as sockets:
        observed, _ = replay(sockets, due_ns, [0] * 10, read_delay_ms=10)
    for number in range(10):
        assert observed.answers[number] == number.to_bytes(4) + b"answer"
    # A read takes all responses that have arrived; the delay separates two reads.
    reads_ns = [observed.sent_ns[0], *sorted(set(observed.done_ns))]
    for earlier, later in pairwise(reads_ns):
        assert later - earlier >= 10 * MS


def test_requests_are_sent_on_time_though_no_answer_comes() -> None:
    sent_all = threading.Event()

    def at_the_end(stream: socket.socket) -> None:
        numbers = [read_request(stream) for _ in range(200)]
        sent_all.set()
        for number in numbers:
            assert number is not None
            answer(stream, number)

    due_ns = [number * MS for number in range(200)]
    with peers(at_the_end) as sockets:
        observed, origin_ns = replay(sockets, due_ns, [0] * 200)
    assert sent_all.is_set()
    late = sorted(
        offered - origin_ns - due
        for offered, due in zip(observed.offered_ns, due_ns, strict=True)
    )
    assert late[0] >= 0
    assert late[100] < 5 * MS
    assert min(observed.done_ns) >= max(observed.sent_ns)


def test_a_peer_that_does_not_read_delays_no_other_connection() -> None:
    read_now = threading.Event()

    def deaf_at_first(stream: socket.socket) -> None:
        read_now.wait()
        echo(stream)

    def last(stream: socket.socket) -> None:
        for _ in range(50):
            number = read_request(stream)
            assert number is not None
            answer(stream, number)
        read_now.set()

    # 50 frames of 100 kB exceed the buffers of a socket pair.
    due_ns = [number * MS for number in range(100)]
    connection = [number % 2 for number in range(100)]
    with peers(deaf_at_first, last) as sockets:
        observed, _ = replay(sockets, due_ns, connection, padding=100_000)
    deaf, other = observed.sent_ns[0::2], observed.sent_ns[1::2]
    assert max(other) < max(deaf)
    assert NEVER not in observed.done_ns
    assert max(observed.offered_ns[0::2]) <= max(other)


def test_requests_unanswered_at_the_deadline_stay_open() -> None:
    def half(stream: socket.socket) -> None:
        while (number := read_request(stream)) is not None:
            if number % 2:
                answer(stream, number)

    with peers(half) as sockets:
        observed, _ = replay(sockets, [0] * 10, [0] * 10, patience_ms=150)
    assert [done == NEVER for done in observed.done_ns] == [True, False] * 5
    assert not any(observed.broken)


def test_a_connection_that_closes_breaks_its_own_requests_only() -> None:
    def hang_up(stream: socket.socket) -> None:
        for _ in range(3):
            number = read_request(stream)
            assert number is not None
            answer(stream, number)
        stream.shutdown(socket.SHUT_RDWR)

    due_ns = [number * 20 * MS for number in range(12)]
    connection = [number % 2 for number in range(12)]
    with peers(hang_up, echo) as sockets:
        observed, _ = replay(sockets, due_ns, connection)
    assert list(observed.broken) == [0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0]
    assert NEVER not in observed.done_ns
    assert [answer is None for answer in observed.answers] == [
        bool(broken) for broken in observed.broken
    ]


def test_a_request_without_an_answer_is_done_once_sent() -> None:
    def silent(stream: socket.socket) -> None:
        while read_request(stream) is not None:
            pass

    with peers(silent) as sockets:
        observed, _ = replay(sockets, [0, MS, 2 * MS], [0] * 3, answered=False)
    assert list(observed.done_ns) == list(observed.sent_ns)


def test_answers_that_arrive_in_pieces_are_put_together() -> None:
    def dribble(stream: socket.socket) -> None:
        numbers = [read_request(stream) for _ in range(5)]
        every = b"".join(
            (10).to_bytes(4) + (number or 0).to_bytes(4) + b"answer"
            for number in numbers
        )
        for at in range(0, len(every), 7):
            stream.sendall(every[at : at + 7])
            time.sleep(0.002)

    with peers(dribble) as sockets:
        observed, _ = replay(sockets, [0] * 5, [0] * 5)
    assert observed.answers == [n.to_bytes(4) + b"answer" for n in range(5)]
