"""Records over several requests: Apache Kafka's answers and ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.records.batch_records import new_batch
from tests.broker.apis.requests import batch, fetch_fields, produce_fields
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import init_producer_id, settle, topic, versions

pytestmark = pytest.mark.kafka


def produce(peer: Peer, name: str, records: bytes | None, **fields: Any) -> None:
    told = produce_fields({(name, 0): records}, **fields)
    peer.send(ApiKey.PRODUCE, 11, **told)


def fetch(peer: Peer, name: str, offset: int, **fields: Any) -> None:
    peer.send(ApiKey.FETCH, 12, **fetch_fields({(name, 0): offset}, **fields))


def list_offsets(peer: Peer, name: str, *timestamps: int) -> None:
    for timestamp in timestamps:
        wanted = {"partition_index": 0, "timestamp": timestamp}
        peer.send(
            ApiKey.LIST_OFFSETS,
            8,
            replica_id=-1,
            topics=[
                {"name": name, "partitions": [{**wanted, "current_leader_epoch": -1}]}
            ],
        )


def delete_records(peer: Peer, name: str, offset: int, partition: int = 0) -> None:
    wanted = {"partition_index": partition, "offset": offset}
    peer.send(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": name, "partitions": [wanted]}],
        timeout=timedelta(seconds=5),
    )


@same_answers
def test_records_left_after_a_deletion(peer: Peer) -> None:
    name = topic(peer, "left")
    for number in range(5):
        produce(peer, name, batch(b"a", b"b", timestamp_ms=1000 * (number + 1)))
    for offset in (3, 3, 2, 8, 10, 11, -1, -2):
        delete_records(peer, name, offset)
        list_offsets(peer, name, -1, -2, -3, -4, 0, 2000, 4500, 5001, 9000)
        for start in (0, 2, 3, 9, 10, 11):
            fetch(peer, name, start)
    produce(peer, name, batch(b"after"))
    fetch(peer, name, 10)
    delete_records(peer, name, 1, partition=7)
    delete_records(peer, name, 1, partition=-1)


@same_answers
def test_times_of_records_in_every_codec(peer: Peer) -> None:
    for codec in range(5):
        name = topic(peer, f"times-{codec}")
        times = (5000, 3000, 9000, 9000, 1000)
        records = [(at, b"key", b"value") for at in times]
        for _ in range(2):
            produce(peer, name, new_batch(records, codec=codec))
        list_offsets(peer, name, -3, 0, 1000, 3001, 5001, 9000, 9001)


@same_answers
def test_topics_that_keep_the_brokers_time(peer: Peer) -> None:
    name = topic(peer, "brokers-time", message_timestamp_type="LogAppendTime")
    for version in versions(ApiKey.PRODUCE):
        told = produce_fields({(name, 0): batch(b"a", b"b", timestamp_ms=1000)})
        peer.send(ApiKey.PRODUCE, version, **told)
    answer = peer.ask(ApiKey.FETCH, 12, **fetch_fields({(name, 0): 0}))
    (row,) = answer.responses[0].partitions
    # The timestamps differ, but their type and the CRC over them do not.
    peer.note("attributes", row.records[21:23])
    list_offsets(peer, name, -1, -2)


@same_answers
def test_producers_that_come_back(peer: Peer) -> None:
    name = topic(peer, "idempotence", 2)
    producer = init_producer_id(peer).producer_id

    def once(epoch: int, sequence: int, *values: bytes, partition: int = 0) -> None:
        records = batch(*(values or (b"x",)), producer=(producer, epoch, sequence))
        told = produce_fields({(name, partition): records}, acks=-1)
        peer.send(ApiKey.PRODUCE, 11, **told)

    for sequence in range(7):
        once(0, sequence)
    # Only the last five batches are remembered.
    for sequence in (6, 2, 1, 0):
        once(0, sequence)
    once(0, 6, b"other", b"length")
    once(0, 8)
    once(0, 7, b"a", b"b", b"c")
    once(0, 7, b"a", b"b", b"c")
    once(0, 8, b"b")
    # Sequence numbers are per partition.
    once(0, 5, partition=1)
    once(0, 0, partition=1)
    # A new epoch begins at sequence 0 and fences the old one.
    once(1, 4)
    once(1, 0)
    once(0, 10)
    once(1, 1)
    once(1, 0)
    once(3, 0)
    # Sequence numbers wrap around.
    other = init_producer_id(peer).producer_id
    last = 2**31 - 1
    for sequence, values in ((last - 1, (b"a", b"b")), (0, (b"c",)), (last, (b"d",))):
        records = batch(*values, producer=(other, 0, sequence))
        produce(peer, name, records)
    delete_records(peer, name, -1)
    once(3, 1)
    once(3, 0)
    fetch(peer, name, 0)


@same_answers
def test_one_request_with_many_fates(peer: Peer) -> None:
    topic(peer, "fates", 3, max_message_bytes="300")
    producer = init_producer_id(peer).producer_id
    for _ in range(2):
        told = produce_fields(
            {
                ("fates", 0): batch(b"fits", producer=(producer, 0, 0)),
                ("fates", 1): batch(b"x" * 400, producer=(producer, 0, 0)),
                ("fates", 2): batch(b"y", producer=(producer, 0, 4)),
                ("fates", 9): batch(b"z"),
                ("nowhere", 0): batch(b"z"),
                ("a/b", 0): batch(b"z"),
            },
            acks=-1,
        )
        peer.send(ApiKey.PRODUCE, 11, **told)
    for version in versions(ApiKey.FETCH):
        if version < 13:
            wanted = {("fates", index): 0 for index in (0, 1, 2, 9)}
            told = fetch_fields({**wanted, ("nowhere", 0): 0, ("a/b", 0): 3})
            peer.send(ApiKey.FETCH, version, **told)


@same_answers
def test_a_compacted_topic(peer: Peer) -> None:
    name = topic(peer, "compact-steps", cleanup_policy="compact")
    produce(peer, name, new_batch([(1000, b"k", b"1"), (1001, b"k", None)]))
    produce(peer, name, new_batch([(1002, b"k", b"2"), (1003, None, b"3")]))
    produce(peer, name, new_batch([(1004, b"", b"4")], codec=4))
    fetch(peer, name, 0)
    delete_records(peer, name, 1)
    list_offsets(peer, name, -1, -2, -3, 1001)


@same_answers
def test_a_waiting_fetch_is_woken(peer: Peer) -> None:
    name = topic(peer, "waiting")
    for version in (4, 11, 12):
        answer = peer.ask(ApiKey.LIST_OFFSETS, 1, **_latest(name))
        end = answer.topics[0].partitions[0].offset
        told = fetch_fields({(name, 0): end}, max_wait_ms=2500)
        peer.start(ApiKey.FETCH, version, connection="reader", **told)
        # Kafka reads the high watermark before the records. At the first attempt the
        # former may be from before an append and the latter from after.
        settle(peer)
        produce(peer, name, batch(b"news"))
        peer.finish(ApiKey.FETCH, version, "reader")
    told = fetch_fields({(name, 0): 0}, max_wait_ms=100, min_bytes=10_000)
    peer.send(ApiKey.FETCH, 12, **told)


def _latest(name: str) -> dict[str, Any]:
    wanted = {"partition_index": 0, "timestamp": -1}
    return {"replica_id": -1, "topics": [{"name": name, "partitions": [wanted]}]}
