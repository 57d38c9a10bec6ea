"""Prefetching: one request per broker at a time, within the limits of the settings.

Kafka's ``Fetcher``, in its own task. A request lists all wanted partitions that a
broker leads. It is sent once each of them has fewer prefetched bytes than
``max.partition.fetch.bytes``. A request without the full ones would be a long poll,
which would delay their next fetch after they have been drained (Kafka 4 waits, too:
KAFKA-17182). A partition thus has less than twice that bound prefetched.
Fetch sessions (KIP-227) are not used: every request lists all wanted partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import (
    REQUEST_TIMEOUT_MS,
    ClientConfig,
)
from broker.client.client_metadata import Leader, Metadata
from broker.client.consumer.consumer_config import (
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    FETCH_MIN_BYTES,
    ISOLATION_LEVEL,
    MAX_PARTITION_FETCH_BYTES,
)
from broker.client.consumer.consumer_record import AbortedTransaction, FetchedBatches
from broker.client.consumer.subscription_state import PartitionState, SubscriptionState
from broker.client.network_client import NetworkClient
from broker.client.retriable_errors import STALE_METADATA, is_retriable
from broker.client.signals import Signal
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from broker.protocol.topic_partition import TopicPartition


class _RequestedOffset(NamedTuple):
    """A request for a partition: its state, its version at the time, the offset."""

    state: PartitionState
    version: int
    offset: int


_RequestedOffsets = dict[TopicPartition, _RequestedOffset]


class Fetcher:
    """The task that prefetches records of a consumer."""

    def __init__(
        self,
        config: ClientConfig,
        client: NetworkClient,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._committed_only = config[ISOLATION_LEVEL] == "read_committed"
        self._min_bytes = config[FETCH_MIN_BYTES]
        self._max_wait = timedelta(milliseconds=config[FETCH_MAX_WAIT_MS])
        self._max_bytes = config[FETCH_MAX_BYTES]
        self._partition_bytes = config[MAX_PARTITION_FETCH_BYTES]
        self._timeout_s = config.seconds(REQUEST_TIMEOUT_MS)
        self._backoff = retry_backoff(config, rng)
        self._wake = Signal()
        self.on_records: Callable[[], None] = _do_nothing
        # Called for positions outside the log.
        self.on_out_of_range: Callable[[PartitionState], None] = _nowhere

    def wake(self) -> None:
        """Examine all partitions again, after a change of wanted ones."""
        self._wake.notify()

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            await self._wake.wait(self._step(trio.current_time()))

    # ---- requests -------------------------------------------------------------------

    def _step(self, now_s: float) -> float:
        """Send all possible requests; return the time of the next step."""
        next_s = float("inf")
        by_leader: dict[int, list[tuple[PartitionState, Leader]]] = {}
        for state in self._subscriptions.states:
            if state.paused or state.position is None or state.failure is not None:
                continue
            if state.retry_at_s > now_s:
                next_s = min(next_s, state.retry_at_s)
                continue
            leader = self._metadata.leader(state.partition)
            if leader is None:
                self._metadata.request_update()
            else:
                by_leader.setdefault(leader.node_id, []).append((state, leader))
        for node_id, wanted in by_leader.items():
            node = self._client.node(self._metadata.address(node_id, "fetch"))
            full = any(
                each.prefetched_bytes >= self._partition_bytes for each, _ in wanted
            )
            if full or node.in_flight:
                continue
            if node.ready():
                requested = {
                    each.partition: _RequestedOffset(
                        each, each.version, each.fetch_from
                    )
                    for each, _ in wanted
                }
                node.submit(
                    self._request(wanted),
                    partial(self._answered, requested),
                    self._timeout_s,
                )
            elif node.throttled_until_s > now_s:
                next_s = min(next_s, node.throttled_until_s)
        return next_s

    def _request(self, wanted: list[tuple[PartitionState, Leader]]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for state, leader in wanted:
            topic, number = state.partition
            row = FetchPartition(
                partition=number,
                current_leader_epoch=leader.epoch,
                fetch_offset=state.fetch_from,
                partition_max_bytes=self._partition_bytes,
            )
            topics.setdefault(topic, []).append(row)
        return FetchRequest(
            max_wait=self._max_wait,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=int(self._committed_only),
            topics=[
                FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()
            ],
        )

    # ---- responses ------------------------------------------------------------------

    def _answered(
        self, requested: _RequestedOffsets, answer: FetchResponse | KafkaError
    ) -> None:
        code = answer.code if isinstance(answer, KafkaError) else answer.error_code
        if isinstance(answer, KafkaError) or code is not ErrorCode.none:
            for request in requested.values():
                self._refused(request, code)
        else:
            for topic in answer.responses:
                for each in topic.partitions:
                    name = TopicPartition(topic.topic, each.partition_index)
                    if name in requested:
                        self._take(requested[name], each)
        self.on_records()
        self._wake.notify()

    def _take(self, request: _RequestedOffset, found: PartitionData) -> None:
        state = request.state
        if not self._is_open(request):
            return
        if found.error_code is not ErrorCode.none:
            self._refused(request, found.error_code)
            return
        aborted = None
        if self._committed_only:
            aborted = [
                AbortedTransaction(each.first_offset, each.producer_id)
                for each in found.aborted_transactions or ()
            ]
        try:
            state.store(FetchedBatches(state.partition, found.records or b"", aborted))
        except KafkaError as error:
            state.failure = error

    def _is_open(self, request: _RequestedOffset) -> bool:
        """Return whether a response is still wanted.

        If the leader changes during a request, the same offset may be requested from
        two brokers: the first response counts.
        """
        state, version, offset = request
        is_current = self._subscriptions.is_current(state, version)
        return is_current and state.fetch_from == offset

    def _refused(self, request: _RequestedOffset, code: ErrorCode) -> None:
        state = request.state
        if not self._is_open(request):
            return
        state.retry_at_s = trio.current_time() + self._backoff.after(1)
        if code in STALE_METADATA:
            self._metadata.request_update()
        elif code is ErrorCode.offset_out_of_range:
            # With prefetched records, the position itself is not out of range yet.
            if state.position == state.fetch_from:
                self.on_out_of_range(state)
        elif not is_retriable(code):
            state.failure = KafkaError(code, f"{state.partition} cannot be fetched")


def _do_nothing() -> None:
    """Do nothing: no task waits for records."""


def _nowhere(state: PartitionState) -> None:
    raise AssertionError(f"no reset is configured for {state.partition}")
