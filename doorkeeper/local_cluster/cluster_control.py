"""Commands to a running ``cluster up``, over a socket in its data directory.

A request is one line, such as ``stop 1``. The answer follows when the command has been
carried out, and is one line: ``ok`` or the reason of a failure.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ACTIONS: Final = ("stop", "start", "kill")
_SOCKET: Final = "control.sock"
_OK: Final = "ok"
# Longer than any broker may take to start or to stop.
_ANSWER_S: Final = 150.0
_REQUEST_S: Final = 5.0
_REQUEST_BYTES: Final = 100


class ControlError(Exception):
    """A command that cannot be carried out; the message is one sentence."""


class ControlSocket:
    """The end of the socket that a running cluster listens on."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening

    def serve(self, wait_s: float, carry_out: Callable[[str, int], None]) -> None:
        """Carry out one command if one comes in time.

        ``carry_out`` gets the action and the broker's number, and raises
        `ControlError`.
        """
        self._listening.settimeout(wait_s)
        try:
            connection, _ = self._listening.accept()
        except TimeoutError:
            return
        # The other side may have closed its end.
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_REQUEST_S)
            action, _, number = connection.recv(_REQUEST_BYTES).decode().partition(" ")
            answer = _OK
            try:
                if action not in ACTIONS or not number.strip().isdecimal():
                    raise ControlError(f"the commands are {', '.join(ACTIONS)} N")
                carry_out(action, int(number))
            except ControlError as error:
                answer = str(error)
            connection.sendall(answer.encode())


@contextlib.contextmanager
def control_socket(directory: Path) -> Iterator[ControlSocket]:
    """Listen for commands while the block runs."""
    with _address(directory) as address, socket.socket(socket.AF_UNIX) as listening:
        (directory / _SOCKET).unlink(missing_ok=True)
        listening.bind(address)
        listening.listen()
        try:
            yield ControlSocket(listening)
        finally:
            (directory / _SOCKET).unlink(missing_ok=True)


def send_command(directory: Path, action: str, number: int) -> None:
    """Send a command to the running cluster whose data is in ``directory``.

    :raises ControlError: if there is no such cluster, or it refuses.
    """
    nowhere = f"no running cluster has its data in {directory}"
    if not (directory / _SOCKET).exists():
        raise ControlError(nowhere)
    with _address(directory) as address, socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        try:
            asking.connect(address)
            asking.sendall(f"{action} {number}".encode())
            answer = asking.recv(65_536).decode()
        except OSError as error:
            raise ControlError(f"{nowhere}: {error}") from error
    if answer != _OK:
        raise ControlError(answer or "the cluster has ended meanwhile")


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """Return the socket's address by a descriptor: paths may have only 107 bytes."""
    at = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{at}/{_SOCKET}"
    finally:
        os.close(at)
