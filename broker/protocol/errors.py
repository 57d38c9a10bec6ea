"""The three kinds of error: of the peer, of the operator, and bugs (assertions).

An error of a peer is either an error code in a response (`KafkaError`) or bytes without
a possible response (`MalformedFrame`: the connection is closed, as in Kafka on
``InvalidRequestException``). An error of the operator stops the start and names the
configuration key (`ConfigError`). Bugs are assertions, which are enabled in production;
they have no class here, so that no handler catches them together with the others.

`ErrorCode` is kio's enumeration of Kafka's ``Errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

__all__ = [
    "ConfigError",
    "ErrorCode",
    "InvalidRecords",
    "KafkaError",
    "LogDirsLost",
    "MalformedFrame",
    "UncleanStop",
]


# A message may quote a name of 65,535 bytes, and may be repeated in many rows.
MESSAGE_CHARS_MAX: Final = 1000


class KafkaError(Exception):
    """An error code for the response to a request or to one of its partitions.

    A message longer than `MESSAGE_CHARS_MAX` is cut.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        if message is not None and len(message) > MESSAGE_CHARS_MAX:
            message = f"{message[: MESSAGE_CHARS_MAX - 3]}..."
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        if self.message is None:
            return self.code.name
        return f"{self.code.name}: {self.message}"


class InvalidRecords(KafkaError):
    """A batch is rejected because of some of its records.

    ``records`` are pairs of the index in the batch and the error message (KIP-467).
    """

    def __init__(
        self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]
    ) -> None:
        super().__init__(code, message)
        self.records = records


class MalformedFrame(Exception):
    """A frame cannot be parsed; its connection is closed without a response."""


class ConfigError(Exception):
    """A configuration key is unknown, or its value is invalid.

    ``found`` is the value as it was written; ``expected`` completes the sentence
    "expected ...".
    """

    def __init__(self, key: str, found: object, expected: str) -> None:
        super().__init__(key, found, expected)
        self.key = key
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.key}: found {self.found!r}, expected {self.expected}"


class LogDirsLost(Exception):
    """All log directories have failed; the broker has to stop, as in Kafka."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(
            "; ".join(f"{directory}: {reason}" for directory, reason in reasons.items())
        )


class UncleanStop(Exception):
    """A disk failed during an orderly stop; the next start recovers its logs."""
