"""``__consumer_offsets`` on real files, written and read through replicas."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC, Topic
from broker.cluster.replica_manager import ReplicaManager
from broker.coordination.commands import Commands
from broker.disk.files import RealStorage
from broker.groups.committed_offsets import CommitRequest, Position
from broker.groups.group_coordinator import GroupCoordinator
from broker.groups.state.group_settings import GroupConfig
from broker.log import log_reading as reading
from broker.log.log import Log
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep.periodic_task import CallsHere
from broker.log.upkeep.recovery import open_log
from broker.node.flush_shell import QueuedFlushes
from broker.node.replicated_shard_log import ReplicatedShardLog
from broker.protocol.errors import ErrorCode
from broker.protocol.records.batch import BatchHeader, parse_header
from broker.protocol.records.batch_records import build_batch, record_body
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Instant, InTransaction, Record
from broker.shards.shard_log import (
    BYTES_PER_LIST,
    RECORDS_PER_LIST,
    TransactionalRecords,
    TransactionEnd,
)
from tests.broker.groups.all_offsets import fetch_all

NAME = "__consumer_offsets"
KEY = (NAME, 0)
NOW = Instant(5_000_000_000, 1_700_000_000_000)
ONE = [Record(b"k", b"v")]
TWO = [Record(b"a", b"1"), Record(b"b", None)]


class Directory:
    """Logs in the test's own directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.high_watermarks: dict[tuple[str, int], int] = {}

    def open_log(
        self, key: tuple[str, int], topic_id: UUID | None, *, is_new: bool
    ) -> Log:
        directory = self.path / f"{key[0]}-{key[1]}"
        config = LogConfig(cleanup_policy=frozenset({"compact"}))
        return open_log(str(directory), config, RealStorage(), NOW.wall_ms)

    def topic_id(self, key: tuple[str, int]) -> UUID | None:
        return None

    def may_be_offline(self, key: tuple[str, int]) -> bool:
        return False

    def delete_log(self, key: tuple[str, int]) -> None:
        raise AssertionError("nothing is deleted here")


class Replica:
    """Broker 0 and its replica of one partition of the offsets topic."""

    def __init__(
        self, path: Path, *, min_insync: int = 1, load_bytes: int = 100
    ) -> None:
        self.manager = ReplicaManager(
            Directory(path), local_id=0, min_insync=lambda topic: min_insync
        )
        self.now = NOW
        self.topic = ReplicatedShardLog(
            GROUP_METADATA_TOPIC,
            self.manager,
            QueuedFlushes(lambda: self.now.wall_ms, CallsHere(), lambda: None),
            lambda: self.now,
            codec=0,
            timeout_ms=5_000,
            load_bytes=load_bytes,
        )
        self.outcomes: list[ErrorCode] = []

    def lead(
        self, isr: tuple[int, ...] = (0,), leader: int = 0, epoch: int = 1
    ) -> None:
        """Send the leader's state, as the controller does."""
        topic = Topic(
            name=NAME, topic_id=UUID(int=1), leader_epochs=(epoch,), configs={}
        )
        commands = Commands(broker_id=0, controller_epoch=1, broker_epoch=1)
        request = commands.lead(topic, [0], is_new=False)
        (states,) = request.topic_states
        (state,) = states.partition_states
        change = {"isr": isr, "replicas": (0, 1), "leader": leader}
        request = replace(
            request,
            topic_states=(
                replace(states, partition_states=(replace(state, **change),)),
            ),
        )
        answer = self.manager.become_leader_or_follower(request)
        assert answer.partition_errors[0].error_code is ErrorCode.none

    def append(self, records: list[Record]) -> None:
        self.topic.append(0, records, self.outcomes.append)

    def replayed(self) -> list[Record]:
        return [Record(*each) for some in self.topic.replay(0) for each in some]


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


def test_appended_records_are_read_back_after_a_restart(
    tmp_path: Path, replica: Replica
) -> None:
    replica.lead()
    for number in range(20):
        replica.append([Record(b"k%d" % number, b"v" * number)])
    replica.append(TWO)
    assert replica.outcomes == [ErrorCode.none] * 21
    again = Replica(tmp_path)
    again.lead(epoch=2)
    expected = [Record(b"k%d" % number, b"v" * number) for number in range(20)]
    assert again.replayed() == expected + TWO


def test_a_damaged_batch_costs_its_own_records_only(
    tmp_path: Path, replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    replica.lead()
    for number in range(4):
        replica.append([Record(b"k%d" % number, b"v")])
    path = next((tmp_path / f"{NAME}-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[content.index(b"k1")] ^= 1
    path.write_bytes(content)
    assert [record.key for record in replica.replayed()] == [b"k0", b"k2", b"k3"]
    # With an invalid header the start of the next batch is unknown.
    second = len(content) // 4
    content[second + 16] = 7
    path.write_bytes(content)
    assert [record.key for record in replica.replayed()] == [b"k0"]
    assert len(caplog.records) == 2


def test_a_batch_says_when_it_was_written(replica: Replica) -> None:
    replica.lead()
    replica.append(TWO)
    piece = reading.read(replica.manager.get(KEY).log, 0, 10_000, 2)
    assert piece is not None
    header = parse_header(piece.read())
    assert (header.base_timestamp, header.max_timestamp) == (NOW.wall_ms,) * 2
    assert (header.record_count, header.producer_id) == (2, -1)


def test_an_append_waits_for_the_replicas_in_sync(replica: Replica) -> None:
    replica.lead(isr=(0, 1))
    replica.append(ONE)
    assert replica.outcomes == []
    partition = replica.manager.get(KEY)
    partition.note_follower_fetch(1, 1, 0)
    assert partition.advance_high_watermark()
    replica.manager.note_change(KEY)
    assert replica.outcomes == [ErrorCode.none]


def test_an_append_waits_no_longer_than_its_timeout(replica: Replica) -> None:
    replica.lead(isr=(0, 1))
    replica.append(ONE)
    replica.manager.produce_purgatory.expire(NOW.ns + 4_999_000_000)
    assert replica.outcomes == []
    replica.manager.produce_purgatory.expire(NOW.ns + 5_000_000_000)
    assert replica.outcomes == [ErrorCode.request_timed_out]


def test_an_append_fails_once_another_broker_leads(replica: Replica) -> None:
    replica.lead(isr=(0, 1))
    replica.append(ONE)
    replica.lead(leader=1, epoch=2)
    replica.append(ONE)
    assert replica.outcomes == [ErrorCode.not_leader_or_follower] * 2


def test_an_append_to_no_replica_fails(replica: Replica) -> None:
    replica.append(ONE)
    assert replica.outcomes == [ErrorCode.unknown_topic_or_partition]


def test_an_append_with_too_few_replicas_in_sync_fails(tmp_path: Path) -> None:
    replica = Replica(tmp_path, min_insync=2)
    replica.lead()
    replica.append(ONE)
    assert replica.outcomes == [ErrorCode.not_enough_replicas]
    assert replica.replayed() == []


def test_a_new_leader_reads_beyond_what_it_knows_to_be_replicated(
    tmp_path: Path, replica: Replica
) -> None:
    """A follower may become leader before it knows that a commit was acknowledged."""
    replica.lead()
    replica.append(ONE)
    successor = Replica(tmp_path)
    successor.lead(isr=(0, 1), epoch=2)
    assert successor.manager.get(KEY).high_watermark == 0
    assert successor.replayed() == ONE


def transactional(offset: int, producer_id: int, key: bytes, *, control: bool) -> bytes:
    """Build a batch of one record as Kafka's transactions write it."""
    header = BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=1,
        magic=2,
        crc=0,
        attributes=0x30 if control else 0x10,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1,
        record_count=1,
    )
    value = bytes(6) if control else b"v"
    return build_batch(header, [(offset, 0, record_body(key, value))])


def test_transactions_are_read_with_their_ends(replica: Replica) -> None:
    replica.lead()
    commit, abort = b"\0\0\0\1", b"\0\0\0\0"
    batches = [
        transactional(0, 7, b"committed", control=False),
        transactional(1, 8, b"aborted", control=False),
        transactional(2, 9, b"open", control=False),
        transactional(3, 8, abort, control=True),
        transactional(4, 7, commit, control=True),
    ]
    partition = replica.manager.get(KEY)
    partition.log.append_as_follower(b"".join(batches), NOW.wall_ms)
    partition.advance_high_watermark()
    replica.append(ONE)
    assert replica.replayed() == ONE
    found = [each for each in replica.topic.replay_all(0) if each]
    assert found == [
        TransactionalRecords(7, [(b"committed", b"v")]),
        TransactionalRecords(8, [(b"aborted", b"v")]),
        TransactionalRecords(9, [(b"open", b"v")]),
        TransactionEnd(8, is_commit=False),
        TransactionEnd(7, is_commit=True),
        [tuple(each) for each in ONE],
    ]


def test_a_transactional_append_is_checked_and_read_as_one(replica: Replica) -> None:
    replica.lead()
    producers = replica.manager.get(KEY).log.producers
    replica.topic.append(0, ONE, replica.outcomes.append, InTransaction(7, 0, None))
    guard = producers.begin_verification(7, 0, 0, NOW.wall_ms)
    replica.topic.append(0, ONE, replica.outcomes.append, InTransaction(7, 0, guard))
    assert replica.outcomes == [ErrorCode.invalid_txn_state, ErrorCode.none]
    found = [each for each in replica.topic.replay_all(0) if each]
    assert found == [TransactionalRecords(7, [tuple(each) for each in ONE])]
    assert replica.manager.get(KEY).last_stable_offset == 0


def damage(path: Path, batch: int, at: int, byte: int) -> None:
    """Change one byte of a batch on disk."""
    (file,) = path.glob(f"{NAME}-0/*.log")
    content = bytearray(file.read_bytes())
    position = 0
    for _ in range(batch):
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    content[position + at] ^= byte
    file.write_bytes(bytes(content))


LAST_OFFSET_DELTA_AT, FIRST_RECORD_AT, LENGTH_AT, MAGIC_AT = 23, 61, 8, 16


@pytest.mark.parametrize("at", [FIRST_RECORD_AT, LAST_OFFSET_DELTA_AT, 57])
@pytest.mark.parametrize("load_bytes", [1, 150, 10_000])
@pytest.mark.parametrize("bad", [0, 4, 9])
def test_a_corrupt_batch_costs_its_own_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, load_bytes: int, bad: int
) -> None:
    replica = Replica(tmp_path, load_bytes=load_bytes)
    replica.lead()
    for number in range(10):
        replica.append([Record(b"k%d" % number, b"v"), Record(b"l%d" % number, b"w")])
    damage(tmp_path, bad, at, 1)
    expected = [
        record
        for number in range(10)
        if number != bad
        for record in (Record(b"k%d" % number, b"v"), Record(b"l%d" % number, b"w"))
    ]
    assert replica.replayed() == expected
    assert replica.topic.unreadable_batches == 1
    assert "an unreadable batch of __consumer_offsets is passed over" in caplog.text


@pytest.mark.parametrize(("at", "byte"), [(LENGTH_AT, 0x7F), (MAGIC_AT, 1), (7, 0x40)])
def test_a_batch_without_sound_ends_costs_the_rest_of_its_segment(
    tmp_path: Path, at: int, byte: int
) -> None:
    replica = Replica(tmp_path, load_bytes=10_000)
    replica.lead()
    for number in range(10):
        replica.append([Record(b"k%d" % number, b"v")])
    damage(tmp_path, 4, at, byte)
    replica.manager.get(KEY).log.roll(NOW.wall_ms)
    replica.append(TWO)
    kept = replica.replayed()
    assert kept[:4] == [Record(b"k%d" % number, b"v") for number in range(4)]
    assert kept[-2:] == TWO
    assert replica.topic.unreadable_batches == 1


@pytest.mark.parametrize(("count", "size"), [(1_000, 1), (30, 30_000), (64, 1_000)])
def test_a_large_batch_is_read_in_lists(
    replica: Replica, count: int, size: int
) -> None:
    replica.lead()
    sent = [Record(b"k%d" % number, b"v" * size) for number in range(count)]
    replica.append(sent)
    lists = list(replica.topic.replay(0))
    assert [Record(*each) for some in lists for each in some] == sent
    assert max(map(len, lists)) <= RECORDS_PER_LIST
    assert max(len(some[:-1]) * size for some in lists) < BYTES_PER_LIST


def test_a_coordinator_finds_its_offsets_again(tmp_path: Path) -> None:
    target = TopicPartition("t", 3)

    def start(epoch: int) -> GroupCoordinator:
        replica = Replica(tmp_path)
        replica.lead(epoch=epoch)
        config = GroupConfig(offsets_topic_num_partitions=1)
        coordinator = GroupCoordinator(
            config, log=replica.topic, clock=lambda: NOW, rng=random.Random(1)
        )
        coordinator.elect(0)
        coordinator.load_all()
        return coordinator

    request = CommitRequest(
        group_id="g",
        member_id="",
        generation=-1,
        instance_id=None,
        retention_ms=-1,
        positions={target: Position(42, 1, "here")},
    )
    waiting = start(1).offsets.commit(request)
    assert waiting.answer() == {target: ErrorCode.none}
    fetched = fetch_all(start(2).offsets, "g", require_stable=True)
    assert (fetched[target].offset, fetched[target].metadata) == (42, "here")
