"""Java's properties format; the cases are those of java.util.Properties' own text."""

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
        ("a=\x0b1\x1c2", {"a": "\x0b1\x1c2"}),
        ("=value", {"": "value"}),
    ],
)
def test_text_reads_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12g4", r"a=\u"])
def test_broken_unicode_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits") as caught:
        parse_properties(text)
    assert caught.value.key == text


def test_a_file_of_windows_is_read_as_any_other(tmp_path: Path) -> None:
    """Its editors begin with a mark that is no part of the first key."""
    path = tmp_path / "server.properties"
    path.write_bytes("\ufeffbroker.id=1\r\nlog.dirs=\u00e4\r\n".encode())
    assert read_properties(path) == {"broker.id": "1", "log.dirs": "\u00e4"}
    assert BrokerConfig.load(path).node_id == 1


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("broker.id=1\n".encode("utf-16"), 1),
        ("broker.id=1\n# M\u00fcller\n".encode("latin-1"), 2),
        (b"a=1\nb=\xff", 2),
    ],
)
def test_what_is_no_utf_8_is_refused_with_file_and_line(
    tmp_path: Path, content: bytes, line: int
) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(path)
    assert str(refused.value).startswith(f"{path}, line {line}: found b")


@pytest.mark.parametrize("text", ["=1\n", ": 1\n", "broker.id=1\n =x"])
def test_a_value_without_a_key_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(text)
    with pytest.raises(ConfigError, match="a line without a key: found"):
        BrokerConfig.load(path)


@pytest.mark.parametrize(
    "text", ["<<<<<<< HEAD\n", "\x00\x01=\x02\n", "{\n", "num.io.thread=1\n"]
)
def test_garbage_is_refused_as_a_key_that_there_is_not(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(text)
    with pytest.raises(ConfigError, match="expected a key of Kafka or Doorkeeper"):
        BrokerConfig.load(path)


def test_a_key_that_is_there_twice_has_its_last_value_as_in_kafka(
    tmp_path: Path,
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nlog.dirs=/a\nbroker.id=2\n")
    assert BrokerConfig.load(path).node_id == 2
