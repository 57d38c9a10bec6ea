"""Closed-loop clients: batches, time-outs and retries, event by event."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from experiments.design.config import ExperimentError, parse
from experiments.load.closed_loop import ClosedLoop, Rules, demand_ns

RULES = Rules(
    batch=3,
    linger_ns=0,
    request_timeout_ns=100,
    retry_backoff_ns=10,
    delivery_timeout_ns=250,
)


class Wire:
    """A wire that logs events, with a clock under the test's control."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.now_ns = 0
        self._numbers, self._order = count(1), count()
        self._alarms: list[tuple[int, int, Callable[[int], None]]] = []
        self.client = ClosedLoop(rules, self)

    def send(self, rows: Sequence[int], now_ns: int) -> int:
        self.log.append((now_ns, "send", *rows))
        return next(self._numbers)

    def give_up(self, sending: int, now_ns: int) -> None:
        self.log.append((now_ns, "give up", sending))

    def ended(self, rows: Sequence[int], sending: int, now_ns: int) -> None:
        self.log.append((now_ns, "ended", *rows))

    def at(self, at_ns: int, call: Callable[[int], None]) -> None:
        heapq.heappush(self._alarms, (at_ns, next(self._order), call))

    def until(self, at_ns: int) -> None:
        while self._alarms and self._alarms[0][0] <= at_ns:
            due_ns, _, call = heapq.heappop(self._alarms)
            call(due_ns)
        self.now_ns = at_ns

    def offer(self, at_ns: int, *rows: int) -> None:
        self.until(at_ns)
        for row in rows:
            self.client.offer(row, at_ns)

    def answer(self, at_ns: int, sending: int, *, is_refused: bool = False) -> None:
        self.until(at_ns)
        self.client.answered(sending, at_ns, is_refused=is_refused)


def test_rows_that_come_while_a_request_is_in_flight_go_with_the_next() -> None:
    wire = Wire()
    wire.offer(0, 10)
    wire.offer(5, 11, 12, 13, 14)
    wire.answer(20, 1)
    wire.answer(30, 2)
    wire.answer(40, 3)
    assert wire.log == [
        (0, "send", 10),
        (20, "ended", 10),
        (20, "send", 11, 12, 13),
        (30, "ended", 11, 12, 13),
        (30, "send", 14),
        (40, "ended", 14),
    ]


def test_a_client_lingers_for_more_until_the_batch_is_full() -> None:
    rules = Rules(
        batch=3,
        linger_ns=50,
        request_timeout_ns=1000,
        retry_backoff_ns=10,
        delivery_timeout_ns=5000,
    )
    wire = Wire(rules)
    wire.offer(0, 1)
    wire.offer(30, 2)
    wire.until(60)
    wire.answer(70, 1)
    wire.offer(100, 3, 4, 5)
    assert wire.log == [
        (50, "send", 1, 2),
        (70, "ended", 1, 2),
        (100, "send", 3, 4, 5),
    ]


def test_a_request_without_an_answer_is_sent_again_on_another_connection() -> None:
    wire = Wire()
    wire.offer(0, 1)
    wire.offer(50, 2)
    wire.until(120)
    # The response to the first request is late, and is ignored.
    wire.answer(120, 1)
    wire.answer(130, 2)
    assert wire.log == [
        (0, "send", 1),
        (100, "give up", 1),
        (100, "ended"),
        (110, "send", 1, 2),
        (130, "ended", 1, 2),
    ]


def test_rows_end_when_the_delivery_timeout_leaves_no_time_for_a_retry() -> None:
    wire = Wire()
    wire.offer(0, 1)
    wire.offer(150, 2)
    wire.until(1000)
    # Row 1 may be sent again before 250, row 2 before 400.
    assert wire.log == [
        (0, "send", 1),
        (100, "give up", 1),
        (100, "ended"),
        (110, "send", 1),
        (210, "give up", 2),
        (210, "ended"),
        (220, "send", 1, 2),
        (320, "give up", 3),
        (320, "ended", 1),
        (330, "send", 2),
        (430, "give up", 4),
        (430, "ended", 2),
    ]


def test_a_refused_request_is_sent_again_and_keeps_its_connection() -> None:
    wire = Wire()
    wire.offer(0, 1)
    wire.answer(20, 1, is_refused=True)
    wire.until(30)
    wire.answer(40, 2)
    assert wire.log == [
        (0, "send", 1),
        (20, "ended"),
        (30, "send", 1),
        (40, "ended", 1),
    ]


def test_a_connection_that_the_broker_closes_is_replaced() -> None:
    wire = Wire()
    wire.offer(0, 1)
    wire.client.lost(20)
    wire.until(40)
    assert wire.log == [
        (0, "send", 1),
        (20, "give up", 1),
        (20, "ended"),
        (30, "send", 1),
    ]


def test_further_rows_cost_their_share() -> None:
    assert demand_ns([100, 50, 70], 0.1) == 112
    assert demand_ns([100], 0.1) == 100


PRODUCE = {
    "name": "produce",
    "connections": 2,
    "arrivals": {"kind": "poisson", "rate_per_s": 10.0},
    "request": {"api": "produce"},
    "client": {"batch": 4},
}
STORM = {
    "name": "storm",
    "arrivals": {"kind": "poisson", "rate_per_s": 10.0},
    "request": {"api": "leader-and-isr"},
}
METADATA = {**STORM, "name": "metadata", "request": {"api": "update-metadata"}}


@pytest.mark.parametrize(
    ("traffic", "words"),
    [
        ([{**PRODUCE, "read_ms": 1.0}], "client: in a closed loop answers are read"),
        ([{**PRODUCE, "request": {"api": "produce", "acks": 0}}], "needs answers"),
        ([{**STORM, "client": {}}], "a controller's requests are not merged"),
        ([STORM, {**METADATA, "shares": "stom"}], "no entry 'stom' has connections"),
        (
            [STORM, {**METADATA, "shares": "storm", "connections": 2}],
            "connections, clients, read_ms and client are those of 'storm'",
        ),
        ([PRODUCE, {**METADATA, "shares": "produce"}], "cannot share the connections"),
    ],
)
def test_connections_that_cannot_be_are_refused(
    traffic: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        parse(
            {
                "experiment": {
                    "name": "it",
                    "seed": 1,
                    "blocks": 1,
                    "baseline": "fifo",
                },
                "workload": {"duration_s": 1.0, "traffic": traffic},
                "arms": [{"name": "fifo", "scheduler": "fifo"}],
            }
        )
    assert words in str(caught.value)
