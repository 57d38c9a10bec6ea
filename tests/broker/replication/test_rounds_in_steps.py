"""Steps of a follower's rounds do not grow with the number of partitions.

The real client fetches all partitions from an in-memory leader. The test counts calls
of broker functions between two checkpoints at which other tasks may run.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair

from broker.cluster.partition import Partition
from broker.config import BrokerConfig
from broker.log.steps import Steps
from broker.observation.supervisor import Supervisor
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from broker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode, encode
from broker.protocol.wire.header import parse_request_header
from broker.replication.fetcher_manager import ReplicaFetcherManager
from simulation.virtual_time.apis import receive_frame
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from tests.broker.replication.replica import (
    EVERYBODY_LIVES,
    Nobody,
    NoQuota,
    Replica,
)
from tests.fuzzing.starvation import StarvationProbe

COUNTS = (1_000, 4_000)
# For a step of 256 partitions, with about a dozen calls each.
CALLS_MAX = 6_000
CONFIG = BrokerConfig.load(None, {"replica.fetch.wait.max.ms": "500"})


class Leader:
    """A leader that answers each Fetch for all partitions with the next error code."""

    def __init__(self, nursery: trio.Nursery, turns: Iterator[ErrorCode]) -> None:
        self.nursery = nursery
        self.turns = turns
        self.asked: list[int] = []

    async def connect(self, host: str, port: int) -> Any:
        """Return the client's end of a new connection."""
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self.serve, theirs)
        return ours

    async def serve(self, stream: Any) -> None:
        """Answer until the connection ends."""
        with contextlib.suppress(trio.BrokenResourceError, EOFError):
            while True:
                frame = await receive_frame(stream)
                header = parse_request_header(frame)
                key, version = ApiKey(header.api_key), header.api_version
                answer: Any
                if key is ApiKey.API_VERSIONS:
                    served = ApiVersion(api_key=1, min_version=4, max_version=12)
                    answer = ApiVersionsResponse(
                        error_code=ErrorCode.none, api_keys=(served,)
                    )
                else:
                    body = decode(key, version, frame, header.body_offset)
                    answer = self.answer(body, next(self.turns))
                await stream.send_all(
                    encode(key, version, header.correlation_id, answer)
                )

    def answer(self, body: FetchRequest, error: ErrorCode) -> FetchResponse:
        """Return a response whose rows all have ``error``."""
        self.asked.append(sum(len(topic.partitions) for topic in body.topics))
        topics = tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(
                    PartitionData(
                        partition_index=each.partition,
                        error_code=error,
                        high_watermark=0,
                        log_start_offset=0,
                        aborted_transactions=(),
                        records=b"",
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
        return FetchResponse(responses=topics)


def lowered(ends: Any) -> Steps[None]:
    yield None


@pytest.mark.parametrize("count", COUNTS)
def test_no_step_of_a_round_grows_with_the_partitions(count: int) -> None:
    """The rounds bring no new records, errors, and a fenced epoch."""
    nothing_new = ErrorCode.none
    turns = [
        nothing_new,
        nothing_new,
        ErrorCode.not_leader_or_follower,
        nothing_new,
        ErrorCode.fenced_leader_epoch,
    ]
    probe = StarvationProbe()
    asked: list[int] = []

    async def main(clock: VirtualClock) -> None:
        log = Replica(0).log
        async with trio.open_nursery() as nursery:
            leader = Leader(nursery, iter(turns))
            manager = ReplicaFetcherManager(
                lambda: CONFIG,
                local_id=0,
                watchers=Nobody(),
                find=lambda broker: ("leader", 9092),
                connect=leader.connect,
                flush=None,  # type: ignore[arg-type] # nothing is appended
                lower=lowered,
                blocking=None,  # type: ignore[arg-type] # nothing is cut
                quota=NoQuota(),  # type: ignore[arg-type]
                now_ns=lambda: round(trio.current_time() * 1e9),
                now_ms=lambda: round(trio.current_time() * 1e3),
                rng=random.Random(1),
                supervisor=Supervisor(),
            )
            for index in range(count):
                partition = Partition(
                    TopicPartition("t", index),
                    None,
                    log,
                    local_id=0,
                    min_insync=lambda: 1,
                    sync=EVERYBODY_LIVES,
                    high_watermark=0,
                )
                partition.leader, partition.leader_epoch = 1, 0
                manager.follow(partition)
            trio.lowlevel.add_instrument(probe)
            with probe.counting():
                nursery.start_soon(manager.run, contextlib.nullcontext())
                await trio.sleep(60)
            assert manager.failures == 0
            asked.extend(leader.asked)
            nursery.cancel_scope.cancel()

    run_virtual(main, seed=1)
    assert asked == [count] * len(turns)
    assert probe.most_calls
    assert max(probe.most_calls.values()) <= CALLS_MAX
