"""Supervisor of the processes of ``doorkeeper cluster up``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from broker.config import (
    DOORKEEPER_CONSOLE_PORT,
    DOORKEEPER_METRICS_PORT,
    Key,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.metadata import MetadataRequest
from doorkeeper.local_cluster.cluster_control import (
    ControlError,
    ControlSocket,
    control_socket,
)
from doorkeeper.local_cluster.cluster_settings import (
    expect_connect_string,
    listeners,
    shared_settings,
)
from doorkeeper.local_cluster.console_child import console_command, expect_free_port
from experiments.load import load_requests as requests
from experiments.processes.child import Binding
from experiments.processes.children import Child, RunFailed, bound_child
from experiments.processes.java import TERMINATED
from experiments.processes.loopback import HOST, exchange, free_ports
from experiments.processes.own_zookeeper import start_own_zookeeper
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper

_START_S, _STOP_S = 60.0, 60.0
_LOOK_S: Final = 0.2
# The value of ``--zookeeper`` that starts Java's server.
JAVA: Final = "java"
# The console's place among the brokers' numbers.
_CONSOLE: Final = -1


class _Stopped(Exception):
    """A signal requested the end."""


def run(
    brokers: int,
    port: int,
    directory: Path | None,
    settings: Mapping[str, str],
    *,
    zookeeper: str | None = None,
) -> None:
    """Run a cluster until SIGTERM or SIGINT.

    ``zookeeper`` is `JAVA`, or the connect string of a running server. By default the
    server in memory is started.

    :raises ClusterError: if a setting belongs to a single broker, or ``zookeeper`` is
        invalid.
    :raises ConfigError: if a broker rejects a setting.
    :raises RunFailed: if a process could not start or did not stop, or ZooKeeper ended.
    """
    shared = shared_settings(brokers, settings)
    console_port = _taken_out(shared, DOORKEEPER_CONSOLE_PORT)
    if console_port is not None:
        expect_free_port(console_port)
    if zookeeper not in (None, JAVA):
        expect_connect_string(zookeeper)
    with (
        _directory(directory) as at,
        _signals() as received,
        contextlib.ExitStack() as stack,
    ):
        cluster = _Cluster(at, received, stack)
        try:
            cluster.start(brokers, port, shared, zookeeper, console_port)
        except _Stopped:
            # No client relies on it yet, so all started processes are killed.
            return
        try:
            with contextlib.suppress(_Stopped), control_socket(at) as control:
                cluster.watch(control)
        finally:
            cluster.stop()


def _taken_out(settings: dict[str, str], key: Key[int | None]) -> int | None:
    """Remove a key from the settings, and return its value."""
    written = settings.pop(key.name, None)
    return None if written is None else key.read(written)


@contextlib.contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="doorkeeper-") as made:
            yield Path(made)
    else:
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect signals that request the end, instead of stopping at any instruction."""
    received: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {
        it: signal.signal(it, lambda it, _: received.append(it)) for it in numbers
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Cluster:
    """The processes of a cluster; all of them end with it."""

    def __init__(
        self, at: Path, received: list[int], stack: contextlib.ExitStack
    ) -> None:
        self._at = at
        self._received = received
        self._stack = stack
        self._bound = Binding(
            parent=os.getpid(), cpus=None, nice=os.getpriority(os.PRIO_PROCESS, 0)
        )
        self._brokers: list[Child] = []
        self._metrics_ports: Sequence[int] = ()
        self._console: Child | None = None
        # None if it runs elsewhere; and its exit status after SIGTERM.
        self._zookeeper: Child | None = None
        self._zookeeper_status = 0
        # Numbers of watched processes whose end has been noted.
        self._down: set[int] = set()

    def start(
        self,
        count: int,
        port: int,
        settings: dict[str, str],
        zookeeper: str | None,
        console_port: int | None,
    ) -> None:
        """Start ZooKeeper, then the brokers; print the addresses when all are ready.

        A console follows if it is to have a port; it reads the brokers' metrics.
        """
        metrics_port = _taken_out(settings, DOORKEEPER_METRICS_PORT)
        # All at once, so that all differ.
        free = free_ports(2 * count)
        if metrics_port:
            self._metrics_ports = range(metrics_port, metrics_port + count)
        elif metrics_port == 0 or console_port is not None:
            self._metrics_ports = free[count:]
        if zookeeper in (None, JAVA):
            zookeeper = self._start_zookeeper(java=zookeeper == JAVA)
        self._shared = {**settings, "zookeeper.connect": zookeeper}
        self._ports = range(port, port + count) if port else free[:count]
        ports = self._ports
        self._brokers = [self._start_broker(number) for number in range(count)]
        for broker in self._brokers:
            # A listening broker prints a line; a process that ends meanwhile is
            # reported at once.
            broker.line(_START_S, *self._shared_children(), *self._brokers)
        for broker, each in zip(self._brokers, ports, strict=True):
            self._wait_for_metadata(broker, each, count)
        addresses = ",".join(f"{HOST}:{each}" for each in ports)
        click.echo(f"zookeeper.connect={zookeeper}")
        click.echo(f"bootstrap.servers={addresses}")
        if console_port is not None:
            command = console_command(console_port, addresses)
            child = bound_child("console", command, self._at, self._bound, self._tick)
            self._console = self._stack.enter_context(child)
            click.echo(
                self._console.line(_START_S, *self._shared_children(), *self._brokers)
            )

    def _start_zookeeper(self, *, java: bool) -> str:
        """Start a server; return its address when it answers."""
        (port,) = free_ports(1)
        start = start_zookeeper if java else start_own_zookeeper
        self._zookeeper_status = TERMINATED if java else 0
        child = self._stack.enter_context(
            start(self._at, port, self._bound, self._tick)
        )
        wait_for_zookeeper(child, port, _START_S)
        self._zookeeper = child
        return f"{HOST}:{port}"

    def _shared_children(self) -> tuple[Child, ...]:
        """Return the processes that all brokers need: ZooKeeper, if it is a child."""
        return () if self._zookeeper is None else (self._zookeeper,)

    def _start_broker(self, number: int) -> Child:
        shared = self._shared
        keys = {
            **shared,
            "broker.id": str(number),
            "listeners": listeners(shared, HOST, self._ports[number]),
            "log.dirs": str(self._at / f"broker-{number}"),
        }
        if self._metrics_ports:
            keys[DOORKEEPER_METRICS_PORT.name] = str(self._metrics_ports[number])
        command = [sys.executable, "-m", "doorkeeper", "serve"]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        name = f"broker-{number}"
        child = bound_child(name, command, self._at, self._bound, self._tick)
        return self._stack.enter_context(child)

    def _wait_for_metadata(self, broker: Child, port: int, count: int) -> None:
        """Wait until a broker's metadata names all brokers and the controller."""
        ends_s = time.monotonic() + _START_S
        while not _names_all(port, count):
            self._check_children()
            if time.monotonic() > ends_s:
                raise broker.failure(f"knows no cluster of {count} brokers")

    def _check_children(self) -> None:
        """Check that the processes are alive, then pause."""
        self._tick()
        for child in (*self._shared_children(), *self._brokers):
            child.expect_alive()
        time.sleep(_LOOK_S)

    def watch(self, control: ControlSocket) -> None:
        """Watch the processes and carry out commands until a signal requests the end.

        :raises RunFailed: if ZooKeeper ends earlier.
        """
        while True:
            self._tick()
            for child in self._shared_children():
                child.expect_alive()
            for number, child in self._watched().items():
                if child.ended and number not in self._down:
                    self._down.add(number)
                    ended = child.ending(0) or f"{child.name} ended with status 0"
                    click.echo(ended, err=True)
            control.serve(_LOOK_S, self._carry_out)

    def _watched(self) -> Mapping[int, Child]:
        """Return the processes whose end does not end the cluster."""
        console = {} if self._console is None else {_CONSOLE: self._console}
        return {**console, **dict(enumerate(self._brokers))}

    def _carry_out(self, action: str, number: int) -> None:
        """Stop, start or kill one broker; raise `ControlError`."""
        if number >= len(self._brokers):
            last = len(self._brokers) - 1
            raise ControlError(f"there is no broker {number}, only 0 to {last}")
        broker = self._brokers[number]
        if action == "start":
            if not broker.ended:
                raise ControlError(f"broker {number} is running already")
            self._brokers[number] = broker = self._start_broker(number)
            try:
                broker.line(_START_S, *self._shared_children())
            except RunFailed as failed:
                raise ControlError(str(failed)) from failed
            self._down.discard(number)
            return
        if broker.ended:
            raise ControlError(f"broker {number} is not running")
        self._down.add(number)
        if action == "kill":
            broker.kill()
            return
        fault = broker.stop(_STOP_S)
        if fault:
            raise ControlError(fault)

    def stop(self) -> None:
        """Stop the console and the running brokers, then ZooKeeper.

        :raises RunFailed: if one of them did not stop cleanly.
        """
        running = [child for child in self._watched().values() if not child.ended]
        for child in running:
            child.terminate()
        faults = [child.ending(_STOP_S) for child in running]
        for child in self._shared_children():
            faults.append(child.stop(_STOP_S, self._zookeeper_status))
        if any(faults):
            raise RunFailed("; ".join(filter(None, faults)))

    def _tick(self) -> None:
        if self._received:
            raise _Stopped


def _names_all(port: int, count: int) -> bool:
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    frame = requests.encode(ApiKey.METADATA, 1, "doorkeeper-cluster", request)
    try:
        answer = requests.decoded(ApiKey.METADATA, exchange(port, frame))
    except OSError:
        return False
    return len(answer.brokers) == count and answer.controller_id >= 0
