"""The guard around every operation on a log: closed logs and failed devices.

A closed log refuses every operation, and every operation maps an error of the device to
the same exception.
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
    """Turn a function into an operation, which raises KAFKA_STORAGE_ERROR.

    The error is `LogUnavailable` for a closed log and `LogStorageError` for an
    ``OSError``.
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
    """Turn a generator function into an operation; see `operation`.

    If the log is closed meanwhile, the next step raises `LogUnavailable`.
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
