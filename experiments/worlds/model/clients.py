"""Clients of the model in a closed loop: `experiments.load.closed_loop` on its heap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from experiments.load.closed_loop import ClosedLoop, Rules, demand_ns
from experiments.worlds.model.task import ModelTask

# Called with a row, the answered request that carried it, and its send time.
Ended: TypeAlias = Callable[[ModelTask, ModelTask, int], None]


class Sockets(Protocol):
    """The connections of the clients (`readers.Readers`)."""

    def put(self, task: ModelTask, now_ns: int) -> None:
        """Put a request into its connection's socket."""

    def reconnect(self, task: ModelTask) -> None:
        """Open a client's connection again; the broker still serves ``task``."""


class ModelClients:
    """All clients of a run; ``rules`` are theirs by connection.

    ``further`` is the share of its demand that each further row of a request costs.
    ``at`` calls a function at an instant of the run. ``ended`` is called with each row
    that will not be sent again.
    """

    def __init__(
        self,
        rules: Mapping[int, Rules],
        further: Mapping[int, float],
        *,
        at: Callable[[int, Callable[[int], None]], None],
        ended: Ended,
    ) -> None:
        self._wires = {
            connection: _Wire(self, further[connection]) for connection in rules
        }
        self._loops = {
            connection: ClosedLoop(rules[connection], wire)
            for connection, wire in self._wires.items()
        }
        self.at = at
        self.ended = ended
        self.sockets: Sockets

    def offer(self, row: ModelTask, now_ns: int) -> bool:
        """Offer a row to its client; False if the connection has none."""
        loop = self._loops.get(row.connection)
        if loop is None:
            return False
        self._wires[row.connection].rows[row.number] = row
        loop.offer(row.number, now_ns)
        return True

    def answered(self, request: ModelTask, now_ns: int) -> bool:
        """Pass on an answer; False if no such client waits for it."""
        loop = self._loops.get(request.connection)
        if loop is None:
            return False
        sending = self._wires[request.connection].sending
        is_refused = request.refusal is not None
        loop.answered(sending, now_ns, is_refused=is_refused)
        return True


class _Wire:
    """The connection of one client (`closed_loop.Wire`): its rows, its last request."""

    def __init__(self, clients: ModelClients, further: float) -> None:
        self._clients = clients
        self._further = further
        self.rows: dict[int, ModelTask] = {}
        self.sending = 0
        self._sent_ns = 0
        self._request: ModelTask

    def send(self, rows: Sequence[int], now_ns: int) -> int:
        """Send one request that carries ``rows``; return its number."""
        tasks = [self.rows[row] for row in rows]
        cost_ns = demand_ns([it.demand_ns for it in tasks], self._further)
        self._request = tasks[0].carrying(len(rows), cost_ns, now_ns)
        self.sending, self._sent_ns = self.sending + 1, now_ns
        # As an event, because the readers may be iterating.
        self._clients.at(now_ns, partial(self._clients.sockets.put, self._request))
        return self.sending

    def give_up(self, sending: int, now_ns: int) -> None:
        """Close the connection with a pending answer, and open another."""
        self._clients.sockets.reconnect(self._request)

    def ended(self, rows: Sequence[int], sending: int, now_ns: int) -> None:
        """Report completed rows with their request, if it was answered."""
        for row in rows:
            task = self.rows.pop(row)
            if self._request.response_sent_ns >= 0:
                self._clients.ended(task, self._request, self._sent_ns)

    def at(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Call a function at an instant of the run."""
        self._clients.at(at_ns, call)
