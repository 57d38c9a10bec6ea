"""The console of a broker, as a process that ends with the broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from broker.config import (
    DOORKEEPER_CONSOLE_PORT,
    DOORKEEPER_METRICS_PORT,
    BrokerConfig,
    Listener,
)
from broker.process import main as serve
from broker.protocol.errors import ConfigError
from experiments.processes.child import Binding
from experiments.processes.loopback import HOST, free_ports

_STOP_S: Final = 10.0
# Hosts of every interface, and the loopback address of the same family.
_LOOPBACK: Final = {"": HOST, "0.0.0.0": HOST, "::": "::1"}


def console_command(port: int, bootstrap: str) -> list[str]:
    """Return the command of a read-only console on loopback."""
    words = ["console", "--port", str(port), "--bootstrap", bootstrap]
    return [sys.executable, "-m", "doorkeeper", *words]


def expect_free_port(port: int) -> None:
    """Raise `ConfigError` unless the console can listen on a port."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        raise _refused(port, f"a port that can be bound ({error.strerror})") from error


def serve_with_console(config: BrokerConfig, port: int) -> None:
    """Serve until a signal, with a console from the time that the broker listens.

    The broker serves its metrics, for the console's page of requests.

    :raises ConfigError: if a key prevents the start.
    """
    name = _listener_name(config, port)
    expect_free_port(port)
    if not config[DOORKEEPER_METRICS_PORT]:
        (free,) = free_ports(1)
        config = config.updated({DOORKEEPER_METRICS_PORT.name: str(free)})
    with ExitStack() as stack:

        def start(listeners: Sequence[Listener]) -> None:
            (found,) = (it for it in listeners if it.name == name)
            stack.enter_context(_console(console_command(port, _address(found))))

        serve(config, ready=start)


def _listener_name(config: BrokerConfig, port: int) -> str:
    """Return the listener that the console reads from; raises `ConfigError`."""
    for it in config.listeners:
        if it.security_protocol == "PLAINTEXT" and it != config.control_plane_listener:
            return it.name
    expected = "a listener for clients with PLAINTEXT; with others run the console by "
    raise _refused(port, f"{expected}`doorkeeper console --command-config`")


def _refused(port: int, expected: str) -> ConfigError:
    return ConfigError(DOORKEEPER_CONSOLE_PORT.name, port, expected)


def _address(listener: Listener) -> str:
    host = _LOOPBACK.get(listener.host, listener.host)
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


@contextmanager
def _console(command: Sequence[str]) -> Iterator[None]:
    """Run a console as a child that dies with this process and inherits its output."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    binding = Binding(parent=os.getpid(), cpus=None, nice=nice)
    bound = [sys.executable, "-m", "experiments.processes.child", binding.text()]
    with subprocess.Popen(
        [*bound, *command],
        stdin=subprocess.DEVNULL,
        # Ctrl-C reaches the broker only; the console ends after it.
        start_new_session=True,
    ) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
