"""Conversion between the form of one version on the wire and the form of all versions.

Both sides are dataclasses whose common fields have the same names. When reading, a
field that is missing in the version gets its default. When writing, a field that is
missing in the version is omitted. The caller passes the fields that a version arranges
differently (ungrouped partitions, a host next to its port).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from functools import cache
from itertools import count
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args, get_type_hints

T = TypeVar("T")
# Work that yields to let other requests be served.
Stepping: TypeAlias = Generator[None, None, T]

# Items converted in one step.
STEP_ITEMS: Final = 64


def convert(value: Any, to: Callable[..., T], **given: Any) -> T:
    """Return a ``to`` with its fields of ``value``, and the fields ``given``."""
    return drained(converting(value, to, **given))


def converting(
    value: Any, to: Callable[..., T], numbers: Iterator[int] | None = None, **given: Any
) -> Stepping[T]:
    """Convert as `convert` does, and yield after every 64 items, including nested ones.

    ``numbers`` counts the items of several conversions.
    """
    source: Callable[..., Any] = type(value)
    names, values_of, arrays = _plan(source, to)
    fields = dict(zip(names, values_of(value), strict=True))
    numbers = count(1) if numbers is None else numbers
    for name, item in arrays:
        if name not in given:
            converted = yield from converting_all(fields[name], item, numbers)
            fields[name] = converted
    fields.update(given)
    return to(**fields)


def converting_all(
    items: Iterable[Any], to: Callable[..., T], numbers: Iterator[int], **given: Any
) -> Stepping[tuple[T, ...]]:
    """Convert ``items`` in steps, each with the fields ``given``."""
    converted: list[T] = []
    for each in items:
        converted.append((yield from converting(each, to, numbers, **given)))
        if next(numbers) % STEP_ITEMS == 0:
            yield
    return tuple(converted)


def grouping(
    items: Iterable[Any], by: str = "topic_name"
) -> Stepping[list[tuple[Any, list[Any]]]]:
    """Return ``items`` by one field, in steps.

    Groups and items are in order of first mention.
    """
    groups: dict[Hashable, list[Any]] = {}
    for number, item in enumerate(items, 1):
        groups.setdefault(getattr(item, by), []).append(item)
        if number % STEP_ITEMS == 0:
            yield
    return list(groups.items())


def drained(work: Stepping[T]) -> T:
    """Run all steps at once; return the result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


@cache
def _plan(
    source: Callable[..., Any], to: Callable[..., Any]
) -> tuple[
    tuple[str, ...],
    Callable[[Any], tuple[Any, ...]],
    list[tuple[str, type[Any]]],
]:
    """Return the common fields, a getter of their values, and the arrays of structs."""
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
        # attrgetter() of one name returns the value without a tuple.
        only = attrgetter(*names)
        return names, lambda value: (only(value),), arrays
    return names, attrgetter(*names), arrays
