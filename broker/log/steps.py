"""Long work on a log as generators; the driver decides when and where to run it.

A generator yields None to let other work run, and a blocking call (a function that
accesses no log) to wait for a device. The driver makes the call, on this thread or
another, and resumes the generator; an ``OSError`` is thrown into it. Between two steps
the log may be appended to, trimmed or closed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeAlias, TypeVar

_R = TypeVar("_R")

BlockingCall: TypeAlias = Callable[[], None]
Steps: TypeAlias = Generator[BlockingCall | None, None, _R]
# Steps without blocking calls.
InSteps: TypeAlias = Generator[None, None, _R]

# Records that are read in one step: about half a millisecond.
STEP_RECORDS: Final = 256


def watched(inner: Steps[_R], go_on: Callable[[], bool]) -> Steps[_R | None]:
    """Run ``inner`` as long as ``go_on`` returns True after each step.

    Returns the result of ``inner``, or None if it was stopped.
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
    """Run the first step; return the result if the work is done, else None.

    Unfinished work is closed.
    """
    try:
        next(work)
    except StopIteration as done:
        result: _R = done.value
        return result
    work.close()
    return None


def run(work: Steps[_R]) -> _R:
    """Run all steps and their calls on this thread; return the result."""
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
