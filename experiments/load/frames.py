"""The bytes of a trace's requests, encoded before the run.

A frame is 12 bytes of its own (size, API, version, correlation id) and a rest that
requests share: all PRODUCEs to the same partitions send the same bytes. Only
LEADER_AND_ISR and UPDATE_METADATA are encoded one by one, because each raises the
leader epoch of partitions that its connection alone owns; the order of a connection is
kept by every scheduler, so the epochs arrive rising and every request changes state.
The broker stays the leader, which keeps the rest of the load valid.

``correlation_id`` is the request's index in the trace: how its records are joined.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from experiments.design.workload import (
    Fetch,
    LeaderAndIsr,
    ListOffsets,
    Metadata,
    Produce,
    RequestShape,
    Traffic,
    UpdateMetadata,
    Workload,
)
from experiments.load import wire
from experiments.load.senders import Sender, senders

# Above every epoch that a broker's own controller will have reached at start-up.
CONTROLLER_EPOCH = 1_000
_API_KEYS = {
    "produce": wire.PRODUCE,
    "fetch": wire.FETCH,
    "metadata": wire.METADATA,
    "list-offsets": wire.LIST_OFFSETS,
    "leader-and-isr": wire.LEADER_AND_ISR,
    "update-metadata": wire.UPDATE_METADATA,
}
# Frames below this are sent in one piece; joining longer ones would copy too much.
_JOINED_BYTES = 2048

Frame = Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The broker under load, as controller requests have to name it.

    ``controller_epoch`` must not be below the broker's own; a leader epoch must rise
    with every request, so a load that is replayed again begins above the epochs used.
    """

    broker_id: int
    endpoint: wire.Endpoint
    controller_epoch: int = CONTROLLER_EPOCH
    leader_epochs_used: int = 0


# Every live broker listens here, so that frames are as long as their trace says.
ANY_NODE = Node(broker_id=0, endpoint=wire.Endpoint("127.0.0.1", 0, "PLAINTEXT"))


def api_key(request: RequestShape) -> int:
    """Return the API key of a request."""
    return _API_KEYS[request.api]


def topic_of(entry: Traffic) -> str:
    """Return the topic that an entry's requests are about."""
    return f"load-{entry.name}"


def topics(workload: Workload) -> list[tuple[str, int]]:
    """Return the topics that the load needs, with their numbers of partitions."""
    found = []
    for entry in workload.traffic:
        match entry.request:
            case Produce():
                found.append((topic_of(entry), entry.request.topic_partitions))
            case Fetch() | ListOffsets():
                found.append((topic_of(entry), entry.request.partitions))
            case LeaderAndIsr() | UpdateMetadata():
                owned = entry.request.partitions * entry.connections
                found.append((topic_of(entry), owned))
            case Metadata():
                pass
    return found


def size_bytes(workload: Workload, entry: Traffic) -> int:
    """Return the size of each of an entry's frames: they are all equally long."""
    sender = next(each for each in senders(workload) if each.traffic == entry)
    make = _maker(sender, ANY_NODE, 0)
    return sum(map(len, make(0, 0)))


def frames(
    places: Iterable[tuple[int, int]],
    workload: Workload,
    node: Node,
    timestamp_ms: int,
) -> list[Frame]:
    """Return a trace's requests, each as the pieces of its frame.

    ``places`` are the trace's (connection, sequence on it), row by row.
    """
    makers = [_maker(each, node, timestamp_ms) for each in senders(workload)]
    return [
        makers[connection](number, sequence)
        for number, (connection, sequence) in enumerate(places)
    ]


def fill(workload: Workload, timestamp_ms: int) -> list[tuple[int, bytes]]:
    """Return set-up requests, (api key, body), that put records where FETCH reads."""
    bodies = []
    for entry in workload.traffic:
        match entry.request:
            case Fetch(partitions=partitions, partition_max_bytes=wanted):
                records = 1 + wanted // _FILL_RECORD_BYTES
                batch = _batch(entry, records, _FILL_RECORD_BYTES, timestamp_ms)
                pairs = [(index, batch) for index in range(partitions)]
                body = wire.produce(topic_of(entry), pairs, 1)
                bodies.append((wire.PRODUCE, body))
            case _:
                pass
    return bodies


_FILL_RECORD_BYTES = 1024
Maker = Callable[[int, int], Frame]


def _maker(sender: Sender, node: Node, timestamp_ms: int) -> Maker:
    """Return what makes a frame of (correlation id, sequence on the connection)."""
    entry = sender.traffic
    match entry.request:
        case LeaderAndIsr() | UpdateMetadata():
            return _controller(sender, node)
        case Produce():
            body = _produce(sender, entry.request, timestamp_ms)
        case Fetch():
            body = _fetch(entry, entry.request)
        case ListOffsets():
            owned = range(entry.request.partitions)
            body = wire.list_offsets(topic_of(entry), owned)
        case Metadata():
            body = wire.metadata()
    key = api_key(entry.request)
    rest = wire.rest(sender.client_id, body)
    return lambda number, _: _frame(key, number, rest)


def _frame(key: int, number: int, rest: bytes) -> Frame:
    head = wire.head(key, number, len(rest))
    return (head + rest,) if len(rest) < _JOINED_BYTES else (head, rest)


def _produce(sender: Sender, request: Produce, timestamp_ms: int) -> bytes:
    """Spread the entry's connections evenly over the topic's partitions."""
    entry = sender.traffic
    batch = _batch(entry, request.records, request.record_bytes, timestamp_ms)
    first = sender.position * request.partitions
    pairs = [
        ((first + offset) % request.topic_partitions, batch)
        for offset in range(request.partitions)
    ]
    return wire.produce(topic_of(entry), sorted(pairs), request.acks)


def _fetch(entry: Traffic, request: Fetch) -> bytes:
    return wire.fetch(
        topic_of(entry),
        range(request.partitions),
        partition_max_bytes=request.partition_max_bytes,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
    )


def _controller(sender: Sender, node: Node) -> Maker:
    """Return what makes a controller request with the next leader epoch."""
    request = sender.traffic.request
    assert isinstance(request, LeaderAndIsr | UpdateMetadata)
    owned = range(
        sender.position * request.partitions, (sender.position + 1) * request.partitions
    )
    key = api_key(request)

    def make(number: int, sequence: int) -> Frame:
        state = wire.Leadership(
            topic=topic_of(sender.traffic),
            partitions=owned,
            controller_epoch=node.controller_epoch,
            leader_epoch=node.leader_epochs_used + sequence + 1,
            broker_id=node.broker_id,
        )
        if isinstance(request, LeaderAndIsr):
            body = wire.leader_and_isr(state, node.endpoint)
        else:
            body = wire.update_metadata(state, node.endpoint)
        return _frame(key, number, wire.rest(sender.client_id, body))

    return make


def _batch(entry: Traffic, records: int, record_bytes: int, timestamp_ms: int) -> bytes:
    """Return a batch of incompressible records, the same in every run."""
    rng = random.Random(entry.name)
    values = [rng.randbytes(record_bytes) for _ in range(records)]
    return wire.record_batch(values, timestamp_ms)
