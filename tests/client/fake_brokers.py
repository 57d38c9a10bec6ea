"""Fake brokers that answer from a table, for errors that a real broker does not give.

Each listens on a port of a fictitious host and exchanges real frames. A partition is a
list of batches with a second, short implementation of a broker's sequence number
checks. A function in ``faults`` may return an error code, which takes precedence.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import memory_stream_pair

from broker.client.producer.producer import open_producer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.records.batch import BatchHeader, parse_header
from broker.protocol.wire.codec import decode, encode
from broker.protocol.wire.header import parse_request_header

Row = SimpleNamespace
NO_TIME = timedelta(0)
VERSIONS = {
    ApiKey.PRODUCE: (3, 11),
    ApiKey.METADATA: (0, 12),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
}
Fault = Callable[[int, BatchHeader], ErrorCode | None]


class FakePartition:
    """A log with the leader's producer state."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, BatchHeader]] = []
        self.end = 0
        self.producers: dict[int, list[BatchHeader]] = {}

    def append(self, header: BatchHeader) -> tuple[ErrorCode, int]:
        """Append a batch by ``ProducerStateManager`` rules; return (code, offset)."""
        last = self.producers.get(header.producer_id, [])
        for known in last[-5:]:
            if known[9:] == header[9:]:
                return ErrorCode.none, known.base_offset
        if last and header.producer_epoch < last[-1].producer_epoch:
            return ErrorCode.invalid_producer_epoch, -1
        if last and header.producer_epoch == last[-1].producer_epoch:
            follows = header.base_sequence == last[-1].last_sequence + 1
        else:
            follows = header.base_sequence == 0 or not last
        if not follows:
            return ErrorCode.out_of_order_sequence_number, -1
        placed = header._replace(base_offset=self.end)
        self.producers.setdefault(header.producer_id, []).append(placed)
        self.batches.append((self.end, placed))
        self.end += header.record_count
        return ErrorCode.none, placed.base_offset

    @property
    def timestamps(self) -> list[int]:
        """Return the base timestamps of the batches, by which tests identify them."""
        return [header.base_timestamp for _, header in self.batches]


class FakeCluster:
    """Several brokers and one topic ``t``; ``leaders`` has each partition's leader."""

    def __init__(self, nursery: trio.Nursery, leaders: list[int]) -> None:
        self._nursery = nursery
        self.leaders = leaders
        self.epochs = [0] * len(leaders)
        self.partitions = [FakePartition() for _ in leaders]
        self.faults: list[Fault] = []
        self.calls: dict[ApiKey, int] = defaultdict(int)
        self.produced: list[tuple[int, int, BatchHeader]] = []
        self.producer_ids = iter(range(1_000, 2_000))
        # Changes the bytes of a response before they are sent.
        self.tamper: Callable[[ApiKey, bytes], bytes] = lambda key, frame: frame
        self.delay_s = 0.001
        # Answer METADATA with an empty response.
        self.told_nothing = False

    async def connect(self, host: str, port: int) -> Any:
        """Connect to broker ``port``."""
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._serve, port, theirs)
        return ours

    async def _serve(self, node: int, stream: Any) -> None:
        received = b""
        try:
            while True:
                chunk = await stream.receive_some()
                if not chunk:
                    break
                received += chunk
                while len(received) >= 4:
                    end = 4 + int.from_bytes(received[:4], "big")
                    if len(received) < end:
                        break
                    frame, received = received[4:end], received[end:]
                    await trio.sleep(self.delay_s)
                    answer = self._answer(node, frame)
                    if answer is not None:
                        await stream.send_all(answer)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.aclose()

    def _answer(self, node: int, frame: bytes) -> bytes | None:
        header = parse_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        self.calls[key] += 1
        request = decode(key, version, frame, header.body_offset)
        answer = getattr(self, f"_{key.name.lower()}")(node, request)
        if answer is None:
            return None
        encoded = encode(key, version, header.correlation_id, answer)
        return self.tamper(key, encoded)

    def _api_versions(self, node: int, request: Any) -> Any:
        keys = [
            Row(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in VERSIONS.items()
        ]
        return Row(
            error_code=ErrorCode.none,
            api_keys=keys,
            throttle_time=NO_TIME,
            supported_features=(),
            finalized_features_epoch=-1,
            finalized_features=(),
            zk_migration_ready=False,
        )

    def _metadata(self, node: int, request: Any) -> Any:
        brokers = [] if self.told_nothing else sorted({*self.leaders, node} - {-1})
        partitions = [
            Row(
                error_code=ErrorCode.none,
                partition_index=number,
                leader_id=leader,
                leader_epoch=self.epochs[number],
                replica_nodes=(),
                isr_nodes=(),
                offline_replicas=(),
            )
            for number, leader in enumerate(self.leaders)
        ]
        topic = Row(
            error_code=ErrorCode.none,
            name="t",
            topic_id=None,
            is_internal=False,
            partitions=partitions,
            topic_authorized_operations=-(2**31),
        )
        return Row(
            throttle_time=NO_TIME,
            brokers=[Row(node_id=n, host="fake", port=n, rack=None) for n in brokers],
            cluster_id=None,
            controller_id=-1,
            topics=[topic] if brokers else [],
        )

    def _init_producer_id(self, node: int, request: Any) -> Any:
        return Row(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            producer_id=next(self.producer_ids),
            producer_epoch=0,
        )

    def _produce(self, node: int, request: Any) -> Any:
        partitions = []
        for each in request.topic_data[0].partition_data:
            code, offset = self._append(node, each.index, bytes(each.records))
            partitions.append(
                Row(
                    index=each.index,
                    error_code=code,
                    base_offset=offset,
                    log_append_time=None,
                    log_start_offset=0,
                    record_errors=(),
                    error_message=None,
                    current_leader=Row(leader_id=-1, leader_epoch=-1),
                )
            )
        if request.acks == 0:
            return None
        return Row(
            responses=[Row(name="t", partition_responses=partitions)],
            throttle_time=NO_TIME,
            node_endpoints=(),
        )

    def _append(self, node: int, index: int, records: bytes) -> tuple[ErrorCode, int]:
        header = parse_header(records)
        self.produced.append((node, index, header))
        if self.leaders[index] != node:
            return ErrorCode.not_leader_or_follower, -1
        for fault in self.faults:
            code = fault(index, header)
            if code is not None:
                return code, -1
        return self.partitions[index].append(header)


def producer(cluster: FakeCluster, **settings: Any) -> Any:
    """Open a producer that sends every record in its own batch."""
    options = {"batch_size": 0, "linger_ms": 0, "retry_backoff_ms": 10, **settings}
    return open_producer(
        "fake:1", connect=cluster.connect, rng=random.Random(7), **options
    )


async def send_all(opened: Any, count: int, partition: int = 0) -> list[Any]:
    receipts = [
        await opened.send("t", b"x", partition=partition, timestamp_ms=number)
        for number in range(count)
    ]
    return [await receipt.wait() for receipt in receipts]
