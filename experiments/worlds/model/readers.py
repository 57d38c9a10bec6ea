"""Connections and the processors that read them, as Kafka's network threads do.

A connection has one request in the broker at a time. The next one stays in its socket
until the response is sent (mute, unmute), and longer if the client is throttled. A
processor reads its ready connections in turn. If the queue is full, a *blind* processor
blocks: it reads no other connection and sends no response until there is room (scenario
S1 of KIP-291). A *class-aware* one puts the request aside and continues; of the
requests put aside, the most urgent is admitted first.

Reading and sending take no time here, but a slow client leaves its answer in the
socket. Then only its own connection waits, because a processor does not block on a
send. A client in a closed loop (`clients`) puts a request into its socket when it has
none there.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from experiments.worlds.model.engine import Engine
from experiments.worlds.model.task import ModelTask
from planes import PlaneCore
from planes.task import TaskPlane


class Connection:
    """One client's socket: its unread requests, and whether one is in the broker.

    The client takes ``read_ns`` to read an answer.
    """

    __slots__ = ("busy", "pending", "processor", "read_ns")

    def __init__(self, processor: Processor, read_ns: int = 0) -> None:
        self.processor = processor
        self.read_ns = read_ns
        self.pending: deque[ModelTask] = deque()
        self.busy = False


class Processor:
    """One network thread; a blind one waits for room for the ``blocked`` request."""

    __slots__ = ("blocked", "blocked_ns", "blocked_since_ns", "ready", "responses")

    def __init__(self) -> None:
        self.ready: deque[Connection] = deque()
        self.responses: deque[ModelTask] = deque()
        self.blocked: ModelTask | None = None
        self.blocked_since_ns = 0
        self.blocked_ns = 0


class Clients(Protocol):
    """The clients in a closed loop (`clients.ModelClients`)."""

    def offer(self, row: ModelTask, now_ns: int) -> bool:
        """Offer a row to its client; False if the connection has none."""

    def answered(self, request: ModelTask, now_ns: int) -> bool:
        """Pass on an answer; False if no such client waits for it."""


class Readers:
    """The requests of a trace, in front of the planes: `engine.Arrivals`.

    ``route`` returns the plane of a request. ``done`` is called with every request
    whose response has been sent.
    """

    waits_for_room: bool = True

    def __init__(
        self,
        engine: Engine,
        tasks: Iterable[ModelTask],
        *,
        connections: Sequence[Connection],
        route: Callable[[ModelTask], PlaneCore],
        done: Callable[[ModelTask], None],
        class_aware: bool,
        clients: Clients | None = None,
    ) -> None:
        self._engine = engine
        self.tasks = tasks
        self._connections = list(connections)
        self._clients = clients
        # Requests whose clients have given them up.
        self._given_up: set[ModelTask] = set()
        self._route = route
        self._done = done
        self._class_aware = class_aware
        self._blocked: dict[TaskPlane, deque[Processor]] = {}
        self._aside: dict[TaskPlane, list[tuple[int, int, ModelTask]]] = {}

    def arrive(self, task: ModelTask, now_ns: int) -> bool:
        """Give a request to its client, or put it into its connection's socket."""
        if self._clients is None or not self._clients.offer(task, now_ns):
            self.put(task, now_ns)
        return True

    def put(self, task: ModelTask, now_ns: int) -> None:
        """Put a request into its connection's socket."""
        connection = self._connections[task.connection]
        connection.pending.append(task)
        if not connection.busy and len(connection.pending) == 1:
            connection.processor.ready.append(connection)
            self._read(connection.processor, now_ns)

    def reconnect(self, task: ModelTask) -> None:
        """Open a client's connection again; the broker still serves ``task``."""
        self._given_up.add(task)
        before = self._connections[task.connection]
        self._connections[task.connection] = Connection(before.processor)

    def done(self, task: ModelTask) -> None:
        """Send a response, or leave it to a blocked processor."""
        now_ns = task.remote_done_ns
        processor = self._connections[task.connection].processor
        if processor.blocked is None:
            self._respond(task, now_ns)
            self._read(processor, now_ns)
        else:
            processor.responses.append(task)

    def room(self, plane: TaskPlane, now_ns: int) -> None:
        """Admit requests that wait for room: first those put aside, by urgency."""
        aside = self._aside.get(plane)
        while aside:
            _, _, first = aside[0]
            if not plane.admits(first):
                break
            heapq.heappop(aside)
            self._offer(plane, first, now_ns)
        blocked = self._blocked.get(plane)
        if not blocked:
            return
        # Bounds may differ by class, so a later processor may find room.
        for processor in tuple(blocked):
            task = processor.blocked
            # Admitting one request may have admitted others.
            if task is None or processor not in blocked or not plane.admits(task):
                continue
            blocked.remove(processor)
            processor.blocked = None
            processor.blocked_ns += now_ns - processor.blocked_since_ns
            self._offer(plane, task, now_ns)
            while processor.responses and processor.blocked is None:
                self._respond(processor.responses.popleft(), now_ns)
            self._read(processor, now_ns)

    def outside(self, plane: PlaneCore) -> int:
        """Return the number of requests that were read but found the queue full."""
        blocked, aside = self._blocked.get(plane, ()), self._aside.get(plane, ())
        return len(blocked) + len(aside)

    def _read(self, processor: Processor, now_ns: int) -> None:
        """Read ready connections in turn, until one request finds no room."""
        while processor.ready and processor.blocked is None:
            connection = processor.ready.popleft()
            task = connection.pending.popleft()
            connection.busy = True
            task.received_ns = now_ns
            plane = self._route(task)
            if plane.admits(task):
                self._offer(plane, task, now_ns)
            elif self._class_aware:
                aside = self._aside.setdefault(plane, [])
                heapq.heappush(aside, (task.level, task.number, task))
            else:
                processor.blocked = task
                processor.blocked_since_ns = now_ns
                self._blocked.setdefault(plane, deque()).append(processor)

    def _offer(self, plane: TaskPlane, task: ModelTask, now_ns: int) -> None:
        task.plane = plane
        admitted = self._engine.offer(task, now_ns)
        assert admitted, (plane, task)

    def _respond(self, task: ModelTask, now_ns: int) -> None:
        """Send the response, which a slow client reads later."""
        if task in self._given_up:
            self._given_up.remove(task)
            return
        task.response_dequeued_ns = now_ns
        connection = self._connections[task.connection]
        if connection.read_ns:
            taken_ns = now_ns + connection.read_ns
            self._engine.at(taken_ns, partial(self._taken, task, connection))
        else:
            self._sent(task, connection, now_ns)

    def _taken(self, task: ModelTask, connection: Connection, now_ns: int) -> None:
        self._sent(task, connection, now_ns)
        self._read(connection.processor, now_ns)

    def _sent(self, task: ModelTask, connection: Connection, now_ns: int) -> None:
        """Complete a request, and unmute the connection unless it is throttled."""
        task.response_sent_ns = now_ns
        if task.throttled_until_ns > now_ns:
            self._engine.at(
                task.throttled_until_ns, partial(self._end_throttle, connection)
            )
        else:
            self._unmute(connection)
        if self._clients is None or not self._clients.answered(task, now_ns):
            self._done(task)

    def _unmute(self, connection: Connection) -> None:
        connection.busy = False
        if connection.pending:
            connection.processor.ready.append(connection)

    def _end_throttle(self, connection: Connection, now_ns: int) -> None:
        self._unmute(connection)
        self._read(connection.processor, now_ns)
