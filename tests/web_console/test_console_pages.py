"""Contents of the pages beside real brokers in virtual time, and limits of lists."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp

from broker.client.consumer.consumer_commits import OffsetAndMetadata
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console import cluster_view
from doorkeeper.web_console.lag_history import (
    GROUPS_MAX,
    HEIGHT,
    PERIOD_S,
    RETENTION_S,
    LagHistory,
    Sample,
    chart,
)
from doorkeeper.web_console.pages import page_of
from doorkeeper.web_console.record_text import SHOWN_BYTES, shown
from tests.virtual.members import Members, in_sync, send, with_members
from tests.web_console.asgi_client import Answer, get
from tests.web_console.consoles import console_of, console_of_fake

T = TypeVar("T")
VALUES = [b'{"number":%d}' % it for it in range(9)] + [b"\xff\x00"]


async def page(app: ASGIApp, target: str) -> Answer:
    found = await get(app, f"/clusters/0/{target}")
    assert found.status == 200, found.text
    return found


def beside_three(
    scenario: Callable[[Members, ASGIApp], Awaitable[None]],
    *,
    keep_history: bool = False,
) -> None:
    """Run ``scenario`` beside three brokers and a topic of ten records."""

    async def run(members: Members) -> None:
        await members.create("t", 1, configs=[("retention.ms", "77")])
        await in_sync(members)
        async with members.producer() as producer:
            await send(producer, VALUES)
        opened = console_of(
            members.bootstrap,
            members.connect,
            keep_history=keep_history,
            reconnect_backoff_max_ms=50,
        )
        async with opened as app:
            await scenario(members, app)

    with_members(run)


def test_a_healthy_cluster_and_one_without_a_broker() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        facts = (await page(app, "cluster")).page.facts
        assert facts["Brokers alive"] == "3 of 3"
        assert facts["Controller"] == str(members.controller)
        assert (facts["Topics"], facts["Partitions"]) == ("1", "1")
        assert facts["Offline partitions"] == "0"
        assert facts["Under-replicated partitions"] == "0"
        victim = members.leader("t")
        await members.kill(victim)
        await members.until(lambda: members.leader("t") not in (-1, victim))
        await members.until(lambda: victim not in members.isr("t"))
        facts = (await page(app, "cluster")).page.facts
        assert facts["Brokers alive"] == "2 of 2"
        assert facts["Under-replicated partitions"] == "1"
        rows = (await page(app, "topics?only=under-replicated")).page.rows
        assert [row[0] for row in rows[1:]] == ["t"]
        assert len((await page(app, "topics?only=offline")).page.rows) == 1

    beside_three(scenario)


def test_a_topic_shows_its_partitions_sizes_and_configs() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        found = (await page(app, "topic?name=t")).page
        (row,) = (it for it in found.rows if it[0] == "0")
        assert row[1] == str(members.leader("t"))
        assert (
            sorted(row[2].split(", ")) == sorted(row[3].split(", ")) == ["0", "1", "2"]
        )
        assert row[4] == str(len(VALUES))
        size = members.partition(members.leader("t"), "t").log.size_bytes
        assert row[6] == f"{size} B"
        assert found.facts["Size of all replicas"] == f"{3 * size} B"
        configs = {it[0]: it[1:] for it in found.rows if len(it) == 3}
        assert configs["retention.ms"] == ["77", "topic"]
        assert configs["segment.ms"] == ["604800000", "default"]

    beside_three(scenario)


def test_the_newest_records_come_first_as_json_or_hexadecimal() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        _, *rows = (await page(app, "records?name=t")).page.rows
        assert [row[1] for row in rows] == [str(it) for it in range(9, -1, -1)]
        assert rows[0][4] == "ff 00"
        assert [json.loads(row[4]) for row in rows[1:]] == [
            {"number": it} for it in range(8, -1, -1)
        ]
        _, *rows = (await page(app, "records?name=t&partition=0&form=hex")).page.rows
        assert bytes.fromhex(rows[-1][4]) == VALUES[0]

    beside_three(scenario)


def test_a_group_shows_its_member_and_lag() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        async with members.consumer(group_id="a/b", client_id="me") as consumer:
            consumer.subscribe(["t"])
            read = 0
            while read < len(VALUES):
                read += len(await consumer.poll())
            await consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(4)})
            found = (await page(app, "groups")).page
            (link,) = (it for it in found.links if "/group?" in it)
            (row,) = found.rows[1:]
            assert (row[0], row[1], row[2], row[5]) == (
                "a/b",
                "Stable",
                "consumer",
                "6",
            )
            found = (await get(app, link)).page
        assert found.facts["Lag"] == "6"
        assert found.facts["Members"] == "1"
        (row,) = (it for it in found.rows if it[0] == "t")
        assert row[1:5] == ["0", "4", "10", "6"]
        (member,) = (it for it in found.rows if it[1] == "me")
        assert (member[0], member[4]) == (row[5], "1")

    beside_three(scenario)


def test_lag_over_time_is_a_line_through_the_samples() -> None:
    """Lags 10 and 4 at the ends of a period: from the top to 60 % of the height."""

    async def scenario(members: Members, app: ASGIApp) -> None:
        async with members.consumer(group_id="g") as consumer:
            consumer.subscribe(["t"])
            while not await consumer.poll():
                pass
            place = TopicPartition("t", 0)
            await consumer.commit({place: OffsetAndMetadata(0)})
            await trio.sleep(PERIOD_S)
            consumer.seek(place, 6)
            await consumer.commit({place: OffsetAndMetadata(6)})
            await trio.sleep(PERIOD_S)
            found = (await page(app, "group?name=g")).page
        (line,) = found.lines
        heights = [float(it.split(",")[1]) for it in line.split()]
        assert heights[0] == 0.0
        assert heights[-1] == pytest.approx(0.6 * HEIGHT)

    beside_three(scenario, keep_history=True)


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 99)), max_size=600))
def test_samples_are_kept_for_the_retention_only(steps: list[tuple[int, int]]) -> None:
    history, now_s, taken = LagHistory(), 0.0, []
    for step_s, lag in steps:
        now_s += step_s
        history.record(now_s, {"g": lag, "unknown": None})
        taken.append((now_s, lag))
    kept = [it for it in taken if it[0] >= now_s - RETENTION_S]
    assert history.of("g") == kept
    assert history.of("unknown") == []


def test_a_bounded_number_of_groups_is_kept() -> None:
    history = LagHistory()
    history.record(0, {f"{it}": it for it in range(GROUPS_MAX + 1)})
    assert history.of(f"{GROUPS_MAX - 1}") == [(0, GROUPS_MAX - 1)]
    assert history.of(f"{GROUPS_MAX}") == []
    # Groups that no longer exist are evicted.
    history.record(2 * RETENTION_S, {f"{GROUPS_MAX}": 1 << 80})
    assert history.of("0") == []
    assert history.of(f"{GROUPS_MAX}") == [(2 * RETENTION_S, (1 << 63) - 1)]


def test_a_missing_sample_interrupts_the_line() -> None:
    samples = [Sample(at_s, 1) for at_s in (0, 30, 60, 300, 330)]
    found = chart(samples, 600)
    assert found is not None
    assert found.lines == ["0.0,0.0 30.0,0.0 60.0,0.0", "300.0,0.0 330.0,0.0"]
    assert (found.most, found.minutes) == (1, 10)
    assert chart(samples[:1], 600) is None


def test_reading_every_page_creates_nothing() -> None:
    async def scenario(members: Members) -> None:
        async with console_of(members.bootstrap, members.connect) as app:
            for target in ("topic?name=x", "records?name=x", "group?name=x"):
                assert (await get(app, f"/clusters/0/{target}")).status == 404
            for target in ("cluster", "topics", "groups", "broker?id=0"):
                await page(app, target)
            assert len((await page(app, "topics")).page.rows) == 1

    with_members(scenario)


# ---- limits -------------------------------------------------------------------------


async def test_a_thousand_topics_are_read_page_by_page(autojump_clock: object) -> None:
    async with console_of_fake(topics=1_000) as (app, kafka):
        names: list[str] = []
        target: str | None = "/clusters/0/topics"
        while target is not None:
            found = await get(app, target)
            rows = found.page.rows[1:]
            assert len(rows) <= 100
            assert len(found.body) < 100_000
            names += [row[0] for row in rows]
            target = next((it for it in found.page.links if _leads_on(it, names)), None)
        assert names == sorted(kafka.topics)
        assert len(names) == 1_000
        # The response is cached briefly: ten pages sent one request.
        assert kafka.calls.count(ApiKey.METADATA) == 1
        assert kafka.calls.count(ApiKey.DESCRIBE_LOG_DIRS) == 1


def _leads_on(link: str, names: list[str]) -> bool:
    return f"page={len(names) // 100 + 1}" in link and "refresh" not in link


async def test_answers_are_kept_for_a_moment_only(autojump_clock: Any) -> None:
    async with console_of_fake() as (app, kafka):
        await page(app, "topics")
        await trio.sleep(3)
        await page(app, "topics")
        assert kafka.calls.count(ApiKey.METADATA) == 2
        assert kafka.calls.count(ApiKey.DESCRIBE_LOG_DIRS) == 1


async def test_answers_of_many_rows_are_kept_longer_and_state_their_age(
    autojump_clock: Any,
) -> None:
    """2,000 partitions add 10 s to the 2 s of topics and the 10 s of disks."""
    async with console_of_fake(topics=1_000) as (app, kafka):
        for pause_s, ages, topics, disks in (
            (0, (0, 0), 1, 1),
            (11, (11, 11), 1, 1),
            (2, (0, 13), 2, 1),
            (6, (6, 19), 2, 1),
            (2, (8, 0), 2, 2),
            (5, (0, 5), 3, 2),
        ):
            await trio.sleep(pause_s)
            words = (await page(app, "topics")).page.words
            assert "Read: topics {} s ago, disks {} s ago.".format(*ages) in words
            assert kafka.calls.count(ApiKey.METADATA) == topics
            assert kafka.calls.count(ApiKey.DESCRIBE_LOG_DIRS) == disks


async def test_the_page_of_a_topic_is_read_anew(autojump_clock: Any) -> None:
    async with console_of_fake(topics=1_000) as (app, kafka):
        assert "1000 topics" in (await page(app, "topics")).page.words
        kafka.topics.append("new")
        await page(app, "topic?name=new")
        await page(app, "records?name=new")
        kafka.topics.remove("new")
        assert (await get(app, "/clusters/0/topic?name=new")).status == 404
        assert "1000 topics" in (await page(app, "topics")).page.words


async def test_a_preview_is_computed_from_new_answers(autojump_clock: Any) -> None:
    async with console_of_fake(topics=2, allow_changes=True) as (app, kafka):
        kafka.is_moving = False
        await page(app, "topics")
        await get(app, "/clusters/0/change/reassign?preview=1")
        assert kafka.calls.count(ApiKey.DESCRIBE_LOG_DIRS) == 2


async def test_many_partitions_are_asked_for_in_pieces(autojump_clock: Any) -> None:
    async with console_of_fake(topics=500) as (app, kafka):
        kafka.committed = 500
        (row,) = (await page(app, "groups")).page.rows[1:]
        # Each partition has the end offset 7 and the committed offset 3.
        assert row[5] == "2000"
        assert kafka.calls.count(ApiKey.LIST_OFFSETS) == 10


async def test_topics_are_read_anew_where_a_leader_has_moved(
    autojump_clock: Any,
) -> None:
    async with console_of_fake() as (app, kafka):
        for error, lag, asked in (
            (ErrorCode.none, "4", 1),
            (ErrorCode.policy_violation, "unknown", 1),
            (ErrorCode.not_leader_or_follower, "unknown", 1),
            (ErrorCode.none, "4", 2),
        ):
            kafka.offsets_error = error
            (row,) = (await page(app, "groups")).page.rows[1:]
            assert row[5] == lag
            assert kafka.calls.count(ApiKey.METADATA) == asked


async def test_groups_are_sampled_in_steps_with_rests(autojump_clock: Any) -> None:
    """Five groups of 100 partitions are 605 rows, hence 3 s of pauses."""
    async with console_of_fake(topics=100, keep_history=True) as (app, kafka):
        kafka.groups = [f"group-{it:02}" for it in range(20)]
        kafka.committed = 100
        for pause_s, asked in ((0.1, 5), (3.1, 10), (7, 20), (19.6, 20), (0.5, 25)):
            await trio.sleep(pause_s)
            assert kafka.calls.count(ApiKey.OFFSET_FETCH) == asked
        assert kafka.calls.count(ApiKey.LIST_GROUPS) == 2
        await trio.sleep(30)
        found = (await page(app, "group?name=group-19")).page
        (line,) = found.lines
        assert len(line.split()) == 2
        assert any("A sample every 30 s" in it for it in found.words)


async def test_many_groups_are_sampled_less_often(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over ten groups of 100 partitions pauses twice, 60.5 s in total."""
    monkeypatch.setattr(cluster_view, "_ROW_S", 0.1)
    async with console_of_fake(topics=100, keep_history=True) as (app, kafka):
        kafka.groups = [f"group-{it:02}" for it in range(10)]
        kafka.committed = 100
        await trio.sleep(250)
        found = (await page(app, "group?name=group-00")).page
        (line,) = found.lines
        assert len(line.split()) == 3
        assert any("A sample every 121 s" in it for it in found.words)


@given(st.integers(0, 250), st.integers(0, 9), st.integers(1, 50))
def test_pages_of_a_list_cover_it(count: int, number: int, size: int) -> None:
    rows = [*range(count)]
    pages = page_of(rows, {}, size).pages
    found = [
        it
        for page in range(1, pages + 1)
        for it in page_of(rows, {"page": str(page)}, size).rows
    ]
    assert found == rows
    chosen = page_of(rows, {"page": str(number)}, size)
    assert 1 <= chosen.number <= pages


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(_JSON, max_size=3), st.sampled_from([None, 1]))
def test_json_is_broken_into_lines_and_nothing_else(value: Any, indent: int) -> None:
    written = json.dumps(value, indent=indent)
    found = shown(written.encode())
    if len(written) <= SHOWN_BYTES:
        assert found.form == "json"
        assert json.loads(found.text) == value
        compact = json.dumps(json.loads(found.text), indent=2)
        assert found.text == compact


@pytest.mark.parametrize(
    ("data", "form", "text", "as_form", "left_out"),
    [
        (None, "auto", "null", "null", 0),
        (b"", "auto", "", "text", 0),
        (b"plain \xc3\xa9", "auto", "plain é", "text", 0),
        (b"[1.10, 1e400]", "auto", "[\n  1.10,\n  1e400\n]", "json", 0),
        (b"[1]", "text", "[1]", "text", 0),
        (b"[1]", "hex", "5b 31 5d", "hex", 0),
        (b"[1", "json", "[1", "text", 0),
        (b"\xff", "text", "ff", "hex", 0),
        (b"a\x00", "auto", "61 00", "hex", 0),
        (b"[" * 2_000, "auto", "[" * 2_000, "text", 0),
        (b"\xc3\xa9" * 1_001, "auto", "é" * 1_000, "text", 2),
        (b"x" + b"\xc3\xa9" * 1_001, "auto", "x" + "é" * 999, "text", 3),
    ],
)
def test_bytes_are_shown_in_the_form_that_they_have(
    data: bytes | None, form: Any, text: str, as_form: str, left_out: int
) -> None:
    assert shown(data, form) == (text, as_form, left_out)
