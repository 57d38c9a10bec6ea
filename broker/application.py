"""What a server serves: everything of a broker that stands behind its sockets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from broker.config import BrokerConfig, Listener
from broker.metrics.metric import Metric
from broker.request import Request, Response

TimerMoved: TypeAlias = Callable[[], None]


class Application(Protocol):
    """Opened once the listeners are known, and closed when nothing is served any more.

    ``config_listeners`` are to be called with the configuration when it has changed.
    """

    config_listeners: list[Callable[[BrokerConfig], None]]

    def open(self, listeners: Sequence[Listener], timer_moved: TimerMoved) -> None:
        """Start, knowing the addresses that clients are to be told.

        ``timer_moved`` is to be called when ``next_expiry_ns`` has come nearer.
        """

    def serve(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Return the response, if it can be had at once, or the handler to run."""

    def next_expiry_ns(self) -> int | None:
        """Return when ``expire`` has something to do, if ever."""

    def expire(self, now_ns: int) -> None:
        """Complete whatever has waited long enough."""

    def metrics(self) -> Iterable[Metric]:
        """Return metrics beyond those of the request path."""

    def close(self) -> None:
        """Flush and close all files; nothing is served any more."""
