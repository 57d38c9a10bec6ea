"""Ports of the loopback interface: free ports, and answers from servers."""

from __future__ import annotations

import socket
import time

from experiments.processes.children import Child

HOST = "127.0.0.1"
_ATTEMPT_S, _PAUSE_S = 1.0, 0.05


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def exchange(port: int, frame: bytes) -> bytes:
    """Send a frame; return the answer without its size; raises `OSError`."""
    with socket.create_connection((HOST, port), _ATTEMPT_S) as client:
        client.sendall(frame)
        with client.makefile("rb") as answer:
            size = int.from_bytes(answer.read(4))
            found = answer.read(size)
    if not size or len(found) < size:
        raise ConnectionResetError(f"port {port} hung up")
    return found


def wait_for_answer(child: Child, port: int, probe: bytes, timeout_s: float) -> None:
    """Wait until a port answers ``probe`` in any way.

    :raises RunFailed: if the process ends, or on a time-out.
    """
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        child.expect_alive()
        child.tick()
        try:
            with socket.create_connection((HOST, port), _ATTEMPT_S) as client:
                client.sendall(probe)
                if client.recv(4):
                    return
        except OSError:
            # The server does not listen or answer yet.
            time.sleep(_PAUSE_S)
    raise child.failure(f"did not answer within {timeout_s:.0f} s")
