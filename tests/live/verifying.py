"""Settings of librdkafka's clients that verify brokers which go and come back."""

from __future__ import annotations

from typing import Any, Final


class Quiet:
    """A logger for librdkafka, which tells of each lost connection."""

    def log(self, *_: Any) -> None:
        """Discard the message."""

    handle = log


# A client that finds its broker gone comes back soon.
PATIENT: Final = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 5_000,
    "logger": Quiet(),
}
