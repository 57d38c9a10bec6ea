"""Faults that are known and not mended yet: a run that meets one is left out.

Each is what was raised, the last function of ours that it passed, and why it is still
here. The list is to be empty.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

KNOWN: dict[tuple[str, str], str] = {}


class Broken(AssertionError):
    """The broker did what it must not; the message says after which request."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in groups of groups of them."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def place(error: BaseException) -> tuple[str, str]:
    """Return an exception's name, and the last function of ours that it passed."""
    ours = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if not any(part in each.filename for part in ("/site-packages/", "/lib/python"))
    ]
    file = ours[-1].filename.rpartition("/")[2]
    return type(error).__name__, f"{file}:{ours[-1].name}"


def causes(error: BaseException) -> list[BaseException]:
    """Return what a failure came from: not what only followed from a broker's end."""
    found = list(leaves(error))
    first = [
        each for each in found if not isinstance(each, ConnectionRefusedError | Broken)
    ]
    return first or found


def is_known(error: BaseException) -> bool:
    """Return whether a failure has known causes only."""
    return all(place(each) in KNOWN for each in causes(error))
