"""The generator's hand-written bytes, against schemas that it does not share."""

from __future__ import annotations

import datetime
import struct
from types import SimpleNamespace
from typing import Any

import crc32c
import pytest
from kio.records.readers import read_batch
from kio.schema.errors import ErrorCode

from broker.protocol.wire import codec
from broker.protocol.wire.header import parse_request_header
from experiments.load import answers, wire

STATE = wire.Leadership(
    topic="load-control",
    partitions=(4, 5),
    controller_epoch=1000,
    leader_epoch=17,
    broker_id=3,
)
ENDPOINT = wire.Endpoint("127.0.0.1", 40123, "PLAINTEXT")
BATCH = wire.record_batch([b"one", b"two"], timestamp_ms=1_700_000_000_000)
BODIES = {
    wire.PRODUCE: wire.produce("load", [(0, BATCH), (7, BATCH)], acks=-1),
    wire.FETCH: wire.fetch(
        "load", [0, 2], partition_max_bytes=4096, max_wait_ms=50, min_bytes=1
    ),
    wire.METADATA: wire.metadata(),
    wire.LIST_OFFSETS: wire.list_offsets("load", [1, 3]),
    wire.LEADER_AND_ISR: wire.leader_and_isr(STATE, ENDPOINT),
    wire.UPDATE_METADATA: wire.update_metadata(STATE, ENDPOINT),
    wire.CREATE_TOPICS: wire.create_topics([("load", 8), ("other", 1)]),
}


def frame_of(api_key: int, correlation_id: int = 99) -> bytes:
    rest = wire.rest("tester", BODIES[api_key])
    return wire.head(api_key, correlation_id, len(rest)) + rest


def decoded(api_key: int) -> Any:
    frame = frame_of(api_key)[4:]
    header = parse_request_header(frame)
    return codec.decode(api_key, header.api_version, frame, header.body_offset)


@pytest.mark.parametrize("api_key", BODIES)
def test_every_request_is_byte_for_byte_what_the_schema_encodes(api_key: int) -> None:
    entity = decoded(api_key)
    version = wire.VERSIONS[api_key]
    encoded = codec.encode_request(api_key, version, 99, "tester", entity)
    assert frame_of(api_key) == encoded


def test_the_header_names_api_version_correlation_id_and_client() -> None:
    header = parse_request_header(frame_of(wire.PRODUCE, -5)[4:])
    assert (header.api_key, header.api_version) == (0, 8)
    assert (header.correlation_id, header.client_id) == (-5, "tester")


def test_produce_carries_acks_partitions_and_batches() -> None:
    request = decoded(wire.PRODUCE)
    assert request.acks == -1
    (topic,) = request.topic_data
    assert topic.name == "load"
    assert [part.index for part in topic.partition_data] == [0, 7]
    assert [bytes(part.records) for part in topic.partition_data] == [BATCH, BATCH]


def test_fetch_asks_from_offset_zero_within_its_limits() -> None:
    request = decoded(wire.FETCH)
    assert (request.replica_id, request.min_bytes, request.session_epoch) == (-1, 1, -1)
    assert request.max_wait.total_seconds() == 0.05
    wanted = [
        (part.partition, part.fetch_offset, part.partition_max_bytes)
        for part in request.topics[0].partitions
    ]
    assert wanted == [(0, 0, 4096), (2, 0, 4096)]


def test_metadata_asks_for_all_topics_and_creates_none() -> None:
    request = decoded(wire.METADATA)
    assert request.topics is None
    assert not request.allow_auto_topic_creation


def test_leader_and_isr_keeps_the_broker_leader_with_a_new_epoch() -> None:
    request = decoded(wire.LEADER_AND_ISR)
    assert request.controller_epoch == 1000
    (topic,) = request.topic_states
    assert topic.topic_name == "load-control"
    for partition, index in zip(topic.partition_states, (4, 5), strict=True):
        assert partition.partition_index == index
        assert (partition.leader, partition.leader_epoch) == (3, 17)
        assert tuple(partition.isr) == tuple(partition.replicas) == (3,)


def test_update_metadata_names_the_live_broker_where_it_listens() -> None:
    request = decoded(wire.UPDATE_METADATA)
    (live,) = request.live_brokers
    (place,) = live.endpoints
    assert (live.id, place.host, place.port) == (3, "127.0.0.1", 40123)


def test_record_batch_is_read_back_by_kio_and_its_crc_holds() -> None:
    batch = read_batch(BATCH, 0)[0]
    assert [record.value for record in batch.records] == [b"one", b"two"]
    # Offsets of the v2 format: CRC at byte 17, over everything from byte 21 on.
    (crc,) = struct.unpack_from(">I", BATCH, 17)
    assert crc == crc32c.crc32c(BATCH[21:])
    assert struct.unpack_from(">i", BATCH, 8)[0] == len(BATCH) - 12


# ---- answers: built by kio's writers, scanned by ours ----

NONE, FENCED = ErrorCode.none, ErrorCode.fenced_leader_epoch


def answer(api_key: int, **fields: Any) -> bytes:
    entity = SimpleNamespace(throttle_time=datetime.timedelta(0), **fields)
    return codec.encode(api_key, wire.VERSIONS[api_key], 5, entity)[4:]


def produce_answer(*codes: ErrorCode) -> bytes:
    partitions = tuple(
        SimpleNamespace(
            index=index,
            error_code=code,
            base_offset=9,
            log_append_time=None,
            log_start_offset=0,
            record_errors=(
                SimpleNamespace(batch_index=1, batch_index_error_message="bad"),
            ),
            error_message="why",
        )
        for index, code in enumerate(codes)
    )
    topic = SimpleNamespace(name="load", partition_responses=partitions)
    return answer(wire.PRODUCE, responses=(topic, topic))


def fetch_answer(*codes: ErrorCode) -> bytes:
    partitions = tuple(
        SimpleNamespace(
            partition_index=index,
            error_code=code,
            high_watermark=1,
            last_stable_offset=1,
            log_start_offset=0,
            aborted_transactions=(SimpleNamespace(producer_id=1, first_offset=2),),
            preferred_read_replica=-1,
            records=BATCH,
        )
        for index, code in enumerate(codes)
    )
    topic = SimpleNamespace(topic="load", partitions=partitions)
    return answer(wire.FETCH, error_code=NONE, session_id=0, responses=(topic, topic))


def metadata_answer(*codes: ErrorCode) -> bytes:
    partitions = tuple(
        SimpleNamespace(
            error_code=code,
            partition_index=index,
            leader_id=3,
            leader_epoch=0,
            replica_nodes=(3,),
            isr_nodes=(3, 4),
            offline_replicas=(),
        )
        for index, code in enumerate(codes)
    )
    topic = SimpleNamespace(
        error_code=NONE,
        name="load",
        is_internal=False,
        partitions=partitions,
        topic_authorized_operations=0,
    )
    node = SimpleNamespace(node_id=3, host="h", port=9092, rack=None)
    return answer(
        wire.METADATA,
        brokers=(node,),
        cluster_id="c",
        controller_id=3,
        topics=(topic, topic),
        cluster_authorized_operations=0,
    )


def list_offsets_answer(*codes: ErrorCode) -> bytes:
    partitions = tuple(
        SimpleNamespace(
            partition_index=index,
            error_code=code,
            timestamp=-1,
            offset=4,
            leader_epoch=0,
        )
        for index, code in enumerate(codes)
    )
    topic = SimpleNamespace(name="load", partitions=partitions)
    return answer(wire.LIST_OFFSETS, topics=(topic, topic))


def leader_and_isr_answer(*codes: ErrorCode) -> bytes:
    partitions = tuple(
        SimpleNamespace(topic_name="load", partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    )
    return answer(wire.LEADER_AND_ISR, error_code=NONE, partition_errors=partitions)


def create_topics_answer(*codes: ErrorCode) -> bytes:
    topics = tuple(
        SimpleNamespace(name="load", error_code=code, error_message="no")
        for code in codes
    )
    return answer(wire.CREATE_TOPICS, topics=topics)


ANSWERS = {
    wire.PRODUCE: produce_answer,
    wire.FETCH: fetch_answer,
    wire.METADATA: metadata_answer,
    wire.LIST_OFFSETS: list_offsets_answer,
    wire.LEADER_AND_ISR: leader_and_isr_answer,
    wire.CREATE_TOPICS: create_topics_answer,
}


@pytest.mark.parametrize("api_key", ANSWERS)
def test_an_answer_without_errors_has_none(api_key: int) -> None:
    assert answers.error_of(api_key, ANSWERS[api_key](NONE, NONE, NONE)) == 0


@pytest.mark.parametrize("api_key", ANSWERS)
@pytest.mark.parametrize("place", range(3))
def test_the_first_error_is_found_in_any_partition(api_key: int, place: int) -> None:
    codes = [NONE] * 3
    codes[place] = FENCED
    assert answers.error_of(api_key, ANSWERS[api_key](*codes)) == FENCED.value


def test_an_update_metadata_answer_is_its_error_code() -> None:
    found = answer(wire.UPDATE_METADATA, error_code=FENCED)
    assert answers.error_of(wire.UPDATE_METADATA, found) == FENCED.value


def test_a_truncated_answer_is_an_error_and_not_a_success() -> None:
    whole = produce_answer(NONE)
    with pytest.raises(struct.error):
        answers.error_of(wire.PRODUCE, whole[:20])


def test_the_broker_is_found_in_a_metadata_answer() -> None:
    assert answers.node_of(metadata_answer(NONE)) == (3, "h", 9092)


def test_a_long_record_is_read_back_whole() -> None:
    batch = wire.record_batch([b"x" * 100_000], timestamp_ms=0)
    assert read_batch(batch, 0)[0].records[0].value == b"x" * 100_000
