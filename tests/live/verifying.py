"""Settings of librdkafka clients that verify a restarting broker."""

from __future__ import annotations

from typing import Any, Final


class Quiet:
    """A logger that discards librdkafka's messages about lost connections."""

    def log(self, *_: Any) -> None:
        """Discard the message."""

    handle = log


# A client without its broker reconnects quickly.
PATIENT: Final = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 5_000,
    "logger": Quiet(),
}
