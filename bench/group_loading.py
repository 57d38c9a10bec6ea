"""Latency of Produce while the broker loads commits, against the same broker idle.

A partition of ``__consumer_offsets`` is written to a log directory before the broker
starts, with the broker's own log and record code: one batch for each commit of a
consumer of several partitions. The broker loads it at its start, before it serves
clients. A controller then moves the leadership away and back. The broker unloads the
partition and loads it again, while a client sends one Produce after another.

Issue 30 bounds the p99 of that client by twice the p99 of an idle broker: a ratio of
0.5. The idle broker is measured before and after the load.

`MEGABYTES` is less than the 200 of the issue, because the row should take less than two
minutes. The size sets the duration of the load, not the length of its steps.

Compaction is off, because it would shorten the log before the load. An OffsetFetch
after every chunk of requests, idle or not, reports whether the load has ended. The
chunk before the first OffsetFetch that succeeds is discarded.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench import clients
from bench.brokers import Running, directory, doorkeeper, on_the_load_cpu
from bench.row import BenchRow, paired
from bench.small_requests import TOPIC, check_produced, produce_frame
from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC
from broker.disk.files import RealStorage
from broker.disk.log_dirs import LogDirs
from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import OffsetKey, offset_record
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.periodic_task import CallsHere
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from broker.protocol.records.batch_records import new_batch
from broker.protocol.schemas.composing import ControllerRequests
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrPartitionState
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode_response, encode_request

MEGABYTES: Final = 50
_GROUPS, _PARTITIONS_PER_GROUP = 1_000, 10
_PARTITION: Final = TopicPartition(GROUP_METADATA_TOPIC, 0)
_SEGMENT_BYTES: Final = 104_857_600
# The broker under test, and a broker that does not exist.
_HERE, _ELSEWHERE = 0, 1
# Above the epochs that a single broker assigns itself.
_EPOCH: Final = 1_000
_CHUNK, _CHUNKS_MIN, _WARM_UP_CHUNKS = 100, 10, 5
# Chunks before the load, and after it.
_IDLE_CHUNKS: Final = 100
_TIMEOUT_S: Final = 300.0
_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "doorkeeper.controller.listeners": "PLAINTEXT",
    "log.cleaner.enable": "false",
}


def rows() -> Iterator[BenchRow]:
    """Compare the p99 of a broker that loads with its p99 when it is idle."""
    with directory() as data:
        _write_commits(data)
        with (
            doorkeeper(data, scheduler="priority", settings=_SETTINGS) as broker,
            on_the_load_cpu(),
        ):
            clients.create_topic(broker, TOPIC)
            broker.pin()
            loading_ms, idle_ms = _measure(broker)
    yield paired(
        f"p99 of PRODUCE one by one, while {MEGABYTES} MB of commits are loaded",
        "ms",
        [_p99(loading_ms)],
        "the same broker, idle",
        [_p99(idle_ms)],
        more_is_better=False,
    )


def _write_commits(data: Path) -> None:
    """Write the partition as a clean shutdown leaves it."""
    now_ms = time.time_ns() // 1_000_000
    manager = LogManager(
        LogDirs([str(data)]),
        RealStorage(),
        config_of=lambda _: LogConfig(segment_bytes=_SEGMENT_BYTES),
        now_ms=lambda: now_ms,
    )
    manager.open()
    log = manager.open_log(_PARTITION, None)
    batches = [_commit(f"group-{number}", now_ms) for number in range(_GROUPS)]
    written = 0
    while written < MEGABYTES * 1_000_000:
        for batch in batches:
            log.append(batch, 0, now_ms, prepared=batch)
            written += len(batch)
    manager.close(lambda key: manager.logs[key].log_end_offset, CallsHere().run_all)


def _commit(group: str, now_ms: int) -> bytes:
    """Return the batch of one OffsetCommit."""
    records = [
        offset_record(
            OffsetKey(group, "committed", partition),
            OffsetCommit(1_000_000, 0, "", now_ms),
        )
        for partition in range(_PARTITIONS_PER_GROUP)
    ]
    return new_batch([(now_ms, record.key, record.value) for record in records])


def _measure(broker: Running) -> tuple[list[float], list[float]]:
    """Return the latencies during the load, and those before and after it."""
    with closing(_Connection(broker)) as client:
        for _ in range(_WARM_UP_CHUNKS):
            client.chunk_ms()
        idle_ms = _idle_ms(client)
        client.lead(_ELSEWHERE, _EPOCH)
        assert client.coordinator_error() is ErrorCode.not_coordinator
        client.lead(_HERE, _EPOCH + 1)
        loading_ms: list[float] = []
        while True:
            chunk_ms = client.chunk_ms()
            error = client.coordinator_error()
            if error is not ErrorCode.coordinator_load_in_progress:
                break
            loading_ms += chunk_ms
        assert error is ErrorCode.none, error
        assert len(loading_ms) >= _CHUNK * _CHUNKS_MIN, "the load was too short"
        idle_ms += _idle_ms(client)
    return loading_ms, idle_ms


def _idle_ms(client: _Connection) -> list[float]:
    found: list[float] = []
    for _ in range(_IDLE_CHUNKS):
        found += client.chunk_ms()
        assert client.coordinator_error() is ErrorCode.none
    return found


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


class _Connection:
    """A client that also acts as the controller, and waits for each answer."""

    def __init__(self, broker: Running) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._produce = produce_frame()

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def chunk_ms(self) -> list[float]:
        """Send a chunk of Produces one by one; return their latencies."""
        found = []
        for _ in range(_CHUNK):
            began_ns = time.perf_counter_ns()
            self._socket.sendall(self._produce)
            answer = self._socket.recv(4096)
            found.append((time.perf_counter_ns() - began_ns) / 1e6)
            check_produced(answer)
        return found

    def coordinator_error(self) -> ErrorCode:
        """Return the error of an OffsetFetch of a group of the partition."""
        topics = [OffsetFetchRequestTopic(name="committed", partition_indexes=[0])]
        body = OffsetFetchRequest(group_id="group-0", topics=topics)
        return ErrorCode(self._call(ApiKey.OFFSET_FETCH, 5, body).error_code)

    def lead(self, leader: int, leader_epoch: int) -> None:
        """Make a broker the leader of the partition."""
        requests = ControllerRequests(
            controller_id=9, controller_epoch=_EPOCH, topic_ids={}
        )
        state = LeaderAndIsrPartitionState(
            partition_index=_PARTITION.partition,
            controller_epoch=_EPOCH,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=(leader,),
            partition_epoch=leader_epoch,
            replicas=(_HERE, _ELSEWHERE),
        )
        body = requests.leader_and_isr({_PARTITION.topic: [state]}).to_wire(4)
        answer = self._call(ApiKey.LEADER_AND_ISR, 4, body)
        errors = [each.error_code for each in answer.partition_errors]
        assert errors == [ErrorCode.none], answer

    def _call(self, key: ApiKey, version: int, body: Any) -> Any:
        self._socket.sendall(encode_request(key, version, 0, "bench", body))
        size = int.from_bytes(self._answers.read(4))
        return decode_response(key, version, self._answers.read(size))[1]
