"""The console as a process: Hypercorn on one address, until a signal."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import ASGIFramework

from broker.client.admin import open_admin
from broker.client.background_tasks import background
from broker.observation.logs import TextFormatter
from broker.protocol.errors import ConfigError
from doorkeeper.web_console.app import Console
from doorkeeper.web_console.cluster_view import ClusterView
from doorkeeper.web_console.guard import LOOPBACK_NAMES
from doorkeeper.web_console.login import LENGTH_MIN, Password

PASSWORD_VARIABLE: Final = "DOORKEEPER_CONSOLE_PASSWORD"
_BACKLOG: Final = 100
_GRACE_S: Final = 3.0
_HEAD_BYTES_MAX: Final = 256 << 10
# Settings of the clients: an unreachable broker fails within the limit of a page.
_CLIENT_SETTINGS: Final[Mapping[str, object]] = {
    "client.id": "doorkeeper-console",
    "request.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.max.ms": 200,
}


def listening_address(host: str, *, has_login: bool) -> str:
    """Return the address of a host; raises `ConfigError` for names.

    Addresses other than loopback require a login.
    """
    if host == "localhost":
        return "127.0.0.1"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError("--host", host, "an IP address, or localhost") from None
    if not (found.is_loopback or has_login):
        expected = "a loopback address: others need a login (--password-file)"
        raise ConfigError("--host", host, expected)
    return host


def read_password(file: Path | None, environ: Mapping[str, str]) -> Password | None:
    """Return the password in a file's first line, or in the environment.

    None without either. Raises `ConfigError` if it is too short, and `OSError`.
    """
    name, given = "--password-file", environ.get(PASSWORD_VARIABLE)
    if file is not None:
        given = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    elif given is None:
        return None
    else:
        name = PASSWORD_VARIABLE
    if len(given) < LENGTH_MIN:
        # The message must not contain the secret.
        raise ConfigError(name, "(hidden)", f"at least {LENGTH_MIN} characters")
    return Password(given)


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
    password: Password | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends the process at once.

    ``clusters`` are bootstrap addresses. Raises `ConfigError`.
    """
    _log_changes()
    trio.run(_run, listener, clusters, settings, report, allow_changes, password)


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
    password: Password | None,
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
        # Starlette and Hypercorn each define their own ASGI types.
        console = Console(views, allow_changes=allow_changes, password=password)
        is_loopback = ipaddress.ip_address(host).is_loopback
        app: Any = console.app(LOOPBACK_NAMES | {shown} if is_loopback else None)

        async def stopped() -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                report(f"console on http://{shown}:{port}/")
                async for _ in signals:
                    break

        await serve_app(app, listener, stopped)


async def serve_app(
    app: ASGIFramework,
    listener: socket.socket,
    stopped: Callable[[], Awaitable[None]],
) -> None:
    """Serve the browsers that connect to ``listener`` until ``stopped`` returns."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.include_server_header = False
    config.loglevel = "ERROR"
    config.graceful_timeout = _GRACE_S
    # The preview of a form is a GET, and its fields may be lists of topics.
    config.h11_max_incomplete_size = _HEAD_BYTES_MAX
    await serve(app, config, shutdown_trigger=stopped, mode="asgi")
