"""The console in Chromium: layout, colours, keyboard, hostile text, every change.

Each page, form and preview at widths from 400 to 1,600 pixels, light and dark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import urlencode

import pytest
import trio
from playwright.sync_api import Browser, Page

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.actions import ACTIONS
from doorkeeper.web_console.cluster_view import ClusterView, LogDir
from doorkeeper.web_console.record_rates import Reading
from tests.web_console.browser import SCHEMES, Site, Watched, chromium, site, watched
from tests.web_console.fake_kafka import CHANGING
from tests.web_console.page_checks import (
    CONTROLS,
    contrast,
    contrast_faults,
    layout_faults,
    luminance,
    tab_to,
    tabbed,
)
from tests.web_console.test_console_changes import (
    FILLED,
    hostile_values,
    preview,
    without_members,
)
from tests.web_console.test_console_hostile import HOSTILE, TARGETS, addresses
from tests.web_console.test_console_login import PASSWORD

pytestmark = pytest.mark.browser
WIDTHS_PX = (400, 640, 1_024, 1_600)
NARROW, WIDE = ({"width": it, "height": 800} for it in (400, 1_280))
PAGES = {
    "clusters": "/",
    **addresses("topic", "group"),
    "not found": "/nothing",
    **{f"form of {it}": f"/clusters/0/change/{it}" for it in ACTIONS},
    **{f"preview of {it}": preview(it, FILLED[it]) for it in ACTIONS},
    "refusal": preview("create-topic", {"partitions": "x"}),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def with_history(view: ClusterView, topic: str = "topic", group: str = "group") -> None:
    """Fill a view with past samples, as if it had monitored its cluster."""
    now_s = trio.current_time()
    for it in range(20):
        view.history.record(now_s + 30 * (it - 20), {group: it % 7})
        directory = LogDir(
            0, "directory", ErrorCode.none, 1, 1, 1 << 30, (1 << 29) - it
        )
        view.disk_history.record(now_s + 600 * (it - 20), [directory])
    for end in (0, 600):
        at_s = now_s - 30 + end / 20
        view.rates.record(
            {TopicPartition(topic, it): Reading(at_s, end * (it + 1)) for it in (0, 1)}
        )


@pytest.fixture(scope="module")
def plain(browser: Browser) -> Iterator[Site]:
    """A read-only console over 120 topics."""
    settings = {"allow_changes": True, "topics": 120, "prepare": with_history}
    with site(without_members, **settings) as found:
        yield found


@pytest.fixture(scope="module")
def window(browser: Browser, plain: Site) -> Iterator[Watched]:
    with watched(browser, plain.address) as found:
        yield found


@pytest.fixture
def opened(window: Watched) -> Iterator[Watched]:
    """The one window of the plain console, as wide and light as a new one."""
    window.faults.clear()
    window.page.set_viewport_size(WIDE)
    window.page.emulate_media(color_scheme="light")
    yield window
    assert window.faults == []


# ---- layout and colours -------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_is_legible_and_is_read_by_keyboard(
    name: str, plain: Site, opened: Watched
) -> None:
    page, papers = opened.page, []
    page.goto(plain.address + PAGES[name])
    assert page.locator("h1").inner_text()
    check_tab_order(page)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert (scheme, contrast_faults(page)) == (scheme, [])
        papers.append(
            page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        )
    assert luminance(papers[0]) > 0.9
    assert luminance(papers[1]) < 0.05
    for width in WIDTHS_PX:
        page.set_viewport_size({"width": width, "height": 800})
        assert (width, layout_faults(page)) == (width, [])


def check_tab_order(page: Page) -> None:
    """Check that Tab reaches every control, in reading order."""
    found = [*tabbed(page)]
    assert [fault for it in found for fault in it.faults()] == []
    reached = [it for it in found if it.is_control]
    assert len(reached) == page.locator(CONTROLS).count()
    for one, other in pairwise(reached):
        assert one.index < other.index
        assert one.is_read_before(other), (one, other)


def test_contrast_is_that_of_the_standard() -> None:
    """WCAG's extremes, and a grey just below the bound."""
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == 21
    assert contrast("rgb(1, 2, 3)", "rgb(1, 2, 3)") == 1
    assert 4.4 < contrast("rgb(120, 120, 120)", "rgb(255, 255, 255)") < 4.5


BROKEN = """
<style>* { margin: 0; font: 16px monospace } body { background: #fff }</style>
<div style="width: 3000px; height: 1px"></div>
<a href="/">one</a><a href="/" style="margin-left: -9px">two</a>
<p style="width: 20px; overflow-wrap: anywhere">word</p>
<button style="width: 9px; padding: 0">x</button>
<p style="color: #777; background: #fff">grey</p>
<table><tbody><tr><td class="n" style="width: 1px">1 000</td></tr></table>
<textarea style="outline: none"></textarea>
"""


def test_faults_of_a_page_are_found(browser: Browser) -> None:
    with watched(browser, "") as (page, _):
        page.set_content(BROKEN)
        kinds = {it.partition(":")[0] for it in layout_faults(page)}
        assert kinds >= {
            *("page is 3000 px wide", "overlap", "broken word", "small"),
            "number on two lines",
        }
        assert any("grey" in it for it in contrast_faults(page))
        last = [*tabbed(page)][-1]
        assert ["no outline" in it for it in last.faults()] == [True]


# ---- keyboard -----------------------------------------------------------------------


def test_the_skip_link_leads_past_the_navigation(plain: Site, opened: Watched) -> None:
    page = opened.page
    page.goto(f"{plain.address}/clusters/0/topics")
    tab_to(page, text="Skip to content")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#main$"))
    first = next(tabbed(page))
    assert first.text == "Create a topic"


def test_refreshing_is_begun_and_ended(plain: Site, opened: Watched) -> None:
    page, refresh = opened.page, 'meta[http-equiv="refresh"]'
    page.goto(f"{plain.address}/clusters/0/topics?like=topic")
    for link, count in (("Refresh every 10 s", 1), ("Stop refreshing", 0)):
        tab_to(page, text=link)
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert page.locator(refresh).count() == count
        assert page.locator("input[name=like]").input_value() == "topic"


# ---- changes ------------------------------------------------------------------------

STARTS = addresses("topic", "group")


def fill_by_keyboard(page: Page, action: str) -> None:
    """Type the values of a form, and press its button."""
    for field in ACTIONS[action].fields:
        value = FILLED[action].get(field.name)
        if value is not None and not field.is_hidden:
            tab_to(page, name=field.name)
            page.keyboard.type(value)
    tab_to(page, text="Preview")
    page.keyboard.press("Enter")
    page.wait_for_url("**preview=1**")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_change_is_made_by_keyboard_alone(
    action: str, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "doorkeeper.web_console")
    with (
        site(without_members, allow_changes=True) as (address, kafka),
        watched(browser, address) as (page, faults),
    ):
        kafka.verdict, kafka.brokers = ErrorCode.none, 2
        kafka.is_moving = action != "reassign"
        page.goto(address + STARTS[ACTIONS[action].page])
        tab_to(page, text=ACTIONS[action].title)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/change/{action}*")
        fill_by_keyboard(page, action)
        assert page.locator("h2").first.inner_text() == "To be carried out"
        assert not CHANGING.keys() & {*kafka.calls}
        assert not caplog.records
        commands = page.locator("pre.command").all_inner_texts()
        shown = [it for it in commands if it.startswith("kafka-")]
        assert shown
        tab_to(page, text="Carry out")
        page.keyboard.press("Enter")
        page.get_by_text("Carried out:").wait_for()
        assert CHANGING.keys() & {*kafka.calls}
        assert layout_faults(page) == contrast_faults(page) == []
        assert page.locator("button.confirm").count() == 0
        section = page.locator("nav [aria-current]").inner_text().lower()
        tab_to(page, text=f"Continue to {section}")
        assert faults == []
    begun, ended = (it.__dict__["fields"] for it in caplog.records)
    assert begun["commands"] == ended["commands"] == "; ".join(shown)
    assert begun["client"] == "127.0.0.1"
    assert not ended["outcome"].startswith(("failed", "unknown"))


def test_a_refused_change_keeps_its_values(browser: Browser) -> None:
    with (
        site(without_members, allow_changes=True) as (address, _),
        watched(browser, address) as (page, faults),
    ):
        page.goto(address + preview("create-topic", FILLED["create-topic"]))
        tab_to(page, text="Carry out")
        page.keyboard.press("Enter")
        page.get_by_text("message").first.wait_for()
        assert page.locator("input[name=name]").input_value() == "new"
        assert page.locator("button.confirm").count() == 0
        assert faults == []


def test_a_session_is_opened_and_closed_by_keyboard(browser: Browser) -> None:
    with (
        site(password=PASSWORD) as (address, _),
        watched(browser, address, viewport=NARROW) as (page, faults),
    ):
        page.goto(address)
        for given, shown in (
            ("wrong", "this is not the password"),
            (PASSWORD, "Cluster"),
        ):
            assert layout_faults(page) == contrast_faults(page) == []
            tab_to(page, name="password")
            page.keyboard.type(given)
            page.keyboard.press("Enter")
            page.get_by_text(shown).first.wait_for()
        tab_to(page, text="Log out")
        page.keyboard.press("Enter")
        page.wait_for_url("**/login")
        page.goto(f"{address}/clusters/0/topics")
        assert page.url.endswith("/login")
        assert faults == []


# ---- hostile text and numbers -------------------------------------------------------


# All kinds in one text, except the long one, which has its own page.
SHORT = "".join(text for kind, text in HOSTILE.items() if kind != "long")


@pytest.mark.parametrize("added", [SHORT, HOSTILE["long"]], ids=["short", "long"])
def test_hostile_text_neither_runs_nor_breaks_a_page(
    added: str, browser: Browser
) -> None:
    def text(name: str) -> str:
        return name + added

    def prepare(view: ClusterView) -> None:
        with_history(view, text("topic"), text("group"))

    with (
        site(text, allow_changes=True, prepare=prepare) as (address, _),
        watched(browser, address) as (page, faults),
    ):
        for target in addresses(text("topic"), text("group")).values():
            page.goto(address + target)
            for size in (NARROW, WIDE):
                page.set_viewport_size(size)
                assert (target, size, layout_faults(page)) == (target, size, [])
        assert faults == []


@pytest.mark.parametrize("action", ACTIONS)
def test_hostile_values_neither_run_nor_break_a_change(
    action: str, browser: Browser
) -> None:
    added = SHORT.replace("\n", " ").replace("[", "(").replace("]", ")")

    def text(name: str) -> str:
        return "Empty" if name == "state" else name + added

    with (
        site(text, allow_changes=True) as (address, kafka),
        watched(browser, address) as (page, faults),
    ):
        kafka.is_moving = action != "reassign"
        values = hostile_values(action, added)
        target = f"/clusters/0/change/{action}?{urlencode(values)}"
        for form in (target, preview(action, values)):
            page.goto(address + form)
            for size in (NARROW, WIDE):
                page.set_viewport_size(size)
                assert layout_faults(page) == []
        page.locator("button.confirm").click()
        page.get_by_text("The same by Kafka's programs").wait_for()
        for size in (NARROW, WIDE):
            page.set_viewport_size(size)
            assert layout_faults(page) == []
        assert faults == []


LONGEST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("end", "committed"), [(LONGEST, 0), (LONGEST, -LONGEST), (7, LONGEST), (0, 1)]
)
def test_extreme_offsets_keep_the_layout(
    end: int, committed: int, browser: Browser
) -> None:
    with (
        site(without_members, allow_changes=True) as (address, kafka),
        watched(browser, address, viewport=NARROW) as (page, faults),
    ):
        kafka.end, kafka.committed_offset = end, committed
        pages = addresses("topic", "group")
        offsets = preview("reset-offsets", {"name": "group", "to": "latest"})
        for target in (*(pages[it] for it in ("topic", "records", "group")), offsets):
            page.goto(address + target)
            assert layout_faults(page) == []
            assert (
                str(end) in page.locator("main").inner_text()
                or target == pages["records"]
            )
        if end == LONGEST:
            page.goto(address + pages["records"])
            assert str(LONGEST - 1) in page.locator("main").inner_text()
        assert faults == []


# ---- machines without a browser -----------------------------------------------------


def test_a_machine_without_a_browser_is_skipped_with_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception, match="make browser"), chromium():
        pass


def test_every_page_and_change_is_among_them() -> None:
    assert {*TARGETS, *(f"form of {it}" for it in ACTIONS)} <= PAGES.keys()
