"""Transactions in a ZooKeeper cluster whose coordinator and leaders differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.requests import batch, produce_fields
from tests.virtual.members import Members, with_members

NONE = ErrorCode.none
NAME = "tx"
KEYS = [TopicPartition("t", index) for index in range(3)]
SETTINGS = {
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
}
AGAIN = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.unknown_topic_or_partition,
    }
)


class Producer:
    """A transactional producer that follows leaders and retries.

    With ``transaction_version`` 2, leaders add its partitions to the transaction, and
    every commit or abort raises its epoch.
    """

    def __init__(self, members: Members, transaction_version: int = 1) -> None:
        self.members = members
        self.is_second = transaction_version == 2
        self.producer_id = self.epoch = -1
        self.sequences = dict.fromkeys(KEYS, 0)

    async def again(self, verb: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        """Retry until the error code is final."""
        with trio.fail_after(120):
            while True:
                try:
                    code = await verb()
                except (OSError, EOFError, trio.BrokenResourceError, ValueError):
                    code = ErrorCode.not_coordinator
                if code not in AGAIN:
                    return code
                await trio.sleep(0.1)

    async def coordinator(self) -> int:
        """Return the coordinator's number from a live broker."""
        with trio.fail_after(120):
            while True:
                number = self.members.alive[0]
                answer = await self.members.ask(
                    number,
                    ApiKey.FIND_COORDINATOR,
                    4,
                    coordinator_keys=[NAME],
                    key_type=1,
                )
                (found,) = answer.coordinators
                if found.error_code is NONE:
                    node_id: int = found.node_id
                    if node_id in self.members.alive:
                        return node_id
                await trio.sleep(0.1)

    async def init(self) -> None:
        async def verb() -> ErrorCode:
            answer = await self.members.ask(
                await self.coordinator(),
                ApiKey.INIT_PRODUCER_ID,
                4,
                transactional_id=NAME,
                transaction_timeout=timedelta(seconds=60),
            )
            self.producer_id = answer.producer_id
            self.epoch = answer.producer_epoch
            code: ErrorCode = answer.error_code
            return code

        assert await self.again(verb) is NONE
        self.sequences = dict.fromkeys(KEYS, 0)

    async def add(self) -> ErrorCode:
        if self.is_second:
            return NONE

        async def verb() -> ErrorCode:
            answer = await self.members.ask(
                await self.coordinator(),
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    {"name": "t", "partitions": [key.partition for key in KEYS]}
                ],
            )
            (topic,) = answer.results_by_topic_v3_and_below
            (code,) = {row.partition_error_code for row in topic.results_by_partition}
            return code  # type: ignore[no-any-return]

        return await self.again(verb)

    async def send(self, value: bytes) -> None:
        """Send a record to each partition."""
        for key in KEYS:
            await self._send(key, value)

    async def _send(self, key: TopicPartition, value: bytes) -> None:
        producer = (self.producer_id, self.epoch, self.sequences[key])

        async def verb() -> ErrorCode:
            leader = self.members.leader(*key)
            if leader not in self.members.alive:
                return ErrorCode.not_leader_or_follower
            fields = produce_fields(
                {key: batch(value, producer=producer, attributes=0x10)}, -1
            )
            answer = await self.members.ask(
                leader,
                ApiKey.PRODUCE,
                12 if self.is_second else 11,
                transactional_id=NAME,
                **fields,
            )
            code: ErrorCode = answer.responses[0].partition_responses[0].error_code
            return code

        assert await self.again(verb) is NONE
        self.sequences[key] += 1

    async def end(self, is_commit: bool) -> ErrorCode:
        async def verb() -> ErrorCode:
            answer = await self.members.ask(
                await self.coordinator(),
                ApiKey.END_TXN,
                5 if self.is_second else 3,
                transactional_id=NAME,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=is_commit,
            )
            code: ErrorCode = answer.error_code
            if self.is_second and code is NONE:
                assert answer.producer_epoch == self.epoch + 1
                self.epoch += 1
                self.sequences = dict.fromkeys(KEYS, 0)
            return code

        return await self.again(verb)


async def committed(members: Members, count: int) -> list[bytes]:
    """Return ``count`` committed values of all partitions, and any further ones."""
    values: list[bytes] = []
    async with members.consumer(isolation_level="read_committed") as consumer:
        consumer.assign(KEYS)
        with trio.move_on_after(120):
            while len(values) < count:
                values += [each.value or b"" for each in await consumer.poll()]
        values += [each.value or b"" for each in await consumer.poll(timeout_s=5)]
    return sorted(values)


def with_three(scenario: Callable[[Members], Awaitable[None]]) -> None:
    with_members(scenario, **SETTINGS)


@pytest.mark.parametrize("version", [1, 2])
def test_leaders_on_other_brokers_verify_and_write_markers(version: int) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", len(KEYS))
        producer = Producer(members, version)
        await producer.init()
        await members.until(lambda: all(members.leader(*key) >= 0 for key in KEYS))
        assert len({members.leader(*key) for key in KEYS}) == 3
        for is_commit, value in ((True, b"a"), (False, b"b"), (True, b"c")):
            assert await producer.add() is NONE
            await producer.send(value)
            assert await producer.end(is_commit) is NONE
        assert await committed(members, 6) == [b"a"] * 3 + [b"c"] * 3

    with_three(scenario)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_transaction_survives_its_coordinator(how: str, version: int) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", len(KEYS))
        producer = Producer(members, version)
        await producer.init()
        assert await producer.add() is NONE
        await producer.send(b"a")
        victim = members.leader("__transaction_state")
        assert await producer.end(True) is NONE
        await (members.kill if how == "killed" else members.stop)(victim)
        assert await producer.add() is NONE
        await producer.send(b"b")
        assert members.leader("__transaction_state") != victim
        assert await producer.end(True) is NONE
        assert await committed(members, 6) == [b"a"] * 3 + [b"b"] * 3

    with_three(scenario)
