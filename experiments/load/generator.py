"""Connections of the load generator to a broker, and the topics that they need.

Requests of a controller (LEADER_AND_ISR, UPDATE_METADATA) go to the control plane's
listener if there is one, like those of a real controller; all others to the data
listener. Set-up requests have negative correlation ids, which no record contains.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import asdict, dataclass, replace

from experiments.design.workload import Workload
from experiments.load import frames
from experiments.load.load_requests import SetupRequest, error_of
from experiments.load.openloop import connected
from experiments.load.senders import senders

Address = tuple[str, int]
_SETUP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker under load: its addresses, and its controller epoch.

    ``control`` is its control plane's listener, if it has one.
    """

    data: Address
    control: Address | None
    controller_epoch: int = frames.CONTROLLER_EPOCH

    @classmethod
    def read(cls, line: str) -> Target:
        """Parse the output of `line`."""
        fields = json.loads(line)
        control = fields.pop("control")
        data = tuple(fields.pop("data"))
        return cls(data=data, control=tuple(control) if control else None, **fields)

    def line(self) -> str:
        """Return the target as one line."""
        return json.dumps(asdict(self))


class SetupClient:
    """One blocking connection that prepares topics for the load."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, _SETUP_TIMEOUT_S)
        self._correlation_id = 0

    def request(self, request: SetupRequest) -> bytes:
        """Send one request and return its answer; exit if that is an error.

        While a topic or a group settles the request is sent again.
        """
        deadline_s = time.monotonic() + _SETUP_TIMEOUT_S
        while True:
            self._correlation_id -= 1
            self._socket.sendall(request.frame(self._correlation_id))
            answer = self._exactly(int.from_bytes(self._exactly(4)))
            code = error_of(request.api_key, answer)
            if not code:
                return answer
            if code not in frames.SETTLING or time.monotonic() > deadline_s:
                sys.exit(
                    f"set-up request with API key {request.api_key} was answered {code}"
                )
            time.sleep(frames.SETTLING_PAUSE_S)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                sys.exit("the broker closed the set-up connection")
            received += piece
        return bytes(received)


def prepare(workload: Workload, target: Target, timestamp_ms: int) -> frames.Node:
    """Create and fill the load's topics; return the broker for controller requests."""
    client = SetupClient(target.data)
    answer = b""
    for request in frames.setup_requests(workload, timestamp_ms):
        answer = client.request(request)
    node = replace(frames.node_of(answer), controller_epoch=target.controller_epoch)
    for request in frames.preparations(workload, node):
        client.request(request)
    client.close()
    return node


def connect(workload: Workload, target: Target) -> list[socket.socket]:
    """Open every connection of the load."""
    sockets = []
    for sender in senders(workload):
        address = target.data
        if sender.traffic.request.is_controllers:
            address = target.control or target.data
        sockets.append(connected(address))
    return sockets
