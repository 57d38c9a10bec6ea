"""Records with Kafka's own tools, 3.9 and 4.4."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kafka.conftest import Tools

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_console_producer_and_consumer_in_every_codec(tools: Tools) -> None:
    tools.create("codecs", 1)
    sent = []
    for codec in CODECS:
        lines = [f"key {n}\t{codec} value {n} äöü" for n in range(50)]
        tools(
            *("kafka-console-producer", "--topic", "codecs"),
            *("--compression-codec", codec, "--property", "parse.key=true"),
            stdin="".join(f"{line}\n" for line in lines),
        )
        sent += lines
    shown = ("print.key=true", "print.offset=true", "print.partition=true")
    told = tools(
        *("kafka-console-consumer", "--topic", "codecs", "--from-beginning"),
        *("--max-messages", str(len(sent)), "--timeout-ms", "20000"),
        *(word for each in shown for word in (tools.formatter_option, each)),
    )
    assert told.lines == [
        f"Partition:0\tOffset:{offset}\t{line}" for offset, line in enumerate(sent)
    ]
    assert tools.codecs_on_disk("codecs") == set(range(5))


def test_verifiable_producer_and_consumer_agree(tools: Tools) -> None:
    tools.create("verified", 3)
    told = tools(
        *("kafka-verifiable-producer", "--topic", "verified"),
        *("--max-messages", "500", "--acks", "-1"),
    )
    events = [json.loads(line) for line in told.lines]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert [event["name"] for event in events].count("producer_send_error") == 0
    assert sorted(int(event["value"]) for event in sent) == list(range(500))
    told = tools(
        *("kafka-verifiable-consumer", "--topic", "verified", "--verbose"),
        *("--group-id", "verifying", "--max-messages", "500"),
        *("--reset-policy", "earliest"),
    )
    events = [json.loads(line) for line in told.lines]
    read = [event for event in events if event["name"] == "record_data"]
    where = {(each["partition"], each["offset"]): each["value"] for each in read}
    assert where == {(e["partition"], e["offset"]): e["value"] for e in sent}
    assert any(event["name"] == "offsets_committed" for event in events)


def test_perf_tools_move_every_record(tools: Tools) -> None:
    tools.create("perf", 1)
    told = tools(
        *("kafka-producer-perf-test", "--topic", "perf", "--num-records", "20000"),
        *("--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={tools.bootstrap}"),
    )
    assert told.lines[-1].startswith("20000 records sent")
    told = tools(
        *("kafka-consumer-perf-test", "--topic", "perf", "--messages", "20000"),
        *("--group", "performing", "--timeout", "20000"),
    )
    head, row = (line.split(", ") for line in told.lines[-2:])
    assert dict(zip(head, row, strict=True))["data.consumed.in.nMsg"] == "20000"


def test_kafka_get_offsets_knows_every_special_time(tools: Tools) -> None:
    tools.create("times", 2)
    tools.produce("times", [f"{number}" for number in range(7)])
    offsets = {}
    for time in ("latest", "earliest", "max-timestamp", "earliest-local", "-5", "0"):
        told = tools("kafka-get-offsets", "--topic", "times", "--time", time)
        rows = [line.split(":") for line in told.lines]
        offsets[time] = {int(index): offset for _, index, offset in rows}
    assert sum(int(end) for end in offsets["latest"].values()) == 7
    assert set(offsets["earliest"].values()) == {"0"}
    assert offsets["earliest-local"] == offsets["earliest"]
    full = {index: end for index, end in offsets["latest"].items() if end != "0"}
    assert offsets["0"] == dict.fromkeys(full, "0")
    assert {i: int(o) < int(full[i]) for i, o in offsets["max-timestamp"].items()} == (
        dict.fromkeys(full, True)
    )


def test_kafka_get_offsets_picks_topics_and_partitions(tools: Tools) -> None:
    tools.create("picked-a", 3)
    tools.create("picked-b", 1)
    every = [f"picked-a:{index}:0" for index in range(3)] + ["picked-b:0:0"]
    for picked, wanted in (
        (("--topic", "picked-.*"), every),
        (("--topic", "picked-a", "--partitions", "0,2"), [every[0], every[2]]),
        (("--topic-partitions", "picked-a:1-,picked-b"), every[1:]),
        (("--topic-partitions", "picked-[ab]:0"), [every[0], every[3]]),
    ):
        assert tools("kafka-get-offsets", *picked).lines == wanted
    nowhere = tools.run("kafka-get-offsets", "--topic", "nowhere")
    assert nowhere.status == 1
    internal = ("kafka-get-offsets", "--topic", "__consumer_offsets")
    assert tools.run(*internal, "--exclude-internal-topics").status == 1


def test_kafka_delete_records_moves_the_start(tools: Tools, tmp_path: Path) -> None:
    tools.create("shortened", 1)
    tools.produce("shortened", list("abcdef"))
    wanted = {"topic": "shortened", "partition": 0, "offset": 4}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    told = tools("kafka-delete-records", "--offset-json-file", str(file))
    assert "partition: shortened-0\tlow_watermark: 4" in told.out
    assert tools.consume("shortened", 2) == ["e", "f"]
    file.write_text(json.dumps({"partitions": [{**wanted, "offset": 7}]}))
    told = tools.run("kafka-delete-records", "--offset-json-file", str(file))
    assert "OffsetOutOfRangeException" in told.out + told.err
    file.write_text(json.dumps({"partitions": [{**wanted, "offset": -1}]}))
    told = tools("kafka-delete-records", "--offset-json-file", str(file))
    assert "partition: shortened-0\tlow_watermark: 6" in told.out


def test_kafka_dump_log_reads_our_files(own_broker: Tools) -> None:
    tools = own_broker
    tools.create("dumped", 1, "index.interval.bytes=200")
    for codec in CODECS:
        tools.produce("dumped", [f"{codec} {n}" for n in range(30)], codec)
    # The broker writes an index to its file when it closes the segment.
    tools.stop_broker()
    for suffix in ("log", "index", "timeindex"):
        files = tools.segment_files("dumped", suffix)
        told = tools.offline(
            *("kafka-dump-log", "--deep-iteration", "--print-data-log"),
            *("--verify-index-only",) * (suffix != "log"),
            *("--files", ",".join(map(str, files))),
        )
        assert "mismatch" not in told.out.lower()
        assert "Found timestamp" not in told.out
        assert "isvalid: false" not in told.out
        if suffix == "log":
            payloads = re.findall(r"offset: (\d+) .*payload: (.*)", told.out)
            assert payloads == [
                (str(at), f"{CODECS[at // 30]} {at % 30}") for at in range(150)
            ]


def test_kafka_dump_log_decodes_our_offsets_and_producers(own_broker: Tools) -> None:
    tools = own_broker
    tools.create("read", 1)
    tools.produce("read", list("abc"), idempotent=True)
    assert tools.consume("read", 3, group="reader") == list("abc")
    tools.stop_broker()
    files = sorted(tools.files("__consumer_offsets-*/*.log"))
    told = tools.offline(
        *("kafka-dump-log", "--offsets-decoder"),
        *("--files", ",".join(str(file) for file in files if file.stat().st_size)),
    ).out
    for word in ("reader", "read", "offset", "protocol"):
        assert word in told
    # Kafka 3.9 prints a format of its own, 4.4 prints the records as JSON.
    assert re.search(r"offset_commit::.*partition=0|\"partition\":0", told)
    (snapshot,) = tools.files("read-0/*.snapshot")
    told = tools.offline("kafka-dump-log", "--files", str(snapshot)).out
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: 2", told)
