"""Known faults that are not fixed yet: a run that meets one is discarded.

Each entry has the exception, the last of our functions in its traceback, and the reason
why it is not fixed. The goal is an empty list.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

KNOWN: dict[tuple[str, str], str] = {}


class Broken(AssertionError):
    """The broker misbehaved; the message names the request before."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in nested exception groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def place(error: BaseException) -> tuple[str, str]:
    """Return an exception's name and the last of our functions in its traceback."""
    ours = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if not any(part in each.filename for part in ("/site-packages/", "/lib/python"))
    ]
    file = ours[-1].filename.rpartition("/")[2]
    return type(error).__name__, f"{file}:{ours[-1].name}"


def causes(error: BaseException) -> list[BaseException]:
    """Return the causes of a failure, without the consequences of a broker's end."""
    found = list(leaves(error))
    first = [
        each for each in found if not isinstance(each, ConnectionRefusedError | Broken)
    ]
    return first or found


def is_known(error: BaseException) -> bool:
    """Return whether all causes of a failure are known."""
    return all(place(each) in KNOWN for each in causes(error))
