"""The directories of ``log.dirs``, and their failures (KIP-112).

Code that meets an error of a device reports it here and goes on with its own error: the
handler of a request refuses it, a periodic task gives up its round. The broker looks
afterwards (`take_failed`), when nothing is half done, and takes the directory's logs
out of service. Kafka's ``LogDirFailureChannel`` and its handler thread.

A directory stays offline until a restart. A shortage (of space, descriptors, memory) is
no failure of a device: the call is refused and tried again.
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

    An error that was raised from another one counts as its cause.
    """
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return cause.errno in _SHORTAGES


class LogDirs:
    """All directories in their order, and why each that is offline is so."""

    def __init__(self, directories: Sequence[str]) -> None:
        assert directories, "log.dirs names a directory"
        self.all = tuple(directories)
        self.offline: dict[str, str] = {}
        # Called when `take_failed` has something to give.
        self.on_failure: Callable[[], None] = lambda: None
        self._failed: list[str] = []

    @property
    def online(self) -> list[str]:
        """Return the directories that are in service."""
        return [each for each in self.all if each not in self.offline]

    def failed(self, directory: str, error: OSError) -> None:
        """Note an error met in a directory; a shortage changes nothing."""
        if not _is_shortage(error):
            self.take_offline(directory, error)

    def take_offline(self, directory: str, error: OSError) -> None:
        """Use a directory no more, whatever kind of error that was."""
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
