"""The load's bytes against handwritten requests, and its parsing of responses."""

from __future__ import annotations

import datetime
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.records.readers import read_batch
from kio.schema.errors import ErrorCode

from broker.apis.common.api import Api
from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.records.batch_records import new_batch
from broker.protocol.wire import codec
from broker.protocol.wire.header import parse_request_header
from experiments.design.request_shapes import (
    ConsumerGroupHeartbeatShape,
    FetchShape,
    LeaderAndIsrShape,
    ListOffsetsShape,
    MetadataShape,
    Occasion,
    OffsetCommitShape,
    ProduceShape,
    UpdateMetadataShape,
)
from experiments.design.requests import LOADS
from experiments.load import frames
from experiments.load import load_requests as requests
from tests.experiments import handwritten_requests as written

STATE = written.Leadership(
    topic="load-control",
    partitions=(4, 5),
    controller_epoch=1000,
    leader_epoch=17,
    broker_id=3,
)
ENDPOINT = written.Endpoint("127.0.0.1", 40123, "PLAINTEXT")
BATCH = written.record_batch([b"one", b"two"], timestamp_ms=1_700_000_000_000)


def occasion(topic: str = "load", position: int = 0) -> Occasion:
    return Occasion(
        topic=topic,
        position=position,
        broker_id=3,
        host="127.0.0.1",
        port=40123,
        controller_epoch=1000,
        leader_epoch=17,
        batch=lambda records, record_bytes: BATCH,
    )


BODIES = {
    ApiKey.PRODUCE: ProduceShape(partitions=2, topic_partitions=8, acks=-1).body(
        occasion(position=3)
    ),
    ApiKey.FETCH: FetchShape(
        partitions=2, partition_max_bytes=4096, max_wait_ms=50, min_bytes=1
    ).body(occasion()),
    ApiKey.METADATA: MetadataShape().body(occasion()),
    ApiKey.LIST_OFFSETS: ListOffsetsShape(partitions=2).body(occasion()),
    ApiKey.LEADER_AND_ISR: LeaderAndIsrShape(partitions=2).body(
        occasion("load-control", position=2)
    ),
    ApiKey.UPDATE_METADATA: UpdateMetadataShape(partitions=2).body(
        occasion("load-control", position=2)
    ),
    ApiKey.OFFSET_COMMIT: OffsetCommitShape(partitions=2).body(occasion(position=7)),
    ApiKey.FIND_COORDINATOR: OffsetCommitShape().preparation(occasion(position=7))[0],
    ApiKey.CREATE_TOPICS: requests.create_topics({"load": 8, "other": 1}).body,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatShape().body(
        occasion(position=7)
    ),
}
WRITTEN = {
    ApiKey.PRODUCE: written.produce("load", [(6, BATCH), (7, BATCH)], acks=-1),
    ApiKey.FETCH: written.fetch(
        "load", [0, 1], partition_max_bytes=4096, max_wait_ms=50, min_bytes=1
    ),
    ApiKey.METADATA: written.metadata(),
    ApiKey.LIST_OFFSETS: written.list_offsets("load", [0, 1]),
    ApiKey.LEADER_AND_ISR: written.leader_and_isr(STATE, ENDPOINT),
    ApiKey.UPDATE_METADATA: written.update_metadata(STATE, ENDPOINT),
    ApiKey.OFFSET_COMMIT: written.offset_commit("load-0007", "load", [0, 1]),
    ApiKey.FIND_COORDINATOR: written.find_coordinator("load-0007"),
    ApiKey.CREATE_TOPICS: written.create_topics([("load", 8), ("other", 1)]),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: written.consumer_group_heartbeat(
        "load-0007", "load-0007", epoch=2
    ),
}


def decoded(api_key: ApiKey) -> Any:
    frame = requests.encode(api_key, 99, "tester", BODIES[api_key])[4:]
    header = parse_request_header(frame)
    return codec.decode(api_key, header.api_version, frame, header.body_offset)


@pytest.mark.parametrize("api_key", BODIES)
def test_every_request_is_byte_for_byte_what_was_written_by_hand(
    api_key: ApiKey,
) -> None:
    rest = written.rest("tester", WRITTEN[api_key])
    expected = written.head(api_key, 99, len(rest)) + rest
    assert requests.encode(api_key, 99, "tester", BODIES[api_key]) == expected


def test_all_that_a_workload_may_send_was_written_by_hand() -> None:
    assert {api.key for api in LOADS.values()} <= set(WRITTEN)


def test_the_header_names_api_version_correlation_id_and_client() -> None:
    frame = requests.encode(ApiKey.PRODUCE, -5, "tester", BODIES[ApiKey.PRODUCE])
    header = parse_request_header(frame[4:])
    assert (header.api_key, header.api_version) == (0, 8)
    assert (header.correlation_id, header.client_id) == (-5, "tester")


@pytest.mark.parametrize("api", LOADS.values(), ids=list(LOADS))
def test_no_request_is_flexible_unless_all_versions_are(api: Api) -> None:
    """Apache Kafka 2.4 can then read the requests of its APIs."""
    assert requests.version(api.key) < max(FIRST_FLEXIBLE[api.key], 1)


def test_a_follower_s_fetch_names_the_next_broker_and_is_replication() -> None:
    shape = FetchShape(partitions=1, follower=True)
    body = written.fetch(
        "load",
        [0],
        partition_max_bytes=16384,
        max_wait_ms=0,
        min_bytes=0,
        replica_id=4,
    )
    rest = written.rest("tester", body)
    frame = requests.encode(ApiKey.FETCH, 99, "tester", shape.body(occasion()))
    assert frame == written.head(written.FETCH, 99, len(rest)) + rest
    assert shape.request_class == "replication"


def test_what_several_rows_produce_is_one_batch_with_the_records_of_all() -> None:
    sizes = []

    def batch(records: int, record_bytes: int) -> bytes:
        sizes.append((records, record_bytes))
        return BATCH

    on = replace(occasion(), batch=batch)
    ProduceShape(records=2, record_bytes=100).carrying(5).body(on)
    assert sizes == [(10, 100)]


def test_produce_carries_acks_partitions_and_batches() -> None:
    request = decoded(ApiKey.PRODUCE)
    assert request.acks == -1
    (topic,) = request.topic_data
    assert topic.name == "load"
    assert [part.index for part in topic.partition_data] == [6, 7]
    assert [bytes(part.records) for part in topic.partition_data] == [BATCH, BATCH]


def test_fetch_asks_from_offset_zero_within_its_limits() -> None:
    request = decoded(ApiKey.FETCH)
    assert (request.replica_id, request.min_bytes, request.session_epoch) == (-1, 1, -1)
    assert request.max_wait.total_seconds() == 0.05
    wanted = [
        (part.partition, part.fetch_offset, part.partition_max_bytes)
        for part in request.topics[0].partitions
    ]
    assert wanted == [(0, 0, 4096), (1, 0, 4096)]


def test_metadata_asks_for_all_topics_and_creates_none() -> None:
    request = decoded(ApiKey.METADATA)
    assert request.topics is None
    assert not request.allow_auto_topic_creation


def test_leader_and_isr_keeps_the_broker_leader_with_a_new_epoch() -> None:
    request = decoded(ApiKey.LEADER_AND_ISR)
    assert request.controller_epoch == 1000
    (topic,) = request.topic_states
    assert topic.topic_name == "load-control"
    for partition, index in zip(topic.partition_states, (4, 5), strict=True):
        assert partition.partition_index == index
        assert (partition.leader, partition.leader_epoch) == (3, 17)
        assert tuple(partition.isr) == tuple(partition.replicas) == (3,)


def test_update_metadata_names_the_live_broker_where_it_listens() -> None:
    request = decoded(ApiKey.UPDATE_METADATA)
    (live,) = request.live_brokers
    (place,) = live.endpoints
    assert (live.id, place.host, place.port) == (3, "127.0.0.1", 40123)


def test_the_load_s_batches_are_those_written_by_hand() -> None:
    values = [b"one", b"two"]
    built = new_batch([(1_700_000_000_000, None, value) for value in values])
    assert built == BATCH
    assert [record.value for record in read_batch(BATCH, 0)[0].records] == values


# ---- responses: built by kio's writers, scanned by ours ----

NONE, FENCED = ErrorCode.none, ErrorCode.fenced_leader_epoch


def answer(api_key: int, **fields: Any) -> bytes:
    entity = SimpleNamespace(throttle_time=datetime.timedelta(0), **fields)
    return codec.encode(api_key, requests.version(api_key), 5, entity)[4:]


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
    return answer(ApiKey.PRODUCE, responses=(topic, topic))


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
    return answer(ApiKey.FETCH, error_code=NONE, session_id=0, responses=(topic, topic))


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
        ApiKey.METADATA,
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
    return answer(ApiKey.LIST_OFFSETS, topics=(topic, topic))


def leader_and_isr_answer(*codes: ErrorCode) -> bytes:
    partitions = tuple(
        SimpleNamespace(topic_name="load", partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    )
    return answer(ApiKey.LEADER_AND_ISR, error_code=NONE, partition_errors=partitions)


def create_topics_answer(*codes: ErrorCode) -> bytes:
    topics = tuple(
        SimpleNamespace(name="load", error_code=code, error_message="no")
        for code in codes
    )
    return answer(ApiKey.CREATE_TOPICS, topics=topics)


ANSWERS = {
    ApiKey.PRODUCE: produce_answer,
    ApiKey.FETCH: fetch_answer,
    ApiKey.METADATA: metadata_answer,
    ApiKey.LIST_OFFSETS: list_offsets_answer,
    ApiKey.LEADER_AND_ISR: leader_and_isr_answer,
    ApiKey.CREATE_TOPICS: create_topics_answer,
}


@pytest.mark.parametrize("api_key", ANSWERS)
def test_an_answer_without_errors_has_none(api_key: int) -> None:
    assert requests.error_of(api_key, ANSWERS[api_key](NONE, NONE, NONE)) == 0


@pytest.mark.parametrize("api_key", ANSWERS)
@pytest.mark.parametrize("place", range(3))
def test_the_first_error_is_found_in_any_partition(api_key: int, place: int) -> None:
    codes = [NONE] * 3
    codes[place] = FENCED
    assert requests.error_of(api_key, ANSWERS[api_key](*codes)) == FENCED.value


def test_an_update_metadata_answer_is_its_error_code() -> None:
    found = answer(ApiKey.UPDATE_METADATA, error_code=FENCED)
    assert requests.error_of(ApiKey.UPDATE_METADATA, found) == FENCED.value


def test_a_truncated_answer_is_an_error_and_not_a_success() -> None:
    whole = produce_answer(NONE)
    with pytest.raises(MalformedFrame):
        requests.error_of(ApiKey.PRODUCE, whole[:20])


def test_the_broker_is_found_in_a_metadata_answer() -> None:
    found = frames.node_of(metadata_answer(NONE))
    assert (found.broker_id, found.host, found.port) == (3, "h", 9092)
