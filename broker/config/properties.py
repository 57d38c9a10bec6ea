r"""Java's ``.properties`` format, which ``server.properties`` is written in.

Follows ``java.util.Properties.load``: ``#`` and ``!`` begin a comment line; the key
ends at the first unescaped ``=``, ``:`` or white space; a line that ends in an odd
number of backslashes goes on in the next one, whose leading white space is dropped;
``\t \n \r \f \uXXXX`` are escapes, and a backslash before any other character is that
character. A later value of a key replaces an earlier one.

There are two differences. Text is UTF-8, with or without a byte order mark, where Java
reads Latin-1. Half a surrogate pair is refused, because no encoding can write it.

>>> parse_properties("a=1\n# no\nb : two \\\n   words\n")
{'a': '1', 'b': 'two words'}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.protocol.errors import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A backslash at the end is dropped.
_ESCAPE: Final = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_HEXADECIMAL: Final = re.compile("[0-9a-fA-F]{4}")
# Number of bytes shown in the error about bytes that are not UTF-8.
_SHOWN: Final = 20


def read_properties(path: str | Path) -> dict[str, str]:
    """Return the keys and values of a file; raise OSError.

    Raises `ConfigError`, which names file and line, where it is not UTF-8.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        # An error of reading has no file name, only one of opening.
        error.filename = error.filename or str(path)
        raise
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        start = fault.start
        line = content.count(b"\n", 0, start) + 1
        found = content[start : start + _SHOWN]
        raise ConfigError(f"{path}, line {line}", found, "text in UTF-8") from None
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values in ``text``, in the order of first appearance.

    Raises `ConfigError`, which names the key, for an invalid escape.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        name = _unescape(key, key)
        properties[name] = _unescape(value, name)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank ones, continuations joined.

    A line with only a backslash is ignored: blank lines and comments after it are
    skipped, as in Java.
    """
    pending: str | None = None
    # splitlines() would also split at \x0b, \x1c and other characters.
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            pending = None
            continue
        joined = line if pending is None else pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = joined[:-1]
        else:
            pending = None
            yield joined
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Return the key and the value of ``line``, both still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(written: str, key: str) -> str:
    """Return the unescaped ``written``; an error names ``key``."""

    def character(escape: re.Match[str]) -> str:
        digits = escape[1]
        if digits is None:
            return _ESCAPES.get(escape[2], escape[2])
        if not _HEXADECIMAL.fullmatch(digits):
            raise ConfigError(key, escape[0], "four hexadecimal digits after \\u")
        return chr(int(digits, 16))

    plain = _ESCAPE.sub(character, written)
    try:
        # Java's characters are UTF-16: two escapes may be one code point.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        expected = "both halves of a surrogate pair"
        raise ConfigError(key, written, expected) from None
