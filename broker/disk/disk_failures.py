"""The errors of logs with code KAFKA_STORAGE_ERROR: a failed device, a closed log.

Both are Kafka's ``KafkaStorageException``. They are two classes because they need
different reactions: a failed device takes its log directory offline (KIP-112), and a
closed log needs no action.
"""

from __future__ import annotations

from posixpath import dirname

from broker.protocol.errors import ErrorCode, KafkaError


class LogStorageError(KafkaError):
    """A device failed a call of a log.

    ``directory`` is the log's own, ``log_dir`` its parent in ``log.dirs``, ``error``
    the error of the operating system.
    """

    def __init__(self, directory: str, error: OSError) -> None:
        super().__init__(ErrorCode.kafka_storage_error, f"{directory}: {error}")
        self.directory = directory
        self.log_dir = dirname(directory)
        self.error = error


class LogUnavailable(KafkaError):
    """A call to a log that is closed, deleted, or offline."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, reason)
