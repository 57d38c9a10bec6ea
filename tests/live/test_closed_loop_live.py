"""Closed-loop clients over TCP whose peers are silent, refuse, close or are absent.

Waits are real. The only upper bound is the end of the replay: a row that misses a step
has no answer by then.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from experiments.load.closed_loop import Rules
from experiments.load.exchange import NEVER, Observed, Schedule
from experiments.load.openloop import OpenLoop, connected
from tests.live.test_openloop import (
    MS,
    Peer,
    answer,
    echo,
    peers,
    read_request,
    request,
)

pytestmark = pytest.mark.live

Address = tuple[str, int]
# Longer than any replay here, except in tests of this limit.
_NEVER_NS = 60_000 * MS
_LOCALHOST = ("127.0.0.1", 0)


def rules(
    *, request_timeout_ns: int = _NEVER_NS, delivery_timeout_ns: int = _NEVER_NS
) -> Rules:
    return Rules(
        batch=3,
        linger_ns=0,
        request_timeout_ns=request_timeout_ns,
        retry_backoff_ns=10 * MS,
        delivery_timeout_ns=delivery_timeout_ns,
    )


def silent(stream: socket.socket) -> None:
    while read_request(stream) is not None:
        pass


def hang_up(stream: socket.socket) -> None:
    assert read_request(stream) is not None


def refuse_once(stream: socket.socket) -> None:
    number = read_request(stream)
    assert number is not None
    stream.sendall((10).to_bytes(4) + number.to_bytes(4) + b"refuse")
    echo(stream)


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert not thread.is_alive()


@contextmanager
def server(*behaviours: Peer) -> Iterator[Address]:
    """Accept one connection per behaviour, one after the other."""

    def accept() -> None:
        for behaviour in behaviours:
            stream, _ = listener.accept()
            with stream:
                behaviour(stream)

    with socket.create_server(_LOCALHOST) as listener, meanwhile(accept):
        yield listener.getsockname()


def replay(
    sockets: list[socket.socket],
    due_ns: Sequence[int],
    of_client: Rules,
    *,
    connection: Sequence[int] | None = None,
) -> tuple[Observed, bool]:
    """Replay rows; return the observations, and whether connections are the same.

    Connection 0 belongs to a closed-loop client.
    """
    schedule = Schedule(
        due_ns=due_ns,
        connection=connection or [0] * len(due_ns),
        frames=[request(number) for number in range(len(due_ns))],
        answered=[True] * len(due_ns),
        read_delay_ns=[0] * len(sockets),
        rules={0: of_client},
        compose=lambda connection, number, rows: request(number),
        is_refused=lambda row, found: found.endswith(b"refuse"),
    )
    try:
        with select.epoll() as epoll:
            loop = OpenLoop(sockets, schedule, epoll)
            origin_ns = time.monotonic_ns() + 5 * MS
            observed = loop.run(origin_ns, origin_ns + 10_000 * MS)
            assert loop.drained
    finally:
        sockets[0].close()
    assert not any(observed.broken)
    return observed, loop.intact


def check_answered(observed: Observed, carriers: Sequence[int]) -> None:
    """Check that these requests carried the rows and were answered."""
    assert list(observed.carrier) == carriers
    assert observed.answers == [it.to_bytes(4) + b"answer" for it in carriers]
    assert NEVER not in observed.done_ns


def test_rows_that_come_while_an_answer_is_awaited_share_a_request() -> None:
    due_ns = [0, 5 * MS, 6 * MS, 7 * MS]

    def when_all_wait(stream: socket.socket) -> None:
        number = read_request(stream)
        assert number is not None
        time.sleep(0.1)
        answer(stream, number)
        echo(stream)

    with server(when_all_wait) as address:
        observed, intact = replay([connected(address)], due_ns, rules())
    # Closed-loop requests have numbers above those of the four rows.
    check_answered(observed, [4, 5, 5, 5])
    assert intact
    assert min(observed.sent_ns[1:]) >= observed.done_ns[0]


def test_a_request_without_an_answer_goes_over_another_connection() -> None:
    with server(silent, echo) as address:
        observed, intact = replay(
            [connected(address)], [0], rules(request_timeout_ns=50 * MS)
        )
    check_answered(observed, [2])
    assert not intact
    assert observed.sent_ns[0] - observed.offered_ns[0] >= 60 * MS


def test_a_refused_request_is_sent_again_over_its_connection() -> None:
    with server(refuse_once) as address:
        observed, intact = replay([connected(address)], [0], rules())
    check_answered(observed, [2])
    assert intact
    assert observed.sent_ns[0] - observed.offered_ns[0] >= 10 * MS


def test_a_closed_connection_is_replaced_at_once() -> None:
    with server(hang_up, hang_up, echo) as address:
        observed, intact = replay([connected(address)], [0], rules())
    check_answered(observed, [3])
    assert not intact


def test_a_client_tries_again_until_the_broker_is_back() -> None:
    def away_for_a_while() -> None:
        stream, _ = listener.accept()
        listener.close()
        with socket.socket() as again:
            # The port stays bound; otherwise a client could use it and connect to
            # itself.
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(address)
            with stream:
                hang_up(stream)
            time.sleep(0.1)
            again.listen()
            stream, _ = again.accept()
            with stream:
                echo(stream)

    with socket.create_server(_LOCALHOST) as listener:
        address = listener.getsockname()
        with meanwhile(away_for_a_while):
            observed, _ = replay([connected(address)], [0], rules())
    (carrier,) = observed.carrier
    # The first request, some with a refused connection, and the last one.
    assert carrier > 2
    check_answered(observed, [carrier])


def test_a_row_ends_with_its_delivery_timeout() -> None:
    with socket.create_server(_LOCALHOST, backlog=100) as listener:
        observed, _ = replay(
            [connected(listener.getsockname())],
            [0],
            rules(request_timeout_ns=30 * MS, delivery_timeout_ns=100 * MS),
        )
    assert list(observed.done_ns) == [NEVER]
    assert observed.answers == [None]
    # An attempt takes at least 40 ms, and none begins after 100 ms.
    assert observed.carrier[0] <= 3


def test_a_peer_that_accepts_no_connection_delays_no_other() -> None:
    """The peer's backlog holds the first connection; the second never completes."""
    due_ns = [number * 5 * MS for number in range(60)]
    with socket.create_server(_LOCALHOST, backlog=0) as full, peers(echo) as others:
        observed, _ = replay(
            [connected(full.getsockname()), *others],
            due_ns,
            rules(request_timeout_ns=50 * MS, delivery_timeout_ns=200 * MS),
            connection=[0] + [1] * 59,
        )
    assert observed.done_ns[0] == NEVER
    expected = [number.to_bytes(4) + b"answer" for number in range(1, 60)]
    assert observed.answers[1:] == expected
