"""The page in headless Chromium: no overflow, dark mode, print."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from spark_analysis.report.writing import write_report
from tests.spark_analysis.made_results import BETTER, OPEN, WORSE, made
from tests.web_console.browser import SCHEMES, chromium, watched
from tests.web_console.page_checks import luminance

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The report with its details expanded."""
    directory = tmp_path_factory.mktemp("page")
    arms = [f"arm-with-a-long-name-{n}" for n in range(8)]
    verdicts = {"control": BETTER, "produce": WORSE, "fetch": OPEN, "group": OPEN}
    cells = {(name, arm): it for name, it in verdicts.items() for arm in arms}
    found = made({"live": cells, "kafka": cells, "virtual": cells})
    write_report(found, (), directory)
    with (
        chromium() as browser,
        watched(browser, directory.as_uri()) as (opened, faults),
    ):
        opened.goto((directory / "index.html").as_uri())
        opened.evaluate(
            "() => document.querySelectorAll('details').forEach(it => it.open = true)"
        )
        yield opened
        assert faults == []


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_the_page_does_not_overflow(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_dark_mode_has_a_dark_background(page: Page) -> None:
    papers = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        papers.append(
            page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        )
    light, dark = map(luminance, papers)
    assert dark < 0.05 < 0.8 < light


def test_the_page_prints(page: Page) -> None:
    assert page.pdf().startswith(b"%PDF")
