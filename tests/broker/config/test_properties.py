"""Java's properties format; the cases are those of java.util.Properties' own text."""

import pytest

from broker.config import parse_properties
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
