"""Small PRODUCE requests and start-up, beside tansu, on the same pinned CPUs."""

from __future__ import annotations

import os
import select
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import crc32c

from experiments.bench.brokers import Running, doorkeeper, tansu
from experiments.bench.row import Row

_SECONDS = 3.0
_ROUNDS = 3
_TOPIC = "bench"


def rows() -> Iterator[Row]:
    """Compare requests/s at 1 and 16 connections, and time to the first answer."""
    rates: dict[tuple[str, int], list[float]] = {}
    starts: dict[str, list[float]] = {"doorkeeper": [], "tansu": []}
    brokers: tuple[Callable[[], AbstractContextManager[Running]], ...]
    brokers = (doorkeeper, tansu)
    for _ in range(_ROUNDS):
        for start in brokers:
            with start() as broker:
                starts[broker.name].append(broker.start_s)
                _create_topic(broker.port)
                for connections in (1, 16):
                    rate = _requests_per_s(broker.port, connections)
                    rates.setdefault((broker.name, connections), []).append(rate)
    for connections in (1, 16):
        yield _row(
            f"PRODUCE of one record, acks=1, {connections} connections",
            "requests/s",
            rates["doorkeeper", connections],
            rates["tansu", connections],
            more_is_better=True,
        )
    yield _row(
        "start to first answer",
        "s",
        starts["doorkeeper"],
        starts["tansu"],
        more_is_better=False,
    )


def _row(
    name: str,
    unit: str,
    ours: list[float],
    theirs: list[float],
    *,
    more_is_better: bool,
) -> Row:
    pairs = zip(ours, theirs, strict=True)
    ratios = [a / b if more_is_better else b / a for a, b in pairs]
    return Row(
        name=name,
        unit=unit,
        ours=statistics.median(ours),
        peer="tansu (memory storage)",
        theirs=statistics.median(theirs),
        ratio=statistics.median(ratios),
    )


def _create_topic(port: int) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    for created in admin.create_topics([NewTopic(_TOPIC, 1, 1)]).values():
        created.result(timeout=20)


def _requests_per_s(port: int, connections: int) -> float:
    """Keep one request outstanding on each connection for a few seconds."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    frame = _produce_frame()
    poller = select.epoll()
    clients: dict[int, socket.socket] = {}
    try:
        for _ in range(connections):
            client = socket.create_connection(("127.0.0.1", port))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            clients[client.fileno()] = client
            poller.register(client.fileno(), select.EPOLLIN)
            client.sendall(frame)
        return _drive(poller, clients, frame)
    finally:
        poller.close()
        for client in clients.values():
            client.close()
        os.sched_setaffinity(0, before)


def _drive(
    poller: select.epoll, clients: dict[int, socket.socket], frame: bytes
) -> float:
    answered = 0
    began_s = time.perf_counter()
    now_s = began_s
    while now_s - began_s < _SECONDS:
        for fd, _ in poller.poll(5.0):
            answer = clients[fd].recv(4096)
            # Behind the topic's name and the partition index stands its error code.
            error = answer[22 + len(_TOPIC) : 24 + len(_TOPIC)]
            if error != b"\0\0":
                raise RuntimeError(f"the broker answered {answer!r}")
            clients[fd].send(frame)
            answered += 1
        now_s = time.perf_counter()
    return answered / (now_s - began_s)


def _produce_frame(value: bytes = b"x" * 100) -> bytes:
    """Encode a PRODUCE v8 request of one record, acks=1."""
    batch = _record_batch(value)
    topic = _TOPIC.encode()
    body = (
        struct.pack(">hhih5s", 0, 8, 7, 5, b"bench")
        + struct.pack(">hhi", -1, 1, 30_000)
        + struct.pack(">ih", 1, len(topic))
        + topic
        + struct.pack(">iii", 1, 0, len(batch))
        + batch
    )
    return struct.pack(">i", len(body)) + body


def _record_batch(value: bytes) -> bytes:
    """Encode a v2 batch of one record without key, as Kafka's clients do."""
    record = b"\0\0\0\x01" + _varint(len(value)) + value + b"\0"
    record = _varint(len(record)) + record
    now_ms = time.time_ns() // 1_000_000
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    crc = crc32c.crc32c(checked)
    rest = struct.pack(">iBI", 0, 2, crc) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag > 127:
        encoded.append(zigzag & 127 | 128)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)
