r"""Java's ``.properties`` format, which ``server.properties`` is written in.

Follows ``java.util.Properties.load``: ``#`` and ``!`` begin a comment line; the key
ends at the first unescaped ``=``, ``:`` or white space; a line that ends in an odd
number of backslashes goes on in the next one, whose leading white space is dropped;
``\t \n \r \f \uXXXX`` are escapes, and a backslash before any other character is that
character. A later value of a key replaces an earlier one. Text is UTF-8, perhaps with
the mark that editors of Windows put before it.

>>> parse_properties("a=1\n# no\nb : two \\\n   words\n")
{'a': '1', 'b': 'two words'}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.protocol.errors import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# Bytes of what is no text that are shown.
_SHOWN: Final = 20


def read_properties(path: str | Path) -> dict[str, str]:
    """Return the keys and values of a file; raise OSError.

    Raises `ConfigError`, which names file and line, where it is not UTF-8.
    """
    content = Path(path).read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        start = fault.start
        line = content.count(b"\n", 0, start) + 1
        found = content[start : start + _SHOWN]
        raise ConfigError(f"{path}, line {line}", found, "text in UTF-8") from None
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values in ``text``, in the order of their first mention."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        name = _unescape(key, line)
        properties[name] = _unescape(value, line)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank ones, continuations joined."""
    pending: str | None = None
    # splitlines() would also split at \x0b, \x1c and other characters.
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        joined = line if pending is None else pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = joined[:-1]
        else:
            pending = None
            yield joined
    if pending is not None:
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


def _unescape(written: str, line: str) -> str:
    if "\\" not in written:
        return written
    characters: list[str] = []
    position = 0
    while position < len(written):
        character = written[position]
        position += 1
        if character != "\\":
            characters.append(character)
            continue
        escaped = written[position : position + 1]
        position += 1
        if escaped == "u":
            digits = written[position : position + 4]
            position += 4
            characters.append(_code_point(digits, line))
        else:
            characters.append(_ESCAPES.get(escaped, escaped))
    return "".join(characters)


def _code_point(digits: str, line: str) -> str:
    try:
        if len(digits) < 4:
            raise ValueError
        return chr(int(digits, 16))
    except ValueError:
        raise ConfigError(line, f"\\u{digits}", "four hexadecimal digits") from None
