"""The errors of logs behind KAFKA_STORAGE_ERROR: a device failed, or a log is closed.

Both are Kafka's ``KafkaStorageException``. They are two classes because they ask for
different things: after a failed device somebody has to look at the directory (KIP-112
takes it offline), a log that was closed wants nothing but to be left alone.
"""

from __future__ import annotations

from posixpath import dirname

from broker.protocol.errors import ErrorCode, KafkaError


class LogStorageError(KafkaError):
    """A device refused a call that a log made.

    ``directory`` is the log's own, ``log_dir`` the one of ``log.dirs`` that holds it,
    ``error`` what the operating system said.
    """

    def __init__(self, directory: str, error: OSError) -> None:
        super().__init__(ErrorCode.kafka_storage_error, f"{directory}: {error}")
        self.directory = directory
        self.log_dir = dirname(directory)
        self.error = error


class LogUnavailable(KafkaError):
    """A log takes nothing: it was closed, deleted, or left service before."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, reason)
