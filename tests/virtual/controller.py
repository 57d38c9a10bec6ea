"""A controller that decides proposals for ISRs, listening on a memory network."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import decode, encode
from broker.protocol.wire.header import parse_request_header
from experiments.worlds.virtual.apis import receive_frame
from experiments.worlds.virtual.memory_network import MemoryNetwork, MemoryStream

Row = SimpleNamespace
CONTROLLER, PORT = 9, 9099
NO_TIME = timedelta(0)


class FakeController:
    """Accepts what is proposed; ``refusals`` are answered first, ``delay_s`` waited."""

    def __init__(self) -> None:
        self.proposed: list[tuple[int, ...]] = []
        self.epochs: set[int] = set()
        self.refusals: list[ErrorCode] = []
        self.delay_s = 0.0
        self.partition_epoch = 1000
        # The newest one that anybody was told.
        self.leader_epoch = 0

    async def run(self, network: MemoryNetwork) -> None:
        """Answer brokers until cancelled."""
        listener = network.listen("127.0.0.1", PORT)
        async with trio.open_nursery() as nursery:
            while True:
                connection, _ = await listener.accept()
                nursery.start_soon(self._serve, MemoryStream(connection))

    async def _serve(self, stream: MemoryStream) -> None:
        answers: dict[ApiKey, Callable[[Any], Any]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.ALTER_PARTITION: self._alter_partition,
        }
        while True:
            frame = await receive_frame(stream)
            header = parse_request_header(frame)
            key, version = ApiKey(header.api_key), header.api_version
            request = decode(key, version, frame, header.body_offset)
            if key is ApiKey.ALTER_PARTITION:
                await trio.sleep(self.delay_s)
            answer = answers[key](request)
            await stream.send_all(encode(key, version, header.correlation_id, answer))

    def _api_versions(self, request: Any) -> Any:
        key = Row(api_key=ApiKey.ALTER_PARTITION, min_version=0, max_version=3)
        return Row(
            error_code=ErrorCode.none,
            api_keys=[key],
            throttle_time=NO_TIME,
            supported_features=(),
            finalized_features_epoch=-1,
            finalized_features=(),
            zk_migration_ready=False,
        )

    def _alter_partition(self, request: Any) -> Any:
        self.epochs.add(request.broker_epoch)
        topics = [
            Row(
                topic_id=topic.topic_id,
                partitions=[self._decide(each) for each in topic.partitions],
            )
            for topic in request.topics
        ]
        return Row(throttle_time=NO_TIME, error_code=ErrorCode.none, topics=topics)

    def _decide(self, proposed: Any) -> Any:
        code = self.refusals.pop(0) if self.refusals else ErrorCode.none
        if proposed.leader_epoch < self.leader_epoch:
            code = ErrorCode.fenced_leader_epoch
        self.proposed.append(tuple(proposed.new_isr))
        self.partition_epoch += 1
        return Row(
            partition_index=proposed.partition_index,
            error_code=code,
            leader_id=0,
            leader_epoch=proposed.leader_epoch,
            isr=proposed.new_isr,
            leader_recovery_state=0,
            partition_epoch=self.partition_epoch,
        )
