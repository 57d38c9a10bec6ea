"""Classes from API keys, followers from their replica id, costs from measurements."""

import struct
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire import replica_ids
from broker.protocol.wire.header import RequestHeader
from broker.requests.classifier import Classifier
from broker.requests.entitlement import CONTROLLER
from broker.requests.request import Request
from planes import Task

CONNECTION = 17
PEER = SimpleNamespace(connection_id=CONNECTION, entitlement=CONTROLLER)


def is_follower_fetch(fetch, frame):
    return replica_ids.of_fetch(fetch, frame) >= 0


def header(api_key, version=0, offset=10, client="c"):
    return RequestHeader(api_key, version, 1, client, offset)


def request(api_key, size, service_ns):
    return Request(
        Task(number=0, size_bytes=size, service_ns=service_ns),
        api_key=api_key,
        api_version=0,
        correlation_id=0,
        client_id="",
        frame=b"",
        body_offset=0,
        peer=None,
    )


@pytest.mark.parametrize(
    ("api", "request_class", "level"),
    [
        (ApiKey.LEADER_AND_ISR, "control", 0),
        (ApiKey.STOP_REPLICA, "control", 0),
        (ApiKey.UPDATE_METADATA, "control", 0),
        (ApiKey.CONTROLLED_SHUTDOWN, "control", 0),
        (ApiKey.JOIN_GROUP, "group", 2),
        (ApiKey.HEARTBEAT, "group", 2),
        (ApiKey.OFFSET_COMMIT, "group", 2),
        (ApiKey.METADATA, "metadata", 3),
        (ApiKey.API_VERSIONS, "metadata", 3),
        (ApiKey.LIST_OFFSETS, "metadata", 3),
        (ApiKey.INIT_PRODUCER_ID, "metadata", 3),
        (ApiKey.PRODUCE, "produce", 4),
        (ApiKey.CREATE_TOPICS, "admin", 5),
        (ApiKey.DESCRIBE_CONFIGS, "admin", 5),
    ],
)
def test_the_class_follows_from_the_api(api, request_class, level):
    found = Classifier(APIS).classify(header(api), b"", PEER)
    assert found[:3] == (request_class, level, request_class)


def test_levels_are_the_operators_to_set():
    classifier = Classifier(APIS, levels={"produce": 9})
    assert classifier.classify(header(ApiKey.PRODUCE), b"", PEER)[1] == 9
    assert classifier.classify(header(ApiKey.METADATA), b"", PEER)[1] == 3


@pytest.mark.parametrize(
    ("flow", "expected"),
    [("class", "group"), ("client.id", "group/c"), ("connection", "group/17")],
)
def test_the_flow_is_what_is_shared_among(flow, expected):
    classifier = Classifier(APIS, flow=flow)
    assert classifier.classify(header(ApiKey.HEARTBEAT), b"", PEER)[2] == expected


@given(st.integers(0, 14), st.integers(-1, 2**31 - 1), st.binary(max_size=30))
def test_up_to_version_14_the_replica_id_begins_the_body(version, replica_id, rest):
    frame = bytes(10) + struct.pack(">i", replica_id) + rest
    fetch = header(ApiKey.FETCH, version)
    assert is_follower_fetch(fetch, frame) == (replica_id >= 0)


@given(st.integers(0, 2**31 - 1), st.integers(-1, 2**62), st.binary(max_size=60))
def test_from_version_15_it_is_the_last_tagged_field(replica_id, epoch, body):
    state = struct.pack(">BBiqB", 1, 13, replica_id, epoch, 0)
    fetch = header(ApiKey.FETCH, 15)
    assert is_follower_fetch(fetch, bytes(10) + body + b"\x01" + state)
    consumer = struct.pack(">BBiqB", 1, 13, -1, epoch, 0)
    assert not is_follower_fetch(fetch, bytes(10) + body + b"\x01" + consumer)


def test_a_consumers_fetch_is_not_replication():
    # Version 17 as librdkafka sends it: an empty rack id, no tagged fields.
    body = struct.pack(">iiibii", 500, 1, 1 << 20, 0, 0, -1) + b"\x01\x01\x01\x00"
    for version in (15, 16, 17):
        assert not is_follower_fetch(header(ApiKey.FETCH, version), bytes(10) + body)


@pytest.mark.parametrize("version", [4, 14, 15, 17])
@pytest.mark.parametrize("size", range(10, 30))
def test_a_short_fetch_is_a_consumers(version, size):
    fetch = header(ApiKey.FETCH, version)
    frame = bytes(10) + b"\xff" * (size - 10)
    assert not is_follower_fetch(fetch, frame)


def expected_ns(classifier, api_key, size):
    """Return the expected cost of the next request of a given size."""
    return classifier.classify(header(api_key), bytes(size), PEER)[3]


def test_an_unknown_cost_is_that_of_the_api_and_then_a_default():
    classifier = Classifier(APIS)
    assert expected_ns(classifier, 0, 100) == 50_000
    classifier.learn(request(0, 100, 7_000))
    assert expected_ns(classifier, 0, 100) == 7_000
    assert expected_ns(classifier, 0, 1 << 20) == 7_000
    assert expected_ns(classifier, 1, 100) == 50_000


def test_costs_are_averaged_by_size():
    classifier = Classifier(APIS)
    for _ in range(100):
        classifier.learn(request(0, 100, 10_000))
        classifier.learn(request(0, 1 << 20, 900_000))
    assert expected_ns(classifier, 0, 120) == 10_000
    assert expected_ns(classifier, 0, (1 << 20) + 5) == 900_000


def test_the_average_follows_a_change_within_an_eighth_a_step():
    classifier = Classifier(APIS)
    classifier.learn(request(0, 100, 8_000))
    classifier.learn(request(0, 100, 16_000))
    assert expected_ns(classifier, 0, 100) == 9_000
    for _ in range(60):
        classifier.learn(request(0, 100, 16_000))
    assert 15_990 <= expected_ns(classifier, 0, 100) <= 16_000


def refused(refusal):
    it = request(ApiKey.PRODUCE, 100, 10)
    it.task.refusal = refusal
    return it


def test_a_request_rejected_for_another_reason_teaches_no_cost():
    classifier = Classifier(APIS)
    classifier.learn(request(ApiKey.PRODUCE, 100, 8000))
    for refusal in ("expired", "over_quota"):
        classifier.learn(refused(refusal))
    assert expected_ns(classifier, ApiKey.PRODUCE, 100) == 8000


def test_a_cost_that_requests_are_turned_away_for_is_doubted_until_one_is_served():
    """One slow request must not cause the rejection of all later requests."""
    classifier, limit_ns = Classifier(APIS), 1_000_000
    classifier.learn(request(ApiKey.PRODUCE, 100, 1_000_000_000))
    turned_away = 0
    while expected_ns(classifier, ApiKey.PRODUCE, 100) > limit_ns:
        classifier.learn(refused("hopeless"))
        turned_away += 1
    # Each rejection lowers the estimate by an eighth: ln(1000) / ln(8/7) = 51.7.
    assert turned_away == 52
