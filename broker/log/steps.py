"""Long work on a log as generators, so that the driver decides when and where.

A generator yields None where other work may be done in between, and a blocking call (a
function that touches no log) where a device may take its time. The driver makes the
call, on this thread or another, and resumes; an ``OSError`` is thrown in. Between two
steps the log may be appended to, trimmed or closed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeAlias, TypeVar

_R = TypeVar("_R")

BlockingCall: TypeAlias = Callable[[], None]
Steps: TypeAlias = Generator[BlockingCall | None, None, _R]
# Steps without blocking calls.
InSteps: TypeAlias = Generator[None, None, _R]

# Records that are looked at in one step: about half a millisecond.
STEP_RECORDS: Final = 256


def watched(inner: Steps[_R], go_on: Callable[[], bool]) -> Steps[_R | None]:
    """Do what ``inner`` does as long as ``go_on`` says so after each step.

    Returns its result, None if it was ended.
    """
    try:
        step = next(inner)
        while True:
            try:
                yield step
            except OSError as error:
                if not go_on():
                    return None
                step = inner.throw(error)
            else:
                if not go_on():
                    return None
                step = next(inner)
    except StopIteration as done:
        result: _R = done.value
        return result
    finally:
        inner.close()


def in_one_step(work: Steps[_R]) -> _R | None:
    """Do the first step, and return the result if that was all; else None.

    Nothing else is done then.
    """
    try:
        next(work)
    except StopIteration as done:
        result: _R = done.value
        return result
    work.close()
    return None


def run(work: Steps[_R]) -> _R:
    """Do all of it here and now, and return its result."""
    try:
        step = next(work)
        while True:
            try:
                if step is not None:
                    step()
            except OSError as error:
                step = work.throw(error)
            else:
                step = next(work)
    except StopIteration as done:
        result: _R = done.value
        return result
    finally:
        work.close()
