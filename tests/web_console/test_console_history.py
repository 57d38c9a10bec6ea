"""Rates of records, and days until a disk is full, from samples over time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import trio
from hypothesis import assume, given
from hypothesis import strategies as st
from starlette.types import ASGIApp

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.cluster_view import LogDir
from doorkeeper.web_console.disk_history import (
    DIRECTORIES_MAX,
    PERIOD_S,
    RETENTION_S,
    SPAN_MIN_S,
    DiskHistory,
    Usage,
    days_left,
)
from doorkeeper.web_console.record_rates import HotPartition, Reading, RecordRates
from tests.virtual.members import Members, send
from tests.web_console.asgi_client import get
from tests.web_console.consoles import console_of_fake
from tests.web_console.test_console_pages import beside_three, page

MIB = 1 << 20
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


# ---- rates --------------------------------------------------------------------------


def test_rates_are_those_of_the_records_between_two_samples() -> None:
    """60 records in 30 s."""

    async def scenario(members: Members, app: ASGIApp) -> None:
        await members.create("a", 1)
        await trio.sleep(5)
        assert (await page(app, "topic?name=t")).page.facts[
            "Records per second"
        ] == "unknown"
        async with members.producer() as producer:
            await send(producer, [b"x"] * 60)
        await trio.sleep(30)
        found = (await page(app, "topic?name=t")).page
        assert found.facts["Records per second"] == "2.0"
        (row,) = (it for it in found.rows if it[0] == "0")
        assert row[5] == "2.0"
        rows = (await page(app, "topics?sort=rate")).page.rows
        assert [it[0] for it in rows[1:3]] == ["t", "a"]
        assert ["t", "0", "2.0", "100 %"] in rows

    beside_three(scenario, keep_history=True)


def test_a_rate_needs_two_readings_and_is_never_negative() -> None:
    rates = RecordRates()

    def record(at_s: float, ends: dict[TopicPartition, int]) -> None:
        rates.record({it: Reading(at_s, end) for it, end in ends.items()})

    assert rates.of_partition(FIRST) is rates.of_topic("t") is rates.span_s is None
    record(10, {FIRST: 100, SECOND: 100})
    assert (rates.of_topic("t"), rates.hottest(9)) == (None, [])
    record(20, {FIRST: 130, SECOND: 110, TopicPartition("u", 0): 5})
    assert (rates.of_partition(FIRST), rates.of_topic("t")) == (3.0, 4.0)
    assert (rates.of_topic("u"), rates.span_s) == (None, 10)
    assert rates.hottest(1) == [HotPartition(FIRST, 3.0, 0.75)]
    # The topic was deleted and created, so its offsets restart at 0.
    record(30, {FIRST: 2, SECOND: 110})
    assert rates.of_topic("t") == 0
    assert rates.hottest(9) == []


# ---- disks --------------------------------------------------------------------------


async def test_days_until_full_are_those_of_a_disk_that_fills(
    autojump_clock: object,
) -> None:
    """1 MiB per ten minutes, and 253 MiB free."""
    async with console_of_fake(keep_history=True) as (app, kafka):

        async def shown() -> str:
            rows = (await get(app, "/clusters/0/cluster")).page.rows
            return next(it[-1] for it in rows if it[1] == "directory")

        await trio.sleep(1)
        for _ in range(3):
            assert await shown() == "unknown"
            kafka.usable_bytes -= MIB
            await trio.sleep(PERIOD_S)
        assert kafka.usable_bytes == 253 * MIB
        assert await shown() == f"{253 * PERIOD_S / 86_400:.1f}" == "1.8"
        kafka.usable_bytes = 300 * MIB
        await trio.sleep(3 * PERIOD_S)
        assert await shown() == "not filling"


@given(st.lists(st.tuples(st.integers(1, 3_600), st.integers(0, 1 << 44)), min_size=2))
def test_the_line_is_that_of_least_squares(steps: list[tuple[int, int]]) -> None:
    times = np.cumsum([it for it, _ in steps])
    samples = [
        Usage(float(at_s), used, 1 << 40)
        for at_s, (_, used) in zip(times, steps, strict=True)
    ]
    found = days_left(samples)
    if times[-1] - times[0] < SPAN_MIN_S:
        assert found is None
        return
    slope = np.polyfit(times - times[0], [float(it) for _, it in steps], 1)[0]
    assume(abs(slope) > 1)
    expected = (1 << 40) / slope / 86_400 if slope > 0 else math.inf
    assert found == pytest.approx(expected, rel=1e-5)


def test_samples_of_disks_are_bounded_in_time_and_number() -> None:
    history = DiskHistory()

    def directory(number: int, usable_bytes: int) -> LogDir:
        return LogDir(number, "d", ErrorCode.none, 0, 0, 1 << 40, usable_bytes)

    history.record(0, [directory(it, 1_000) for it in range(DIRECTORIES_MAX + 1)])
    history.record(3_600, [directory(it, 900) for it in (0, DIRECTORIES_MAX)])
    assert history.days_left(0, "d") == 900 / (100 / 3_600) / 86_400
    assert history.days_left(1, "d") is None
    assert history.days_left(DIRECTORIES_MAX, "d") is None
    # Unknown sizes are no samples.
    history.record(7_200, [directory(0, -1)])
    assert history.days_left(0, "d") == 900 / (100 / 3_600) / 86_400
    history.record(RETENTION_S + 3_601, [])
    assert history.days_left(0, "d") is None
