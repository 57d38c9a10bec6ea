"""Messages between members, compared with bytes of kafka-python and librdkafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.consumer.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
pytestmark = pytest.mark.filterwarnings(
    "ignore:(read|open)_text is dep:DeprecationWarning"
)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_of_kafka_python_are_read_in_every_version(version: int) -> None:
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    theirs = ConsumerProtocolSubscription(
        version=version,
        topics=["a", "b"],
        user_data=b"whatever",
        owned_partitions=[("a", [0, 2]), ("b", [1])],
        generation_id=7,
        rack_id="r",
    )
    found = decode_subscription(theirs.encode(), "static")
    assert found == Subscription(
        ("a", "b"),
        OWNED if version >= 1 else (),
        7 if version >= 2 else -1,
        "static",
    )


def test_our_bytes_are_kafka_pythons() -> None:
    from kafka.protocol.consumer.metadata import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

    theirs = ConsumerProtocolSubscription(
        version=2,
        topics=["a", "b"],
        user_data=b"",
        owned_partitions=[("a", [0, 2]), ("b", [1])],
        generation_id=7,
    )
    ours = encode_subscription(Subscription(("b", "a"), OWNED[::-1], 7))
    assert ours == theirs.encode()
    assignment = ConsumerProtocolAssignment(
        version=0, assigned_partitions=[("a", [0, 2]), ("b", [1])], user_data=None
    )
    assert encode_assignment(OWNED[::-1]) == assignment.encode()


partitions = st.tuples(st.sampled_from(["a", "topic"]), st.integers(0, 9)).map(
    lambda each: TopicPartition(*each)
)


@given(st.sets(partitions))
def test_an_assignment_comes_back(assigned: set[TopicPartition]) -> None:
    assert set(decode_assignment(encode_assignment(assigned))) == assigned


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == ()


@given(st.binary(max_size=60))
def test_other_bytes_are_an_error_or_mean_something(data: bytes) -> None:
    codes = set()
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)  # type: ignore[operator] # two functions of bytes
        except KafkaError as error:
            codes.add(error.code)
    assert codes <= {ErrorCode.inconsistent_group_protocol}
