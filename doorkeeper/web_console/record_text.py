"""Bytes of records as text: JSON with line breaks, text, or hexadecimal; bounded."""

from __future__ import annotations

import json
import re
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

Form: TypeAlias = Literal["auto", "json", "text", "hex"]
FORMS: Final = cast(tuple[Form, ...], get_args(Form))
# Bytes of a field that are shown.
SHOWN_BYTES: Final = 2_000
_HEX_COLUMNS: Final = 32
_BINARY: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# A string of JSON, or one other character of its structure.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')


class Shown(NamedTuple):
    """Text of a field: its form, and the number of omitted bytes."""

    text: str
    form: str
    left_out: int = 0


def shown(data: bytes | None, form: Form = "auto") -> Shown:
    r"""Return a key or value as text.

    Bytes that do not have the wanted form are shown in hexadecimal.

    >>> shown(b'{"a":[1,2]}').text
    '{\n  "a": [\n    1,\n    2\n  ]\n}'
    >>> shown(b"\xff\x00").text
    'ff 00'
    """
    if data is None:
        return Shown("null", "null")
    left_out = max(0, len(data) - SHOWN_BYTES)
    head = data[:SHOWN_BYTES]
    text = None if form == "hex" else _text(head, is_cut=left_out > 0)
    if text is None:
        return Shown(_hexadecimal(head), "hex", left_out)
    if form in ("auto", "json") and not left_out:
        pretty = _pretty(text)
        if pretty is not None:
            return Shown(pretty, "json")
    return Shown(text, "text", left_out)


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 text, None for other bytes; a cut may split a character."""
    for end in range(len(data), len(data) - (4 if is_cut else 1), -1):
        try:
            text = data[: max(end, 0)].decode()
        except UnicodeDecodeError:
            continue
        return None if _BINARY.search(text) else text
    return None


def _pretty(text: str) -> str | None:
    """Return a JSON object or array with line breaks, its tokens unchanged."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    pieces: list[str] = []
    depth, last = 0, ""
    for token in _TOKEN.findall(text):
        if token in "}]":
            depth -= 1
            pieces.append("" if last in ("{", "[") else _line(depth))
        elif last in ("{", "[", ","):
            pieces.append(_line(depth))
        pieces.append(": " if token == ":" else token)
        if token in "{[":
            depth += 1
        last = token
    return "".join(pieces)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, _HEX_COLUMNS)


def _hexadecimal(data: bytes) -> str:
    rows = range(0, len(data), _HEX_COLUMNS)
    return "\n".join(data[at : at + _HEX_COLUMNS].hex(" ") for at in rows)
