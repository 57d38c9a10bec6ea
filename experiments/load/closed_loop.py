"""Clients in a closed loop: one request in flight, batches, time-outs, retries.

A row of the trace is an arrival from the application. It waits in the client while a
request is in flight on its connection. The next request carries the waiting rows, up to
``batch``, as a producer's batch carries the records that have arrived meanwhile. A slow
broker therefore receives fewer and larger requests. A broker that does not answer in
time receives requests again that it may still have in its queue.

The rules are Kafka's as far as one broker observes them: ``linger.ms``, ``batch.size``
(in rows), ``request.timeout.ms`` (the connection is closed, and another opened),
``retry.backoff.ms`` and ``delivery.timeout.ms``. One request is in flight, because a
broker serves one of a connection at a time.

Pure and synchronous: clocks, timers and connections belong to the `Wire`, which each
world implements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final, Protocol

from broker.protocol.errors import ErrorCode
from experiments.design.workload import Client, Workload
from experiments.load.senders import senders

# Errors after which Kafka's clients send a request again.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
        ErrorCode.throttling_quota_exceeded,
    }
)


class Wire(Protocol):
    """The connection of a client, and its timers."""

    def send(self, rows: Sequence[int], now_ns: int) -> int:
        """Send one request that carries ``rows``; return its number."""

    def give_up(self, sending: int, now_ns: int) -> None:
        """Close the connection with a pending answer, and open another."""

    def ended(self, rows: Sequence[int], sending: int, now_ns: int) -> None:
        """Record that ``rows`` will not be sent again; ``sending`` was the last."""

    def at(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Call a function at an instant, with the instant as argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of a client, in nanoseconds."""

    batch: int
    linger_ns: int
    request_timeout_ns: int
    retry_backoff_ns: int
    delivery_timeout_ns: int

    @classmethod
    def of(cls, client: Client, timeout_ms: float) -> Rules:
        """Return the rules of an entry; ``timeout_ms`` is ``limits.timeout_ms``."""
        return cls(
            batch=client.batch,
            linger_ns=_ns(client.linger_ms),
            request_timeout_ns=_ns(client.request_timeout_ms),
            retry_backoff_ns=_ns(client.retry_backoff_ms),
            delivery_timeout_ns=_ns(timeout_ms),
        )


def rules_of(workload: Workload, timeout_ms: float) -> dict[int, Rules]:
    """Return the rules of each connection whose client is in a closed loop."""
    return {
        sender.number: Rules.of(sender.traffic.client, timeout_ms)
        for sender in senders(workload)
        if sender.traffic.client is not None
    }


def demand_ns(demands_ns: Sequence[int], further: float) -> int:
    """Return the demand of a request that carries rows with these demands."""
    return demands_ns[0] + round(further * sum(demands_ns[1:]))


class ClosedLoop:
    """The client of one connection: its waiting rows, and those in flight."""

    def __init__(self, rules: Rules, wire: Wire) -> None:
        self._rules = rules
        self._wire = wire
        # Waiting rows, each with its arrival instant.
        self._waiting: deque[tuple[int, int]] = deque()
        self._carried: list[tuple[int, int]] = []
        self._sending: int | None = None
        self._rests = False
        self._lingers_until_ns = -1

    def offer(self, row: int, now_ns: int) -> None:
        """Accept a row."""
        self._waiting.append((row, now_ns))
        self._send(now_ns)

    def answered(self, sending: int, now_ns: int, *, is_refused: bool) -> None:
        """Process a request's answer; ignored if the request was given up."""
        if sending != self._sending:
            return
        if is_refused:
            self._fail(now_ns)
            return
        self._end(self._carried, now_ns)
        self._sending = None
        self._send(now_ns)

    def lost(self, now_ns: int) -> None:
        """Continue after the broker has closed the connection."""
        if self._sending is not None:
            self._time_out(self._sending, now_ns)

    def _send(self, now_ns: int) -> None:
        if self._sending is not None or self._rests or not self._waiting:
            return
        _, came_ns = self._waiting[0]
        due_ns = came_ns + self._rules.linger_ns
        if len(self._waiting) < self._rules.batch and now_ns < due_ns:
            if due_ns != self._lingers_until_ns:
                self._lingers_until_ns = due_ns
                self._wire.at(due_ns, self._send)
            return
        size = min(self._rules.batch, len(self._waiting))
        self._carried = [self._waiting.popleft() for _ in range(size)]
        self._sending = self._wire.send([row for row, _ in self._carried], now_ns)
        self._wire.at(
            now_ns + self._rules.request_timeout_ns,
            partial(self._time_out, self._sending),
        )

    def _time_out(self, sending: int, now_ns: int) -> None:
        if sending == self._sending:
            self._wire.give_up(sending, now_ns)
            self._fail(now_ns)

    def _fail(self, now_ns: int) -> None:
        """Send the carried rows again, except those whose time has run out."""
        again_ns = now_ns + self._rules.retry_backoff_ns
        oldest_ns = again_ns - self._rules.delivery_timeout_ns
        # Rows arrived in order, so expired rows are the first.
        ended = list(takewhile(lambda it: it[1] <= oldest_ns, self._carried))
        self._waiting.extendleft(reversed(self._carried[len(ended) :]))
        self._end(ended, now_ns)
        self._sending = None
        self._rests = True
        self._wire.at(again_ns, self._go_on)

    def _end(self, rows: Sequence[tuple[int, int]], now_ns: int) -> None:
        assert self._sending is not None
        self._wire.ended([row for row, _ in rows], self._sending, now_ns)

    def _go_on(self, now_ns: int) -> None:
        self._rests = False
        self._send(now_ns)


def _ns(milliseconds: float) -> int:
    return round(milliseconds * 1e6)
