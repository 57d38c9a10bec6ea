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
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args, get_type_hints

T = TypeVar("T")


def convert(value: Any, to: Callable[..., T], **given: Any) -> T:
    """Return a ``to`` with those fields of ``value`` that it has, and ``given``."""
    source: Callable[..., Any] = type(value)
    names, values_of, arrays = _plan(source, to)
    fields = dict(zip(names, values_of(value), strict=True))
    for name, item in arrays:
        if name not in given:
            fields[name] = tuple([convert(each, item) for each in fields[name]])
    fields.update(given)
    return to(**fields)


def group(items: Iterable[Any], by: str = "topic_name") -> list[tuple[Any, list[Any]]]:
    """Return ``items`` by one field, groups and items in order of first mention."""
    groups: dict[Hashable, list[Any]] = {}
    for item in items:
        groups.setdefault(getattr(item, by), []).append(item)
    return list(groups.items())


@cache
def _plan(
    source: Callable[..., Any], to: Callable[..., Any]
) -> tuple[
    tuple[str, ...],
    Callable[[Any], tuple[Any, ...]],
    list[tuple[str, type[Any]]],
]:
    """Return the shared fields, how to get their values, and the arrays of structs."""
    there = {field.name for field in dataclasses.fields(cast(type[Any], source))}
    hints = get_type_hints(to)
    names = tuple(
        field.name
        for field in dataclasses.fields(cast(type[Any], to))
        if field.name in there
    )
    arrays = [
        (name, item)
        for name in names
        for item in get_args(hints[name])
        if isinstance(item, type) and dataclasses.is_dataclass(item)
    ]
    if len(names) == 1:
        # attrgetter() of one name gives the value alone.
        only = attrgetter(*names)
        return names, lambda value: (only(value),), arrays
    return names, attrgetter(*names), arrays
