"""Between the shape of one version on the wire and the one shape for all versions.

Both sides are dataclasses that agree in the names of the fields that they share. On
the way in, a field that the version lacks gets its default; on the way out, one that
the version cannot carry is left out. What a version only arranges otherwise
(ungrouped partitions, a host beside its port) the caller hands in ready-made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

T = TypeVar("T")


def convert(value: Any, to: Callable[..., T], **given: Any) -> T:
    """Return a ``to`` with those fields of ``value`` that it has, and ``given``."""
    values = {
        name: _convert_field(getattr(value, name), item)
        for name, item in _items(to).items()
        if name not in given and hasattr(value, name)
    }
    return to(**values, **given)


def group(items: Iterable[Any], by: str = "topic_name") -> list[tuple[Any, list[Any]]]:
    """Return ``items`` by one field, groups and items in order of first mention."""
    groups: dict[Hashable, list[Any]] = {}
    for item in items:
        groups.setdefault(getattr(item, by), []).append(item)
    return list(groups.items())


def _convert_field(value: Any, item: type[Any] | None) -> Any:
    if item is None:
        return value
    return tuple(convert(each, item) for each in value)


@cache
def _items(cls: Callable[..., Any]) -> dict[str, type[Any] | None]:
    """Return each field of ``cls`` and, for an array of dataclasses, their class."""
    hints = get_type_hints(cls)
    return {
        field.name: next(
            (each for each in get_args(hints[field.name]) if _is_entity(each)), None
        )
        for field in dataclasses.fields(cast(type[Any], cls))
    }


def _is_entity(candidate: Any) -> bool:
    return isinstance(candidate, type) and dataclasses.is_dataclass(candidate)
