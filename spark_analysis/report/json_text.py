"""JSON for files under version control: a line for each row or list of numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

# A row of results has some 700 characters.
_LINE_MAX: Final = 1_000


def json_text(value: object) -> str:
    """Return the value as JSON, with a newline at the end.

    :raises ValueError: if it holds a number that is not finite.
    """
    return _expanded(value, "") + "\n"


def _expanded(value: object, indent: str) -> str:
    flat = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if len(flat) <= _LINE_MAX:
        return flat
    inner = indent + " "
    if isinstance(value, Mapping):
        opened, closed = "{}"
        items = [f"{json.dumps(k)}: {_expanded(v, inner)}" for k, v in value.items()]
    elif isinstance(value, list) and isinstance(value[0], list | dict):
        opened, closed = "[]"
        items = [_expanded(it, inner) for it in value]
    else:
        return flat
    lines = f",\n{inner}".join(items)
    return f"{opened}\n{inner}{lines}\n{indent}{closed}"
