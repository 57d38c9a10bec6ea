"""PRODUCE requests of one record, in a closed loop or at a fixed rate.

The client is as thin as Python allows, one thread around one epoll object, so that the
broker's CPU limits the rate. The error codes of the answers are checked.
"""

from __future__ import annotations

import gc
import random
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate, cycle

from bench.brokers import Running
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from broker.protocol.records.batch_records import new_batch
from experiments.load.exchange import NEVER, Schedule
from experiments.load.load_requests import HEAD_BYTES, encode
from experiments.load.openloop import OpenLoop

TOPIC = "bench"
# Values of acks: the leader only, or all replicas in sync.
LEADER, ALL = 1, -1
_PATIENCE_S = 5.0
_DRAIN_NS = 5_000_000_000
_SEED = 4453
# Outstanding requests per connection of a client that saturates the broker.
_OUTSTANDING = 32


def closed_loop(
    broker: Running, connections: int, seconds: float, acks: int = LEADER
) -> tuple[float, float]:
    """Keep one request outstanding on each connection.

    :returns: requests per second, and per second of the broker's CPU.
    """
    frame = produce_frame(acks)
    poller = select.epoll()
    with _connected(broker, connections) as sockets:
        clients = {each.fileno(): each for each in sockets}
        for client in sockets:
            poller.register(client.fileno(), select.EPOLLIN)
            client.sendall(frame)
        return _drive(broker, poller, clients, frame, seconds)


def _drive(
    broker: Running,
    poller: select.epoll,
    clients: dict[int, socket.socket],
    frame: bytes,
    seconds: float,
) -> tuple[float, float]:
    answered = 0
    began_cpu_s, began_s = broker.cpu_s(), time.perf_counter()
    now_s = began_s
    while now_s - began_s < seconds:
        events = poller.poll(_PATIENCE_S)
        assert events, f"{broker.name} does not answer"
        for descriptor, _ in events:
            check_produced(clients[descriptor].recv(4096))
            clients[descriptor].send(frame)
            answered += 1
        now_s = time.perf_counter()
    return (
        answered / (now_s - began_s),
        answered / (broker.cpu_s() - began_cpu_s),
    )


def saturated(
    broker: Running, connections: int, seconds: float, partitions: int = 1
) -> tuple[float, float]:
    """Keep requests waiting on every connection, so that only the broker's CPU limits.

    The client replaces half of the outstanding requests at a time, with one system
    call. With one request at a time (`closed_loop`) the client sleeps and wakes, at the
    broker's cost, as often as the speeds of both happen to allow.

    :returns: requests per second, and per second of the broker's CPU.
    """
    frame = produce_frame(partitions=partitions)
    poller = select.epoll()
    with _connected(broker, connections) as sockets:
        clients = {each.fileno(): each for each in sockets}
        unread = dict.fromkeys(clients, 0)
        for client in sockets:
            client.sendall(frame)
            answer = client.recv(4096)
            check_produced(answer)
            poller.register(client.fileno(), select.EPOLLIN)
            client.sendall(frame * _OUTSTANDING)
        answered = 0
        began_cpu_s, began_s = broker.cpu_s(), time.perf_counter()
        now_s = began_s
        while now_s - began_s < seconds:
            events = poller.poll(_PATIENCE_S)
            assert events, f"{broker.name} does not answer"
            for descriptor, _ in events:
                unread[descriptor] += len(clients[descriptor].recv(1 << 16))
                count = unread[descriptor] // len(answer)
                if 2 * count >= _OUTSTANDING:
                    unread[descriptor] -= count * len(answer)
                    clients[descriptor].sendall(frame * count)
                    answered += count
            now_s = time.perf_counter()
        return (
            answered / (now_s - began_s),
            answered / (broker.cpu_s() - began_cpu_s),
        )


def p99_ms(
    broker: Running,
    rate_per_s: float,
    connections: int,
    seconds: float,
    acks: int = LEADER,
    kinds: Sequence[bytes] = (),
) -> float:
    """Return the p99 of the time from a request's intended instant to its answer.

    The requests are the frames of ``kinds`` in turn, by default those of Produce.

    An open loop: requests form a Poisson process of ``rate_per_s``, independent of the
    answers, so every delay of the broker counts.
    """
    rng = random.Random(_SEED)
    count = int(rate_per_s * seconds)
    gaps = (rng.expovariate(rate_per_s) for _ in range(count))
    due_ns = [round(at_s * 1e9) for at_s in accumulate(gaps)]
    frames = [
        (frame[: HEAD_BYTES - 4] + number.to_bytes(4), frame[HEAD_BYTES:])
        for number, frame in zip(
            range(count), cycle(kinds or [produce_frame(acks)]), strict=False
        )
    ]
    schedule = Schedule(
        due_ns=due_ns,
        connection=[number % connections for number in range(count)],
        frames=frames,
        answered=[True] * count,
        read_delay_ns=[0] * connections,
    )
    with _connected(broker, connections) as sockets:
        for each in sockets:
            each.setblocking(False)
        loop = OpenLoop(sockets, schedule, select.epoll())
        gc.collect()
        gc.disable()
        try:
            origin_ns = time.monotonic_ns()
            observed = loop.run(origin_ns, origin_ns + due_ns[-1] + _DRAIN_NS)
        finally:
            gc.enable()
    assert NEVER not in observed.done_ns, f"{broker.name} left requests unanswered"
    assert not any(observed.broken), f"{broker.name} closed a connection"
    waits_ns = sorted(
        done_ns - origin_ns - due
        for done_ns, due in zip(observed.done_ns, due_ns, strict=True)
    )
    return waits_ns[int(0.99 * count)] / 1e6


def check_produced(answer: bytes) -> None:
    """Raise unless the answer is whole and without an error.

    The error code follows the topic's name and the partition index.
    """
    error = answer[22 + len(TOPIC) : 24 + len(TOPIC)]
    if error != b"\0\0":
        raise RuntimeError(f"the broker answered {answer!r}")


def produce_frame(acks: int = LEADER, partitions: int = 1) -> bytes:
    """Return the frame of a Produce of one record to each partition of `TOPIC`."""
    batch = new_batch([(time.time_ns() // 1_000_000, None, b"x" * 100)])
    body = ProduceRequest(
        acks=acks,
        timeout=timedelta(seconds=30),
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                partition_data=[
                    PartitionProduceData(index=number, records=batch)
                    for number in range(partitions)
                ],
            )
        ],
    )
    return encode(ApiKey.PRODUCE, 0, "bench", body)


def fetch_frame() -> bytes:
    """Return the frame of a Fetch of the first records of `TOPIC`."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    body = FetchRequest(
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=1_000,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    return encode(ApiKey.FETCH, 0, "bench", body)


@contextmanager
def _connected(broker: Running, count: int) -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            client = broker.connect()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets.append(client)
        yield sockets
    finally:
        for client in sockets:
            client.close()
