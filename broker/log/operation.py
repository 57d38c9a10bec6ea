"""The guard around every operation on a log: closed logs and failed devices.

A closed log refuses every one of them, and an error of its device has one name
whichever of them met it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from broker.log.log import Log
from broker.log.steps import Steps, watched

_P = ParamSpec("_P")
_R = TypeVar("_R")


def operation(
    work: Callable[Concatenate[Log, _P], _R],
) -> Callable[Concatenate[Log, _P], _R]:
    """Make an operation of a function: it raises KAFKA_STORAGE_ERROR for both.

    As `LogUnavailable` on a closed log, as `LogStorageError` for an ``OSError``.
    """

    @wraps(work)
    def guarded(log: Log, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        log.check_open()
        try:
            return work(log, *args, **kwargs)
        except OSError as error:
            raise log.storage.failure(log.directory, error) from error

    return guarded


def in_steps(
    work: Callable[Concatenate[Log, _P], Steps[_R]],
) -> Callable[Concatenate[Log, _P], Steps[_R | None]]:
    """Make an operation of a generator function; see `operation`.

    It ends at the next step after the log was closed, with `LogUnavailable`.
    """

    @wraps(work)
    def guarded(log: Log, /, *args: _P.args, **kwargs: _P.kwargs) -> Steps[_R | None]:
        def go_on() -> bool:
            log.check_open()
            return True

        log.check_open()
        try:
            return (yield from watched(work(log, *args, **kwargs), go_on))
        except OSError as error:
            raise log.storage.failure(log.directory, error) from error

    return guarded
