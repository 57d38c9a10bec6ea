"""No connection waits long for another connection's largest request.

A wait is the CPU time of the broker's thread between sending a small request and
receiving its response. Other load on the machine makes a wait longer, but not its CPU
time. The small request is repeated while the large one is served.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from tests.fuzzing.frames import OF_CLIENTS
from tests.fuzzing.largest import Largest, largest
from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.live

ITEMS = 20_000
WAIT_MAX_MS = 50.0
# A longer wait is measured again: the machine may have taken the CPU from the client,
# but not from the broker, before the client read the clock.
ATTEMPTS = 3
ANSWER_S = 5.0
# Time for work on a request after its response.
AFTERWARDS_S = 0.05
SMALL = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, auto_create_topics_enable="false")
    yield process
    process.close()


def cpu_ms(broker: BrokerProcess) -> float:
    """Return the CPU time of the broker's thread."""
    path = Path(f"/proc/{broker.pid}/task/{broker.pid}/schedstat")
    return int(path.read_text().split()[0]) / 1e6


def connect(broker: BrokerProcess) -> socket.socket:
    """Open a connection that sends data at once (TCP_NODELAY)."""
    connection = socket.create_connection(("127.0.0.1", broker.port), ANSWER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket) -> None:
    """Receive a response, or the end of the connection."""
    with connection.makefile("rb") as stream:
        head = stream.read(4)
        if len(head) == 4:
            stream.read(*struct.unpack(">i", head))


def longest_wait_ms(broker: BrokerProcess, sent: Largest) -> float:
    """Return the longest wait of a small request while a large one is served."""
    answered = threading.Event()

    def send() -> None:
        # The broker closes the connection of some requests; others wait for members.
        with contextlib.suppress(OSError), connect(broker) as large:
            large.sendall(sent.frame)
            receive(large)
        answered.set()

    longest_ms = 0.0
    with connect(broker) as small:
        small.sendall(SMALL)
        receive(small)
        sender = threading.Thread(target=send)
        sender.start()
        end_s = None
        while end_s is None or time.monotonic() < end_s:
            if end_s is None and answered.is_set():
                end_s = time.monotonic() + AFTERWARDS_S
            before_ms = cpu_ms(broker)
            small.sendall(SMALL)
            receive(small)
            longest_ms = max(longest_ms, cpu_ms(broker) - before_ms)
            time.sleep(0.001)
        sender.join()
    return longest_ms


def largest_of(key: ApiKey) -> Iterator[Largest]:
    """Return the largest requests in the newest version of an API."""
    return largest(key, APIS[key].served[-1], ITEMS)


def is_within_bound(broker: BrokerProcess, sent: Largest) -> bool:
    """Return whether the waits of other connections remain within the bound."""
    return any(
        longest_wait_ms(broker, sent) <= WAIT_MAX_MS for attempt in range(ATTEMPTS)
    )


def test_no_request_waits_for_a_large_fetch(broker: BrokerProcess) -> None:
    assert is_within_bound(broker, next(largest_of(ApiKey.FETCH)))


@pytest.mark.slow
def test_no_request_waits_for_a_largest_request(broker: BrokerProcess) -> None:
    beyond = [
        str(sent)
        for key in OF_CLIENTS
        for sent in largest_of(key)
        if not is_within_bound(broker, sent)
    ]
    assert beyond == []


def test_without_time_slices_the_test_finds_a_wait(tmp_path: Path) -> None:
    """FIFO then serves the large request to its end, as a single handler would."""
    process = BrokerProcess(tmp_path, doorkeeper_slice_ms="0")
    assert longest_wait_ms(process, next(largest_of(ApiKey.FETCH))) > WAIT_MAX_MS
    process.close()
