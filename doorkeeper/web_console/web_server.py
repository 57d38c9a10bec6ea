"""The console as a process: Hypercorn on a loopback address, until a signal."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import ASGIFramework

from broker.client.admin import open_admin
from broker.client.background import background
from broker.observation.logs import TextFormatter
from broker.protocol.errors import ConfigError
from doorkeeper.web_console.app import Console
from doorkeeper.web_console.cluster_view import ClusterView
from doorkeeper.web_console.guard import LOOPBACK_NAMES

_BACKLOG: Final = 100
_GRACE_S: Final = 3.0
# Of the clients: a broker that is away is given up within the limit of a page.
_CLIENT_SETTINGS: Final[Mapping[str, object]] = {
    "client.id": "doorkeeper-console",
    "request.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.max.ms": 200,
}


def loopback(host: str) -> str:
    """Return the address of a loopback host; raises `ConfigError` for others."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        expected = (
            "a loopback address: the console has no login, and listens on no other"
        )
        raise ConfigError("--host", host, expected)
    return host


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    found.setblocking(False)
    return found


def run(
    listener: socket.socket,
    clusters: Sequence[str],
    settings: Mapping[str, str],
    report: Callable[[str], object],
    *,
    allow_changes: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends the process at once.

    ``clusters`` are bootstrap addresses. Raises `ConfigError`.
    """
    _log_changes()
    trio.run(_run, listener, clusters, settings, report, allow_changes)


def _log_changes() -> None:
    """Write a line for each change to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter())
    log = logging.getLogger(__package__)
    log.addHandler(handler)
    log.setLevel(logging.INFO)


async def _run(
    listener: socket.socket,
    clusters: Sequence[str],
    settings: Mapping[str, str],
    report: Callable[[str], object],
    allow_changes: bool,
) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    async with AsyncExitStack() as stack:
        views = []
        for bootstrap in clusters:
            keys: dict[str, Any] = {**_CLIENT_SETTINGS, **settings}
            admin = await stack.enter_async_context(open_admin(bootstrap, **keys))
            views.append(ClusterView(bootstrap, admin))
        histories = [it.keep_history for it in views]
        await stack.enter_async_context(background(*histories))
        # ASGI's types have two authors.
        console = Console(views, allow_changes=allow_changes)
        app: Any = console.app(LOOPBACK_NAMES | {shown})
        await _serve(
            app, listener, lambda: report(f"console on http://{shown}:{port}/")
        )


async def _serve(
    app: ASGIFramework, listener: socket.socket, ready: Callable[[], object]
) -> None:
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.include_server_header = False
    config.loglevel = "ERROR"
    config.graceful_timeout = _GRACE_S

    async def stopped() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            ready()
            async for _ in signals:
                break

    await serve(app, config, shutdown_trigger=stopped, mode="asgi")
