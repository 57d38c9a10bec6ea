"""Records and groups by Kafka's own tools, 3.9 and 4.1, against our broker."""

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
        *(word for each in shown for word in ("--property", each)),
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
        *("--group-id", tools.group, "--max-messages", "500"),
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
        *("--group", tools.group, "--timeout", "20000"),
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


def test_kafka_delete_records_moves_the_start(tools: Tools, tmp_path: Path) -> None:
    tools.create("shortened", 1)
    tools.produce("shortened", list("abcdef"))
    wanted = {"topic": "shortened", "partition": 0, "offset": 4}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    told = tools("kafka-delete-records", "--offset-json-file", str(file))
    assert "partition: shortened-0\tlow_watermark: 4" in told.out
    assert tools.consume("shortened", 2) == ["e", "f"]


def test_kafka_consumer_groups_lists_describes_resets_and_deletes(
    tools: Tools,
) -> None:
    tools.create("grouped", 2)
    tools.produce("grouped", [f"{number}" for number in range(10)])
    tools.consume("grouped", 10, group=tools.group)
    groups = "kafka-consumer-groups"
    of_group = ("--group", tools.group)
    assert tools.group in tools(groups, "--list").lines
    listed = tools(groups, "--list", "--state").table
    assert {row["STATE"] for row in listed if row["GROUP"] == tools.group} == {"Empty"}
    described = tools(groups, "--describe", *of_group).table
    assert sum(int(row["CURRENT-OFFSET"]) for row in described) == 10
    assert {row["LAG"] for row in described} == {"0"}

    reset = ("--reset-offsets", *of_group, "--topic", "grouped")
    tools(groups, *reset, "--to-earliest", "--dry-run")
    assert tools(groups, "--describe", *of_group).table == described
    # Kafka 3.9 forgets the ends of these lines, so that it is no table.
    told = tools(groups, *reset, "--to-earliest", "--execute").out
    assert sorted(re.findall(r"grouped\s+(\d)\s+(\d)", told)) == [
        ("0", "0"),
        ("1", "0"),
    ]
    described = tools(groups, "--describe", *of_group).table
    assert sum(int(row["LAG"]) for row in described) == 10

    told = tools(groups, "--delete-offsets", *of_group, "--topic", "grouped").out
    assert re.findall(r"grouped\s+\d\s+(\w+)", told) == ["Successful"] * 2
    told = tools(groups, "--delete", *of_group)
    assert f"groups ('{tools.group}') was successful" in told.out
    assert tools.group not in tools(groups, "--list").lines


def test_kafka_dump_log_reads_our_files(tools: Tools) -> None:
    tools.create("dumped", 1, "index.interval.bytes=200")
    for codec in CODECS:
        tools.produce("dumped", [f"{codec} {n}" for n in range(30)], codec)
    # An index is in its file once its segment is closed.
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
