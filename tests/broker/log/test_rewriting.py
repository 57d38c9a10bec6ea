"""Topics that rewrite or refuse produced batches, as Kafka's ``LogValidator``."""

import struct

import pytest

from broker.log.segments.log_config import LONG_MAX, LogConfig
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.witness import (
    NOW_MS,
    batch,
    decoded,
    everything,
    found_at,
    open_log,
)


def test_log_append_time_is_the_brokers():
    log = open_log(message_timestamp_type="LogAppendTime")
    appended = log.append(batch([b"a", b"b"], timestamps=[1, 2]), 0, NOW_MS + 5)
    assert appended.log_append_time_ms == NOW_MS + 5
    assert [record[:2] for record in decoded(everything(log))] == [
        (0, NOW_MS + 5),
        (1, NOW_MS + 5),
    ]
    assert found_at(log, NOW_MS)[:2] == (NOW_MS + 5, 0)


@pytest.mark.parametrize("sent", range(5))
@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("producer", None),
        ("uncompressed", 0),
        ("gzip", 1),
        ("snappy", 2),
        ("lz4", 3),
        ("zstd", 4),
    ],
)
def test_compression_type_decides_the_stored_codec(sent, kind, stored):
    log = open_log(compression_type=kind)
    values = [b"value " * 50, b"", b"value " * 20]
    keys = [b"a", None, b"c"]
    log.append(batch(values, keys=keys, codec=sent), 0, NOW_MS)
    content = everything(log)
    (attributes,) = struct.unpack_from(">h", content, 21)
    assert attributes == (sent if stored is None else stored)
    assert [record[2:] for record in decoded(content)] == list(
        zip(keys, values, strict=True)
    )


def test_a_compacted_topic_needs_keys():
    log = open_log(cleanup_policy=frozenset({"compact"}))
    log.append(batch([b"v"], keys=[b"k"], codec=1), 0, NOW_MS)
    for keys in (None, [b"k", None]):
        with pytest.raises(KafkaError) as refused:
            log.append(batch([b"v", b"w"], keys=keys), 0, NOW_MS)
        assert refused.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize(
    ("config", "timestamps", "accepted"),
    [
        ({}, [NOW_MS + 3_600_000, 0], True),
        ({}, [NOW_MS + 3_600_001], False),
        ({"message_timestamp_after_max_ms": LONG_MAX}, [NOW_MS + 10**9, 0], True),
        ({"message_timestamp_after_max_ms": 1000}, [NOW_MS + 1000], True),
        ({"message_timestamp_after_max_ms": 1000}, [NOW_MS, NOW_MS + 1001], False),
        ({"message_timestamp_before_max_ms": 1000}, [NOW_MS - 1000, NOW_MS], True),
        ({"message_timestamp_before_max_ms": 1000}, [NOW_MS - 1000], True),
        ({"message_timestamp_before_max_ms": 1000}, [NOW_MS, NOW_MS - 1001], False),
        ({"message_timestamp_before_max_ms": 1000}, [-1], True),
    ],
)
def test_timestamps_are_bounded(config, timestamps, accepted):
    log = open_log(**config)
    sent = batch([b"v"] * len(timestamps), timestamps=timestamps)
    if accepted:
        log.append(sent, 0, NOW_MS)
    else:
        with pytest.raises(KafkaError) as refused:
            log.append(sent, 0, NOW_MS)
        assert refused.value.code is ErrorCode.invalid_timestamp


def test_settings_can_change():
    log = open_log(max_message_bytes=80)
    big = batch([bytes(80)])
    with pytest.raises(KafkaError):
        log.append(big, 0, NOW_MS)
    log.configure(LogConfig(compression_type="gzip"))
    log.append(big, 0, NOW_MS)
    assert struct.unpack_from(">h", everything(log), 21) == (1,)
