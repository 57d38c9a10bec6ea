"""The three kinds of error: the peer's, the operator's, and (assertions) our own.

A peer's fault is either an error code in an answer (`KafkaError`) or bytes that no
answer can be given to (`MalformedFrame`: the connection is closed, as Kafka does on
``InvalidRequestException``). An operator's fault stops start-up and names the
configuration key (`ConfigError`). Our own faults are assertions, on in production;
they have no class here, so that nobody can catch them together with the others.

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


# A message may quote a name of 65,535 bytes, and be in each of many rows.
MESSAGE_CHARS_MAX: Final = 1000


class KafkaError(Exception):
    """A request, or one partition of it, is answered with an error code.

    A message that is longer than `MESSAGE_CHARS_MAX` is cut.
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
    """A batch is refused for some of its records.

    ``records`` are pairs: the index in the batch, and what is wrong (KIP-467).
    """

    def __init__(
        self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]
    ) -> None:
        super().__init__(code, message)
        self.records = records


class MalformedFrame(Exception):
    """A frame does not parse; its connection is closed without an answer."""


class ConfigError(Exception):
    """A configuration key is unknown, or its value is not one it can take.

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
    """No log directory is left to serve from; the broker has to stop, as Kafka does."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(
            "; ".join(f"{directory}: {reason}" for directory, reason in reasons.items())
        )


class UncleanStop(Exception):
    """A disk did not take what an orderly stop writes; the next start recovers it."""
