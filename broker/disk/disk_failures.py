"""The errors of logs behind KAFKA_STORAGE_ERROR: a device failed, or a log is closed.

Both are Kafka's ``KafkaStorageException``. They are two classes because they need
different reactions: after a failed device the directory is checked (KIP-112 takes it
offline), a closed log needs no action.
"""

from __future__ import annotations

from posixpath import dirname

from broker.protocol.errors import ErrorCode, KafkaError


class LogStorageError(KafkaError):
    """A device refused a call that a log made.

    ``directory`` is the log's own, ``log_dir`` the one of ``log.dirs`` that holds it,
    ``error`` the error of the operating system.
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
