"""Produce, Fetch and offsets: Apache Kafka's answers and ours."""

from __future__ import annotations

import struct
from datetime import timedelta
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.records.batch_records import new_batch
from tests.broker.apis.requests import batch, fetch_fields, produce_fields
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import init_producer_id, topic, topic_id, versions

FAR_MS = 4_000_000_000_000

pytestmark = pytest.mark.kafka


def produce(peer: Peer, name: str, records: bytes | None, **fields: int) -> None:
    version = fields.pop("version", 11)
    partition = fields.pop("partition", 0)
    peer.send(
        ApiKey.PRODUCE,
        version,
        **produce_fields({(name, partition): records}, **fields),
    )


def fetch(peer: Peer, name: str | UUID, offset: int = 0, **fields: int) -> None:
    version = fields.pop("version", 12)
    peer.send(ApiKey.FETCH, version, **fetch_fields({(name, 0): offset}, **fields))


def changed(records: bytes, position: int, code: str, value: int) -> bytes:
    """Return a batch with a changed header field and its old CRC."""
    altered = bytearray(records)
    struct.pack_into(">" + code, altered, position, value)
    return bytes(altered)


@same_answers
def test_produce_in_every_version(peer: Peer) -> None:
    topic(peer, "produced", 2)
    for version in versions(ApiKey.PRODUCE):
        for acks in (-1, 1):
            produce(peer, "produced", batch(b"a", b"b"), version=version, acks=acks)
        for acks in (2, -2):
            produce(peer, "produced", batch(b"x"), version=version, acks=acks)
        peer.send(
            ApiKey.PRODUCE,
            version,
            **produce_fields(
                {
                    ("produced", 1): batch(b"one"),
                    ("produced", 2): batch(b"no such partition"),
                    ("nowhere", 0): batch(b"no such topic"),
                    ("produced", 0): batch(b"zero"),
                }
            ),
        )
    fetch(peer, "produced")


@same_answers
def test_produce_without_acknowledgement(peer: Peer) -> None:
    topic(peer, "unacknowledged")
    fields = produce_fields({("unacknowledged", 0): batch(b"a")}, acks=0)
    peer.start(ApiKey.PRODUCE, 9, **fields)
    produce(peer, "unacknowledged", batch(b"b"))
    fields = produce_fields({("nowhere", 0): batch(b"a")}, acks=0)
    peer.start(ApiKey.PRODUCE, 9, connection="other", **fields)
    peer.note("an error without an answer", peer.receive("other"))


@same_answers
def test_bad_batches(peer: Peer) -> None:
    topic(peer, "strict")
    good = batch(b"value")
    for records in (
        b"",
        good[:-1],
        good[:40],
        good + good,
        changed(good, 17, "I", 12345),
        changed(good, 16, "b", 1),
        changed(good, 16, "b", 3),
        changed(good, 8, "i", 5),
        changed(good, 8, "i", -1),
        changed(good, 8, "i", 1 << 20),
        batch(b"a control batch", attributes=0x20),
        batch(b"x" * 100_000),
        batch(b"in 2096", timestamp_ms=FAR_MS),
        batch(b"no time", timestamp_ms=-1),
    ):
        for version in (3, 9, 11):
            produce(peer, "strict", records, version=version)
    fetch(peer, "strict", version=11)


@same_answers
def test_batches_that_we_are_stricter_with_or_look_less_into(peer: Peer) -> None:
    for name, attributes in (
        ("a-transaction", 0x10),
        ("log-append-time", 0x08),
        ("codec-7", 0x07),
        ("not-gzip", 0x01),
    ):
        produce(peer, topic(peer, name), batch(b"value", attributes=attributes))


@same_answers
def test_the_topic_has_a_say_in_what_is_appended(peer: Peer) -> None:
    topic(peer, "compacted", cleanup_policy="compact")
    produce(peer, "compacted", batch(b"no key"))
    produce(peer, "compacted", new_batch([(1000, b"key", b"value")]))
    topic(peer, "small", max_message_bytes="100")
    produce(peer, "small", batch(b"x" * 200))
    topic(peer, "timely", message_timestamp_before_max_ms="3600000")
    produce(peer, "timely", batch(b"long ago", timestamp_ms=1000))


@same_answers
def test_every_codec(peer: Peer) -> None:
    topic(peer, "codecs")
    for codec in range(5):
        records = [(1000 + number, b"key", b"value" * number) for number in range(9)]
        produce(peer, "codecs", new_batch(records, codec=codec))
    for version in (4, 9, 10, 11, 12):
        fetch(peer, "codecs", version=version)


@same_answers
def test_idempotent_producer(peer: Peer) -> None:
    topic(peer, "idempotent")
    producer = init_producer_id(peer).producer_id
    for epoch, sequence in (
        (0, 5),
        (0, 0),
        (0, 0),
        (0, 2),
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
        (0, 5),
        (0, 6),
        (0, 2),
        (0, 0),
        (0, 9),
        (1, 3),
        (1, 0),
        (0, 7),
        (-1, 1),
        (1, -1),
    ):
        produce(
            peer,
            "idempotent",
            batch(b"once", producer=(producer, epoch, sequence)),
        )
    produce(peer, "idempotent", batch(b"new", producer=(987654, 3, 0)))
    produce(peer, "idempotent", batch(b"new", producer=(987655, 3, 2)))


@same_answers
def test_init_producer_id(peer: Peer) -> None:
    for version in versions(ApiKey.INIT_PRODUCER_ID):
        for producer, epoch in ((-1, -1), (5, -1), (-1, 3), (7, 3)):
            peer.send(
                ApiKey.INIT_PRODUCER_ID,
                version,
                transactional_id=None,
                transaction_timeout=timedelta(seconds=60),
                producer_id=producer,
                producer_epoch=epoch,
            )


@same_answers
def test_fetch_in_every_version(peer: Peer) -> None:
    name = topic(peer, "fetched")
    produce(peer, name, batch(b"a", b"b"))
    produce(peer, name, batch(b"c"))
    named = topic_id(peer, name)
    for version in versions(ApiKey.FETCH):
        wanted = name if version < 13 else named
        for offset in (0, 1, 2, 3, 4, -1):
            fetch(peer, wanted, offset, version=version)
        unknown = "nowhere" if version < 13 else UUID(int=77)
        fetch(peer, unknown, version=version)
        for epoch in (0, 1):
            fetch(peer, wanted, version=version, epoch=epoch)
            fetch(peer, wanted, 9, version=version, epoch=epoch)
        fetch(peer, wanted, version=version, partition_max_bytes=1)
        fetch(peer, wanted, version=version, max_bytes=1)
        fetch(peer, wanted, 3, version=version, max_wait_ms=50, min_bytes=100)
        fetch(peer, wanted, 1, version=version, isolation_level=1)
        fetch(peer, wanted, version=version, session_id=5, session_epoch=-1)
        fetch(peer, wanted, version=version, session_id=5, session_epoch=1)
        if version >= 12:
            for last, offset in ((0, 3), (0, 9), (3, 1), (-1, 3)):
                fetch(
                    peer,
                    wanted,
                    offset,
                    version=version,
                    epoch=0,
                    last_fetched_epoch=last,
                )


@same_answers
def test_fetch_session(peer: Peer) -> None:
    name = topic(peer, "session", 2)
    ours = {(name, 0): 0, (name, 1): 0}
    answer = peer.send(
        ApiKey.FETCH, 12, **fetch_fields(ours, session_id=0, session_epoch=0)
    )
    session = answer.session_id

    def again(epoch: int, wanted: dict[tuple[str, int], int], **fields) -> None:
        told = fetch_fields(wanted, session_id=session, session_epoch=epoch, **fields)
        peer.send(ApiKey.FETCH, 12, **told)

    again(1, {})
    produce(peer, name, batch(b"a"), partition=1)
    again(2, {})
    again(2, {})
    again(3, {(name, 1): 1})
    again(4, {(name, 0): 9})
    again(5, {}, forgotten_topics_data=[{"topic": name, "partitions": [0]}])
    produce(peer, name, batch(b"b"), partition=0)
    again(6, {})
    again(9, {})
    again(-1, {(name, 0): 0})
    again(7, {})


@same_answers
def test_order_and_size_limits_of_a_fetch(peer: Peer) -> None:
    name = topic(peer, "wide", 4)
    for partition in range(4):
        produce(peer, name, batch(b"x" * 500), partition=partition)
        produce(peer, name, batch(b"y" * 500), partition=partition)
    for max_bytes in (1, 600, 1200, 1 << 20):
        for order in ((0, 1, 2, 3), (2, 0, 3, 1)):
            wanted = {(name, partition): 0 for partition in order}
            peer.send(ApiKey.FETCH, 11, **fetch_fields(wanted, max_bytes=max_bytes))


@same_answers
def test_list_offsets(peer: Peer) -> None:
    name = topic(peer, "listed")
    topic(peer, "bare")
    for at in (1000, 3000, 2000, 3000):
        produce(peer, name, batch(b"a", b"b", timestamp_ms=at))
    for version in versions(ApiKey.LIST_OFFSETS):
        for timestamp in (-1, -2, -3, -4, -5, -6, 0, 999, 1001, 1002, 2001, 3001, 3002):
            for leader_epoch, isolation in ((-1, 0), (0, 1), (1, 0)):
                peer.send(
                    ApiKey.LIST_OFFSETS,
                    version,
                    replica_id=-1,
                    isolation_level=isolation,
                    topics=[
                        {
                            "name": each,
                            "partitions": [
                                {
                                    "partition_index": index,
                                    "timestamp": timestamp,
                                    "current_leader_epoch": leader_epoch,
                                }
                                for index in (0, 5)
                            ],
                        }
                        for each in (name, "bare", "nowhere")
                    ],
                )
    twice = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    for version in (5, 9):
        peer.send(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=-1,
            topics=[{"name": name, "partitions": [twice, twice]}],
        )


@same_answers
def test_offset_for_leader_epoch(peer: Peer) -> None:
    name = topic(peer, "epochs")
    produce(peer, name, batch(b"a", b"b"))
    for version in versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        for epoch in (-1, 0, 1, 5):
            for current in (-1, 0, 1):
                wanted = [
                    {
                        "partition": index,
                        "leader_epoch": epoch,
                        "current_leader_epoch": current,
                    }
                    for index in (0, 3)
                ]
                peer.send(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    version,
                    replica_id=-1,
                    topics=[
                        {"topic": name, "partitions": wanted},
                        {"topic": "nowhere", "partitions": wanted[:1]},
                    ],
                )


@same_answers
def test_delete_records(peer: Peer) -> None:
    name = topic(peer, "cut")
    for value in (b"a", b"b", b"c", b"d"):
        produce(peer, name, batch(value))
    for version in versions(ApiKey.DELETE_RECORDS):
        for offset in (-2, 5, 0, 1 + version, -1):
            if offset == -1 and version < 2:
                continue
            peer.send(
                ApiKey.DELETE_RECORDS,
                version,
                topics=[
                    {
                        "name": each,
                        "partitions": [{"partition_index": 0, "offset": offset}],
                    }
                    for each in (name, "nowhere")
                ],
                timeout=timedelta(seconds=5),
            )
            fetch(peer, name, 0)
            fetch(peer, name, 3)
    produce(peer, name, batch(b"e"))
    fetch(peer, name, 4)
    topic(peer, "kept", cleanup_policy="compact")
    peer.send(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": "kept", "partitions": [{"partition_index": 0, "offset": 0}]}],
        timeout=timedelta(seconds=5),
    )
