"""Rendering of templates: text from a cluster is escaped, made visible and bounded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from doorkeeper.web_console.record_text import SHOWN_BYTES

TEMPLATES: Final = Path(__file__).parent / "templates"
# Control characters except line breaks and tabs; and characters that reorder text, join
# it or have no width, with which one name can imitate another.
_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ud800-\udfff\ufff9-\ufffb]"
)
# Hexadecimal takes three characters for a byte.
_CHARACTERS_MAX: Final = 4 * SHOWN_BYTES
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DAYS_MAX: Final = 999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Exact(str):
    """Text that is escaped only: a link, or a value that a form sends back."""

    __slots__ = ()


def visible(value: Any) -> Any:
    r"""Return text with invisible characters written out, and not too long.

    >>> visible("a\u202eb")
    'a\\u202eb'
    """
    if type(value) is not str:
        return value
    if len(value) > _CHARACTERS_MAX:
        left_out = len(value) - _CHARACTERS_MAX
        value = f"{value[:_CHARACTERS_MAX]}… ({left_out} more characters)"
    return _INVISIBLE.sub(lambda it: f"\\u{ord(it.group()):04x}", value)


def size(number: int) -> str:
    """Return a number of bytes; an unknown one is negative.

    >>> [size(it) for it in (-1, 0, 1536, 5 * 2**40)]
    ['unknown', '0 B', '1.5 KiB', '5.0 TiB']
    """
    if number < 0:
        return "unknown"
    value, unit = float(number), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def instant(timestamp_ms: int) -> str:
    """Return a time in UTC, or the number if no calendar date exists.

    >>> instant(1_500_000_000_123)
    '2017-07-14 02:40:00.123'
    """
    try:
        found = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return found.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def rate(per_s: float | None) -> str:
    """Return a rate as text.

    >>> [rate(it) for it in (None, 0, 2.04, 1234.5)]
    ['unknown', '0.0', '2.0', '1234']
    """
    if per_s is None:
        return "unknown"
    return f"{per_s:.1f}" if per_s < 100 else f"{per_s:.0f}"


def days(number: float | None) -> str:
    """Return a number of days as text.

    >>> [days(it) for it in (None, 0.26, 41.6, 5_000, math.inf)]
    ['unknown', '0.3', '42', 'over 999', 'not filling']
    """
    if number is None:
        return "unknown"
    if number > _DAYS_MAX:
        return "not filling" if math.isinf(number) else f"over {_DAYS_MAX}"
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


def link(path: str, query: Mapping[str, object] = MappingProxyType({})) -> Exact:
    """Return a link with encoded names; names that are None are left out.

    Names are part of the query: a browser would shorten ``..`` in a path.

    >>> link("/topic", {"name": "../a&b", "page": None})
    '/topic?name=..%2Fa%26b'
    """
    given = {key: value for key, value in query.items() if value is not None}
    return Exact(f"{path}?{urlencode(given)}" if given else path)


def environment() -> Environment:
    """Return the templates."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"size": size, "instant": instant, "rate": rate, "days": days}
    found.globals["link"] = link
    return found
