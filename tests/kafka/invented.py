"""A partition without a real controller: the test acts as its followers.

So a leader's treatment of its followers can be compared step by step. The test sends
controller requests in the name of the real controller. That controller does not know
the partition and refuses the leader's ISR proposals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.composing import (
    ControllerRequests,
    during_delete,
    metadata_of,
)
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrPartitionState
from broker.protocol.schemas.stop_replica_schema import StopReplicaPartitionState
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
)
from broker.protocol.sentinels import EPOCH_DURING_DELETE
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode_response, encode_request
from tests.broker.apis.broker_world import RESPONSES
from tests.broker.apis.requests import batch, fetch_fields, produce_fields
from tests.kafka.peer import Peer

FOLLOWERS = (5, 6)


class InventedPartition:
    """Partition 0 of a topic, led by ``leader``, with `FOLLOWERS` out of its ISR.

    ``ports`` are those of the real brokers; ``controller`` is the number and epoch of
    their controller.
    """

    def __init__(
        self,
        name: str,
        leader: int,
        ports: Mapping[int, int],
        controller: tuple[int, int],
    ) -> None:
        self._key = TopicPartition(name, 0)
        self._ports = ports
        self._peer = Peer("leader", ports[leader])
        number, epoch = controller
        self._words = ControllerRequests(
            controller_id=number, controller_epoch=epoch, topic_ids={name: uuid4()}
        )
        self._state = LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=epoch,
            leader=leader,
            leader_epoch=0,
            isr=(leader,),
            partition_epoch=0,
            replicas=(leader, *FOLLOWERS),
            is_new=True,
        )

    def __enter__(self) -> Self:
        self.say_alive(*FOLLOWERS)
        states = {self._key.topic: [self._state]}
        self._command(ApiKey.LEADER_AND_ISR, 6, self._words.leader_and_isr(states))
        # The leader proposes the follower once. The controller refuses the unknown
        # partition and announces its own view of the live brokers.
        self.fetch(FOLLOWERS[0], 0)
        time.sleep(1)
        self.say_alive(*FOLLOWERS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete the partition, and withdraw the invented brokers."""
        stop = StopReplicaPartitionState(
            partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
        )
        stopped = self._words.stop_replica({self._key.topic: [stop]})
        self._command(ApiKey.STOP_REPLICA, 3, stopped)
        self._state = during_delete(self._state)
        self.say_alive()
        self._peer.close()

    def say_alive(self, *followers: int) -> None:
        """Announce the live followers and the state of the partition."""
        ports = {**self._ports, **dict.fromkeys(followers, 1)}
        live = [
            UpdateMetadataBroker(
                id=broker,
                endpoints=(
                    UpdateMetadataEndpoint(
                        port=port,
                        host="127.0.0.1",
                        listener="PLAINTEXT",
                        security_protocol=0,
                    ),
                ),
            )
            for broker, port in ports.items()
        ]
        told = {self._key.topic: [metadata_of(self._state)]}
        self._command(
            ApiKey.UPDATE_METADATA, 7, self._words.update_metadata(told, live)
        )

    def append(self) -> None:
        """Append a record as the leader."""
        told = produce_fields({self._key: batch(b"x")}, acks=1)
        answer = self._peer.ask(ApiKey.PRODUCE, 9, **told)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code is ErrorCode.none, row

    def fetch(self, replica: int, offset: int) -> int:
        """Fetch as a follower at an offset; return the high watermark afterwards."""
        self._fetch(offset, replica_id=replica, epoch=0)
        return int(self._fetch(0).high_watermark)

    def _fetch(self, offset: int, **fields: Any) -> Any:
        told = fetch_fields({self._key: offset}, **fields)
        answer = self._peer.ask(ApiKey.FETCH, 12, **told)
        (row,) = answer.responses[0].partitions
        assert row.error_code is ErrorCode.none, row
        return row

    def _command(self, key: ApiKey, version: int, request: Any) -> None:
        body = request.to_wire(version)
        self._peer.send_bytes(encode_request(key, version, 1, "controller", body))
        frame = self._peer.receive()
        assert isinstance(frame, bytes), frame
        answer = RESPONSES[key].from_wire(decode_response(key, version, frame)[1])
        rows = getattr(answer, "partition_errors", ())
        assert {each.error_code for each in (answer, *rows)} == {ErrorCode.none}, answer


def in_time(
    story: Callable[[InventedPartition], list[int]],
    within_s: float,
    name: str,
    *arguments: Any,
) -> list[int]:
    """Return the outcome of a story that ran within a time limit; retry it."""
    for attempt in range(30):
        with InventedPartition(f"{name}-{attempt}", *arguments) as partition:
            began_s = time.monotonic()
            outcome = story(partition)
            if time.monotonic() - began_s < within_s:
                return outcome
    raise AssertionError(f"each time it took more than {within_s} s")


def keeping_up(partition: InventedPartition) -> list[int]:
    """Keep both followers in sync, and stop and restart one of them."""
    first, second = FOLLOWERS
    told = [partition.fetch(first, 0), partition.fetch(second, 0)]
    partition.append()
    told += [partition.fetch(first, 1), partition.fetch(second, 1)]
    partition.say_alive(first)
    partition.append()
    told += [partition.fetch(first, 2)]
    partition.say_alive(*FOLLOWERS)
    told += [partition.fetch(second, 2)]
    partition.append()
    return [*told, partition.fetch(first, 3), partition.fetch(second, 3)]


# The high watermark waits for the other follower each time, unless that is dead.
KEPT_UP = [0, 0, 0, 1, 2, 2, 2, 3]
