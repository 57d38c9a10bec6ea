"""A transactional producer and a consumer of committed records, request by request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import Call, World
from tests.broker.apis.requests import batch, fetch_fields, produce_fields
from tests.broker.log.test_transactions import committed as consumed

NONE = ErrorCode.none
NAME = "tx"
TIMEOUT_MS = 60_000
TRANSACTIONAL = 0x10
SETTINGS = {
    "log.flush.interval.messages": "1",
    "transaction.state.log.num.partitions": "2",
}


class TransactionClient:
    """A producer with a transactional id, and its sequence numbers."""

    def __init__(self, world: World, name: str = NAME) -> None:
        self.world = world
        self.name = name
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def find(self) -> ErrorCode:
        """Find the coordinator; the first call creates its topic."""
        answer = self.world.send(ApiKey.FIND_COORDINATOR, 3, key=self.name, key_type=1)
        code: ErrorCode = answer.error_code
        return code

    def init(self, version: int = 5) -> ErrorCode:
        """Initialize the producer."""
        answer = self.world.send(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=self.name,
            transaction_timeout=timedelta(milliseconds=TIMEOUT_MS),
        )
        if answer.error_code is NONE:
            self.producer_id = answer.producer_id
            self.epoch = answer.producer_epoch
            self.sequences.clear()
        code: ErrorCode = answer.error_code
        return code

    def begin(self) -> None:
        """Find the coordinator and initialize the producer, with retries."""
        assert self._until_done(self.find) < 5
        assert self._until_done(self.init) < 5

    def _until_done(self, verb: Any) -> int:
        for attempt in range(100):
            code = verb()
            if code is NONE:
                return attempt
            assert code in (
                ErrorCode.coordinator_not_available,
                ErrorCode.concurrent_transactions,
                ErrorCode.not_coordinator,
            ), code
            self.world.pass_ms(100)
        raise AssertionError("there is no end of it")

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "v3_and_below_transactional_id": self.name,
            "producer_id": self.producer_id,
            "v3_and_below_producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "v3_and_below_producer_epoch": self.epoch,
        }

    def add(self, *keys: TopicPartition, version: int = 3) -> dict[Any, ErrorCode]:
        """Add partitions to the transaction."""
        topics: dict[str, list[int]] = {}
        for topic, partition in keys:
            topics.setdefault(topic, []).append(partition)
        rows = [{"name": each, "partitions": of} for each, of in topics.items()]
        answer = self.world.send(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            **self.identity,
            v3_and_below_topics=rows,
        )
        return {
            (topic.name, row.partition_index): row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }

    def produce(
        self, key: TopicPartition, value: bytes, version: int = 11
    ) -> ErrorCode:
        """Produce one batch; from version 12 on, the leader adds its partition."""
        sequence = self.sequences.get(key, 0)
        answer = self.start_produce(key, value, version).answer
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        if code is NONE:
            self.sequences[key] = sequence + 1
        return code

    def start_produce(
        self, key: TopicPartition, value: bytes, version: int = 12
    ) -> Call:
        """Send one batch, which may wait."""
        producer = self.producer_id, self.epoch, self.sequences.get(key, 0)
        records = batch(value, producer=producer, attributes=TRANSACTIONAL)
        return self.world.start(
            ApiKey.PRODUCE,
            version,
            transactional_id=self.name,
            **produce_fields({key: records}, acks=-1),
        )

    def commit_offset(self, key: TopicPartition, offset: int) -> ErrorCode:
        """Commit an offset of group "g" in the transaction, which may begin with it."""
        row = {
            "partition_index": key.partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
        }
        answer = self.world.send(
            ApiKey.TXN_OFFSET_COMMIT,
            5,
            **self.identity,
            group_id="g",
            generation_id=-1,
            topics=[{"name": key.topic, "partitions": [row]}],
        )
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def end(self, is_commit: bool, version: int = 4) -> ErrorCode:
        """Commit or abort the transaction."""
        answer = self.world.send(
            ApiKey.END_TXN, version, **self.identity, committed=is_commit
        )
        code: ErrorCode = answer.error_code
        if version >= 5 and code is NONE:
            self.producer_id = answer.producer_id
            self.epoch = answer.producer_epoch
            self.sequences.clear()
        return code


def committed(world: World, key: TopicPartition) -> list[bytes]:
    """Return the committed values of a partition without an open transaction."""
    answer = world.send(ApiKey.FETCH, 12, **fetch_fields({key: 0}, isolation_level=1))
    row = answer.responses[0].partitions[0]
    assert row.error_code is NONE, row
    assert row.last_stable_offset == row.high_watermark, row
    log = world.broker.logs.logs[key]
    return [value for _, _, value in consumed(log, 0, row.last_stable_offset)]
