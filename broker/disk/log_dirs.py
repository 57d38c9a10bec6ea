"""The directories of ``log.dirs``, and their failures (KIP-112).

Errors of a device are reported here by the code that called it, which then fails: the
handler of a request refuses it, a periodic task ends its round. Between steps, the
broker polls `take_failed` and takes the logs of failed directories offline. Kafka has
``LogDirFailureChannel`` and a handler thread.

A directory stays offline until a restart. A shortage (of space, descriptors, memory) is
no failure of a device: the call fails and may be repeated.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from logging import getLogger
from typing import Final

from broker.observation.logs import fields

logger = getLogger(__name__)

_SHORTAGES: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EINTR,
    }
)


def _is_shortage(error: OSError) -> bool:
    """Return whether an error is a shortage, not a failed device.

    For an error raised from another ``OSError``, the cause is checked.
    """
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return cause.errno in _SHORTAGES


class LogDirs:
    """All directories in their order, and the error of each offline one."""

    def __init__(self, directories: Sequence[str]) -> None:
        assert directories, "log.dirs names a directory"
        self.all = tuple(directories)
        self.offline: dict[str, str] = {}
        # Called after each failure, when `take_failed` has a result.
        self.on_failure: Callable[[], None] = lambda: None
        self._failed: list[str] = []

    @property
    def online(self) -> list[str]:
        """Return the directories that are online."""
        return [each for each in self.all if each not in self.offline]

    def failed(self, directory: str, error: OSError) -> None:
        """Take a directory offline, unless the error is a shortage."""
        if not _is_shortage(error):
            self.take_offline(directory, error)

    def take_offline(self, directory: str, error: OSError) -> None:
        """Take a directory offline, regardless of the kind of error."""
        assert directory in self.all, directory
        if directory in self.offline:
            return
        self.offline[directory] = str(error)
        self._failed.append(directory)
        logger.error(
            "a log directory is offline until the broker is started again",
            extra=fields(directory=directory, fault=error),
        )
        self.on_failure()

    @property
    def has_failed(self) -> bool:
        """Return whether `take_failed` would return a directory."""
        return bool(self._failed)

    def take_failed(self) -> list[str]:
        """Return the directories that failed since the last call."""
        failed, self._failed = self._failed, []
        return failed
