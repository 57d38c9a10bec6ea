"""The bytes of a trace's requests, encoded before the run.

A frame consists of 12 bytes of its own (size, API, version, correlation id) and a rest
that all requests of a connection share; its PRODUCEs, for example, write to the same
partitions. Requests are encoded one by one only if an API declares that every request
differs (a controller's, each with the next leader epoch).

``correlation_id`` is the request's index in the trace, by which records are joined.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeAlias

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.records.batch_records import new_batch
from experiments.design.request_shapes import MetadataShape, Occasion, ProduceShape
from experiments.design.requests import Request
from experiments.design.workload import Traffic, Workload
from experiments.load import load_requests as requests
from experiments.load.load_requests import HEAD_BYTES, SetupRequest
from experiments.load.senders import Sender, senders

# Above every epoch of the broker's own controller at start-up.
CONTROLLER_EPOCH: Final = 1_000
# Smaller frames are sent in one piece; joining larger ones would copy too much.
_JOINED_BYTES: Final = 2048
_FILL_RECORD_BYTES: Final = 1024
# Kept frames of a closed loop, by connection and number of rows.
_FRAMES_KEPT: Final = 2048

# A new topic may have no leader yet (KRaft brokers learn of it from a log), and a new
# group no coordinator.
SETTLING: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition.value,
        ErrorCode.leader_not_available.value,
        ErrorCode.not_leader_or_follower.value,
        ErrorCode.coordinator_load_in_progress.value,
        ErrorCode.coordinator_not_available.value,
        ErrorCode.not_coordinator.value,
    }
)
SETTLING_PAUSE_S: Final = 0.05

Frame: TypeAlias = Sequence[bytes]


class Place(NamedTuple):
    """The place of a request: its entry, its connection, its number there from 0."""

    traffic: str
    connection: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The broker under load, as controller requests must name it.

    ``controller_epoch`` must not be below the broker's own. A leader epoch must
    increase with every request, so a repeated load begins above the used epochs.
    """

    broker_id: int
    host: str
    port: int
    controller_epoch: int = CONTROLLER_EPOCH
    leader_epochs_used: int = 0


# Live brokers have this host, so that frames have the sizes of their trace.
ANY_NODE: Final = Node(broker_id=0, host="127.0.0.1", port=0)


def api_key(request: Request) -> int:
    """Return the API key of a request."""
    return int(request.declared.key)


def topic_of(entry: str) -> str:
    """Return the topic of an entry's requests, by the entry's name."""
    return f"load-{entry}"


def topics(workload: Workload) -> dict[str, int]:
    """Return the topics that the load needs, with their numbers of partitions."""
    needed = {
        topic_of(entry.name): entry.request.shape().partitions_needed(
            len(workload.connections_of(entry))
        )
        for entry in workload.traffic
    }
    return {topic: partitions for topic, partitions in needed.items() if partitions}


def size_bytes(workload: Workload, entry: Traffic) -> int:
    """Return the size of each of an entry's frames, which are equally long."""
    sender = senders(workload)[workload.connections_of(entry).start]
    make = _maker(entry, sender, ANY_NODE, 0)
    return sum(map(len, make(0, 0)))


def frames(
    places: Iterable[Place], workload: Workload, node: Node, timestamp_ms: int
) -> list[Frame]:
    """Return a trace's requests, each as the pieces of its frame.

    Rows of a closed loop have no pieces here; `composer` creates their frames.
    """
    of = senders(workload)
    makers = {
        (entry.name, number): _maker(entry, of[number], node, timestamp_ms)
        for entry in workload.traffic
        if entry.client is None
        for number in workload.connections_of(entry)
    }
    nothing: Frame = ()
    return [
        makers[place[:2]](number, place.sequence) if place[:2] in makers else nothing
        for number, place in enumerate(places)
    ]


Compose: TypeAlias = Callable[[int, int, int], Frame]


def composer(workload: Workload, node: Node, timestamp_ms: int) -> Compose:
    """Return a function that creates a frame of (connection, correlation id, rows).

    For connections in a closed loop, whose requests carry several rows of the trace.
    """
    of = senders(workload)

    @lru_cache(maxsize=_FRAMES_KEPT)
    def maker(connection: int, rows: int) -> Maker:
        sender = of[connection]
        return _maker(sender.traffic, sender, node, timestamp_ms, rows)

    return lambda connection, number, rows: maker(connection, rows)(number, 0)


def setup_requests(workload: Workload, timestamp_ms: int) -> list[SetupRequest]:
    """Return the requests that prepare a broker for a workload, in order.

    Topics are created and filled; METADATA comes last, and `node_of` reads its answer.
    `preparations` follow.
    """
    wanted = topics(workload)
    ask = MetadataShape().body(_occasion("", 0, ANY_NODE, 0))
    return [
        *([requests.create_topics(wanted)] if wanted else []),
        *_fills(workload, timestamp_ms),
        SetupRequest(ApiKey.METADATA, ask),
    ]


def preparations(workload: Workload, node: Node) -> list[SetupRequest]:
    """Return the requests that connections need before their first ones, in order."""
    of = senders(workload)
    return [
        SetupRequest(body.api_key, body)
        for entry in workload.traffic
        for number in workload.connections_of(entry)
        for body in entry.request.shape().preparation(
            _occasion(entry.name, of[number].position, node, 0)
        )
    ]


def node_of(metadata_answer: bytes) -> Node:
    """Return the broker as controller requests must name it."""
    answer = requests.decoded(ApiKey.METADATA, metadata_answer)
    assert answer.brokers, "METADATA names no broker"
    broker = answer.brokers[0]
    return Node(broker_id=broker.node_id, host=broker.host, port=broker.port)


def _fills(workload: Workload, timestamp_ms: int) -> Iterable[SetupRequest]:
    """Yield requests that write the records to be read by the load."""
    for entry in workload.traffic:
        shape = entry.request.shape()
        if shape.filled_bytes:
            count = shape.partitions_needed(entry.connections)
            fill = ProduceShape(
                partitions=count,
                topic_partitions=count,
                records=1 + shape.filled_bytes // _FILL_RECORD_BYTES,
                record_bytes=_FILL_RECORD_BYTES,
            )
            on = _occasion(entry.name, 0, ANY_NODE, timestamp_ms)
            yield SetupRequest(ApiKey.PRODUCE, fill.body(on))


Maker: TypeAlias = Callable[[int, int], Frame]


def _maker(
    entry: Traffic, sender: Sender, node: Node, timestamp_ms: int, rows: int = 1
) -> Maker:
    """Return a function that creates a frame of (correlation id, sequence number).

    The frame is a request of an entry on a connection that carries these many rows.
    """
    key, shape = api_key(entry.request), entry.request.shape().carrying(rows)

    def encoded(number: int, sequence: int) -> bytes:
        on = _occasion(entry.name, sender.position, node, timestamp_ms, sequence)
        return requests.encode(key, number, sender.client_id, shape.body(on))

    if shape.every_request_differs:
        return lambda number, sequence: (encoded(number, sequence),)
    whole = encoded(0, 0)
    head, rest = whole[: HEAD_BYTES - 4], whole[HEAD_BYTES:]
    joined = len(rest) < _JOINED_BYTES

    def make(number: int, _: int) -> Frame:
        own = head + number.to_bytes(4)
        return (own + rest,) if joined else (own, rest)

    return make


def _occasion(
    entry: str, position: int, node: Node, timestamp_ms: int, sequence: int = 0
) -> Occasion:
    return Occasion(
        topic=topic_of(entry),
        position=position,
        broker_id=node.broker_id,
        host=node.host,
        port=node.port,
        controller_epoch=node.controller_epoch,
        leader_epoch=node.leader_epochs_used + sequence + 1,
        batch=partial(_batch, entry, timestamp_ms),
    )


def _batch(entry: str, timestamp_ms: int, records: int, record_bytes: int) -> bytes:
    """Return a batch of incompressible records, the same in every run."""
    rng = random.Random(entry)
    return new_batch(
        [(timestamp_ms, None, rng.randbytes(record_bytes)) for _ in range(records)]
    )
