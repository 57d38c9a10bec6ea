"""The clients of a cluster: producers that follow leaders, and clients of metadata.

They implement the rules of Kafka's clients that matter in an election. A producer has
one request in flight, sends it to the leader that it knows, and retries after a
backoff. After NOT_LEADER_OR_FOLLOWER, or a time-out, it first asks some broker for the
leader. After a time-out its connection is closed, because the answer may still arrive.

Each client is a task. Requests that come due while it waits are queued in the client,
like records in a producer's accumulator. They are not sent as one batch, because the
trace defines each request. Every attempt has a unique record key, which identifies its
records in the final log.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.message import RequestMessage, ResponseMessage
from broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from broker.protocol.records.batch_records import new_batch
from experiments.cluster.attempt_log import AttemptLog, Try
from experiments.cluster.broker_connection import BrokerConnection
from experiments.cluster.cluster_under_test import LOST, ClusterUnderTest
from experiments.design.cluster_config import Cluster
from experiments.load import load_requests as requests
from experiments.load.closed_loop import RETRIABLE
from experiments.load.frames import topic_of
from experiments.load.senders import Sender
from experiments.records.attempts import NO_REQUEST

A = TypeVar("A", bound=ResponseMessage)

_NS, _NS_PER_MS = 1_000_000_000, 1_000_000
KEY_BYTES = 8


class Client(ABC):
    """One connection of a traffic entry: sends the due requests in order."""

    def __init__(
        self,
        sender: Sender,
        under_test: ClusterUnderTest,
        attempt_log: AttemptLog,
        cluster: Cluster,
        seed: str,
    ) -> None:
        self._under_test = under_test
        self._attempt_log = attempt_log
        self._cluster = cluster
        self._client_id = sender.client_id
        self._rng = random.Random(f"{seed}/{sender.number}")
        self._wires: dict[int, BrokerConnection] = {}
        self._due: deque[tuple[int, int]] = deque()
        self._came = trio.Event()
        self._idle = trio.Event()
        self._idle.set()

    def offer(self, request_id: int, intended_ns: int) -> None:
        """Queue a request; it is sent after those before it."""
        if self._idle.is_set():
            self._idle = trio.Event()
        self._due.append((request_id, intended_ns))
        self._came.set()

    async def idle(self) -> None:
        """Wait until all offered requests are done."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send the offered requests until cancelled."""
        try:
            while True:
                while self._due:
                    await self._send(*self._due.popleft())
                self._idle.set()
                self._came = trio.Event()
                await self._came.wait()
        finally:
            for wire in self._wires.values():
                await wire.close()

    @abstractmethod
    async def _send(self, request_id: int, intended_ns: int) -> None:
        """Send an offered request, from the first attempt to the last."""

    async def _tried(self, attempt: Try, body: RequestMessage[A]) -> A | None:
        """Make an attempt; return the answer, None if none arrived in time."""
        key = attempt.api_key
        frame = requests.encode(key, attempt.number, self._client_id, body)
        wire = None
        with trio.move_on_after(self._cluster.request_timeout_ms / 1000) as patience:
            try:
                wire = await self._wire(attempt.broker)
                attempt.sent_ns = self._under_test.now_ns()
                answer = await wire.exchange(frame)
            except LOST:
                attempt.error_code = int(ErrorCode.network_exception)
            else:
                attempt.client_done_ns = self._under_test.now_ns()
                decoded: A = requests.decoded(key, answer)
                return decoded
        if patience.cancelled_caught:
            attempt.error_code = int(ErrorCode.request_timed_out)
        if wire is not None:
            del self._wires[attempt.broker]
            await wire.close()
        return None

    async def _wire(self, broker: int) -> BrokerConnection:
        if broker not in self._wires:
            address = self._under_test.nodes[broker].data
            self._wires[broker] = await self._under_test.wire(address)
        return self._wires[broker]

    async def _request_metadata(
        self, topic: str, intended_ns: int, request_id: int = NO_REQUEST
    ) -> Sequence[MetadataResponsePartition] | None:
        """Request a topic's leader from a random broker; None without an answer."""
        broker = self._rng.randrange(len(self._under_test.nodes))
        attempt = self._attempt_log.begin(
            ApiKey.METADATA, broker, intended_ns, request_id
        )
        body = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        answer = await self._tried(attempt, body)
        # A broker that has no metadata from a controller names no topic.
        if answer is None or not answer.topics:
            return None
        topic_row = answer.topics[0]
        attempt.error_code = int(topic_row.error_code)
        rows = sorted(topic_row.partitions, key=lambda row: int(row.partition_index))
        if rows:
            attempt.partition = int(rows[-1].partition_index)
            attempt.leader = int(rows[-1].leader_id)
        return rows


class MetadataReader(Client):
    """Requests the metadata of a topic from any broker."""

    def __init__(self, topic: str, *client: Any) -> None:
        super().__init__(*client)
        self._topic = topic

    async def _send(self, request_id: int, intended_ns: int) -> None:
        await self._request_metadata(self._topic, intended_ns, request_id)


class Producer(Client):
    """Writes to one partition, at its leader as far as known."""

    def __init__(self, timeout_ms: float, sender: Sender, *client: Any) -> None:
        super().__init__(sender, *client)
        shape: Any = sender.traffic.request.shape()
        self._topic = topic_of(sender.traffic.name)
        self._partition = sender.position % shape.topic_partitions
        self._shape = shape
        self._timeout_ns = round(timeout_ms * _NS_PER_MS)
        self._leader = self._cluster.leader
        rng = random.Random(sender.traffic.name)
        self._values = [rng.randbytes(shape.record_bytes) for _ in range(shape.records)]

    async def _send(self, request_id: int, intended_ns: int) -> None:
        while True:
            code = await self._attempt(request_id, intended_ns)
            if code not in RETRIABLE:
                return
            await self._refresh(intended_ns)
            wait_ns = round(self._cluster.retry_backoff_ms * _NS_PER_MS)
            if self._under_test.now_ns() + wait_ns >= intended_ns + self._timeout_ns:
                return
            await trio.sleep(wait_ns / _NS)

    async def _attempt(self, request_id: int, intended_ns: int) -> ErrorCode:
        attempt = self._attempt_log.begin(
            ApiKey.PRODUCE, self._leader, intended_ns, request_id
        )
        attempt.partition, attempt.acks = self._partition, self._shape.acks
        attempt.records = self._shape.records
        answer = await self._tried(attempt, self._body(attempt))
        if answer is not None:
            row = answer.responses[0].partition_responses[0]
            attempt.error_code = int(row.error_code)
            attempt.base_offset = int(row.base_offset)
        return ErrorCode(attempt.error_code)

    async def _refresh(self, intended_ns: int) -> None:
        """Update the known leader, if the queried broker knows one."""
        for row in await self._request_metadata(self._topic, intended_ns) or ():
            leads = 0 <= int(row.leader_id) < len(self._under_test.nodes)
            if int(row.partition_index) == self._partition and leads:
                self._leader = int(row.leader_id)

    def _body(self, attempt: Try) -> ProduceRequest:
        key = attempt.number.to_bytes(KEY_BYTES)
        at_ms = self._under_test.timestamp_ms
        batch = new_batch([(at_ms, key, value) for value in self._values])
        return ProduceRequest(
            acks=self._shape.acks,
            timeout=timedelta(milliseconds=self._cluster.request_timeout_ms),
            topic_data=[
                TopicProduceData(
                    name=self._topic,
                    partition_data=[
                        PartitionProduceData(index=self._partition, records=batch)
                    ],
                )
            ],
        )
