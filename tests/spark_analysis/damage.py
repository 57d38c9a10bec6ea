"""Damage to the files of a recording, drawn from a seed: to bytes or to fields."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def _flipped(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _zeroed(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at : at + 64] = bytes(len(data[at : at + 64]))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _grown(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(9)


WAYS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_flipped, _flipped, _zeroed, _cut, _grown),
)


def damage_bytes(path: Path, rng: random.Random) -> str:
    """Damage a file at a random byte; return the kind of damage."""
    data, way = bytearray(path.read_bytes()), rng.choice(WAYS)
    way(data, rng)
    path.write_bytes(data)
    return way.__name__


# JSON values of wrong types.
STRANGE = (
    *(None, True, 0, -1, 1e9, 2**63, -(2**63), 10**30, 0.5, float("nan"), float("inf")),
    *("", "x", "it's", "\\", "\0", "\ud800", "../..", [], [1], {}, {"x": 1}),
)


def damage_field(path: Path, rng: random.Random) -> str:
    """Change, remove or duplicate a random field of a JSON file; return its path."""
    content = json.loads(path.read_text())
    places = list(_places(content, ""))
    holder, key, where = places[rng.randrange(len(places))]
    act = rng.choice(("set", "set", "set", "remove", "double"))
    if act == "set":
        holder[key] = rng.choice(STRANGE)
    elif act == "remove":
        del holder[key]
    elif isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[f"{key}-again"] = holder[key]
    path.write_text(json.dumps(content))
    return f"{act} {where}"


def _places(value: Any, path: str) -> Any:
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in entries:
        yield value, key, f"{path}.{key}"
        yield from _places(each, f"{path}.{key}")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def without_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def page_damaged(path: Path) -> None:
    """Damage the page in the middle of the file's first columns."""
    column = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(data)


def another_type(path: Path) -> None:
    table = pq.read_table(path)
    at = table.schema.get_field_index("block")
    column = table["block"].cast(pa.float64())
    pq.write_table(table.set_column(at, "block", column), path)


def a_strangers(path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), path)


def no_parquet(path: Path) -> None:
    path.write_text("dear diary")


def missing(path: Path) -> None:
    path.unlink()


NAMED = (
    *(empty, cut, without_footer, page_damaged),
    *(another_type, a_strangers, no_parquet, missing),
)
