"""Java's properties format, tested with the examples of java.util.Properties."""

from pathlib import Path

import pytest

from broker.config import BrokerConfig, parse_properties
from broker.config.properties import read_properties
from broker.protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # "As an example, each of the following three lines specifies the key "Truth"".
        ("Truth = Beauty", {"Truth": "Beauty"}),
        (" Truth:Beauty", {"Truth": "Beauty"}),
        ("Truth                    :Beauty", {"Truth": "Beauty"}),
        # "As another example, the following three lines specify a single property".
        (
            "fruits                           apple, banana, pear, \\\n"
            "                                  cantaloupe, watermelon, \\\n"
            "                                  kiwi, mango",
            {"fruits": "apple, banana, pear, cantaloupe, watermelon, kiwi, mango"},
        ),
        # "As a third example, the line: cheeses".
        ("cheeses", {"cheeses": ""}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a = # no comment", {"a": "# no comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("a==b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        ("a=b ", {"a": "b "}),
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"path=C\:\\data\\new", {"path": r"C:\data\new"}),
        (r"tab=\tx\u00e4\q", {"tab": "\txäq"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n# a comment\na=1", {"a": "1"}),
        ("\\\n\\\n a=1\\\n\n", {"a": "1"}),
        ("a=\x0b1\x1c2", {"a": "\x0b1\x1c2"}),
        ("=value", {"": "value"}),
    ],
)
def test_text_reads_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12g4", r"a=\u0x1F", r"a=\u"])
def test_broken_unicode_escape_is_refused_with_its_key(text: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits") as caught:
        parse_properties(text)
    assert caught.value.key == "a"


@pytest.mark.parametrize("text", [r"a=\ud83d", r"a=\ude00\ud83d", r"\ud83d=a"])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    """A surrogate pair is one character; half of it could not be logged or sent."""
    assert parse_properties(r"a=\ud83d\ude00") == {"a": "\U0001f600"}
    with pytest.raises(ConfigError, match="both halves of a surrogate pair"):
        parse_properties(text)


def test_a_file_of_windows_is_read_as_any_other(tmp_path: Path) -> None:
    """Windows editors write a byte order mark, which is not part of the first key."""
    path = tmp_path / "server.properties"
    path.write_bytes("\ufeffbroker.id=1\r\nlog.dirs=\u00e4\r\n".encode())
    assert read_properties(path) == {"broker.id": "1", "log.dirs": "\u00e4"}
    assert BrokerConfig.load(path).node_id == 1


# A vendor's file: every form of the format, and keys of the vendor's components.
VENDOR = r"""
############################# Server Basics #############################
broker.id=3
num.network.threads = 4
num.io.threads: 6
socket.send.buffer.bytes 204800
num.partitions=5\x20\x20
metric.reporters=io.confluent.metrics.reporter.\
    ConfluentMetricsReporter
confluent.metrics.reporter.bootstrap.servers=localhost:9092
confluent.metrics.reporter.topic.replicas=1
confluent.license.topic.replication.factor=1
confluent.metadata.topic.replication.factor=1
confluent.security.event.logger.exporter.kafka.topic.replicas=1
confluent.balancer.enable=true
confluent.balancer.topic.replication.factor=1
confluent.support.metrics.enable=true
confluent.support.customer.id=anonymous
confluent.tier.metadata.replication.factor=1
confluent.telemetry.enabled=false
kafka.rest.enable=false
max.partition.fetch.bytes=1048576
max.request.size=1048576
! Bitnami leaves this empty
sasl.enabled.mechanisms=
broker.rack=Z\u00fcrich
group.initial.rebalance.delay.ms=0
group.initial.rebalance.delay.ms=3
listeners=PLAINTEXT://:9092,\
          CONTROLLER://:9093
controller.listener.names=CONTROLLER
advertised.listeners=PLAINTEXT://:9092
listener.name.plaintext.max.connections=7
""".replace(r"\x20", " ")


def test_a_file_of_a_vendor_names_all_its_own_keys_or_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(("\ufeff" + VENDOR.replace("\n", "\r\n")).encode())
    theirs = [
        line.partition("=")[0]
        for line in VENDOR.splitlines()
        if line.startswith(("confluent.", "kafka.rest.", "max."))
    ]
    assert len(theirs) == 14
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(path)
    assert all(name in str(caught.value) for name in theirs)
    config = BrokerConfig.load(path, {"doorkeeper.unknown.configs": "warn"})
    assert list(config.unknown) == theirs
    assert config.node_id == 3
    assert config.values["num.network.threads"] == 4
    assert config.values["num.io.threads"] == 6
    assert config.values["socket.send.buffer.bytes"] == 204800
    assert config.values["num.partitions"] == 5
    assert config.values["broker.rack"] == "Z\u00fcrich"
    assert config.values["group.initial.rebalance.delay.ms"] == 3
    assert [listener.port for listener in config.listeners] == [9092]
    reporter = "io.confluent.metrics.reporter.ConfluentMetricsReporter"
    assert config.written["metric.reporters"] == reporter


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("broker.id=1\n".encode("utf-16"), 1),
        ("broker.id=1\n# M\u00fcller\n".encode("latin-1"), 2),
        (b"a=1\nb=\xff", 2),
    ],
)
def test_bytes_that_are_no_utf_8_are_refused_with_file_and_line(
    tmp_path: Path, content: bytes, line: int
) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(path)
    assert str(refused.value).startswith(f"{path}, line {line}: found b")


def test_a_key_that_is_there_twice_has_its_last_value_as_in_kafka(
    tmp_path: Path,
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nlog.dirs=/a\nbroker.id=2\n")
    assert BrokerConfig.load(path).node_id == 2


def test_a_file_that_opens_and_cannot_be_read_is_named() -> None:
    """The system's error names a file that cannot be opened, but not one being read."""
    with pytest.raises(OSError, match="/proc/self/mem"):
        read_properties("/proc/self/mem")
