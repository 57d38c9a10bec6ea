"""Batches that would stop consumers are refused, and real consumers continue."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.records.codecs import GZIP, LZ4, SNAPPY, ZSTD, compress
from tests.broker.apis.requests import produce_fields
from tests.broker.log.crafted import batch_of, record
from tests.kafka.peer import Peer
from tests.live.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.live,
    # kafka-python uses a function that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
POISON = [
    batch_of([record()], count=2),
    batch_of([record(), record(1)], count=1),
    batch_of([b"\xff" * 40], count=1),
    batch_of([record(extra=1)]),
    batch_of([record(body=b"\x40k\x02v\0")]),
    batch_of([record(body=b"\x02k\x02v\x02\x01\x01")]),
    *(
        batch_of([b"."], codec=codec, packed=compress(codec, record())[:-1])
        for codec in CODECS
    ),
]


def test_consumers_read_past_what_was_refused(
    broker: BrokerProcess, topic: str
) -> None:
    peer = Peer("ours", broker.port)
    wanted = []
    for number, poison in enumerate(POISON):
        assert _produced(peer, topic, poison) is ErrorCode.invalid_record, number
        value = b"%d" % number
        assert _produced(peer, topic, batch_of([record(value=value)])) is ErrorCode.none
        wanted.append(value)
    peer.close()
    assert _by_librdkafka(broker, topic, len(wanted)) == wanted
    assert _by_kafka_python(broker, topic, len(wanted)) == wanted


def _produced(peer: Peer, topic: str, records: bytes) -> ErrorCode:
    answer = peer.ask(ApiKey.PRODUCE, 9, **produce_fields({(topic, 0): records}))
    code: ErrorCode = answer.responses[0].partition_responses[0].error_code
    return code


def _by_librdkafka(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "any"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, 20)]
    consumer.close()
    return found


def _by_kafka_python(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found: list[bytes] = []
    end_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end_s:
        for messages in consumer.poll(timeout_ms=200).values():
            found += [message.value for message in messages]
    consumer.close()
    return found
