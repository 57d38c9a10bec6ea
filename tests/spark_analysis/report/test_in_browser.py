"""The page in headless Chromium: no overflow, dark mode, print."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spark_analysis.report.writing import write_report
from tests.spark_analysis.made_results import BETTER, OPEN, WORSE, made

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Reports the page's width and colours in its title, which --dump-dom prints.
PROBE = """<script>
addEventListener("load", () => {
  for (const it of document.querySelectorAll("details")) it.open = true;
  const page = document.documentElement;
  document.title = `${page.scrollWidth} ${innerWidth} ` +
    getComputedStyle(document.body).backgroundColor;
});
</script>"""

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    arms = [f"arm-with-a-long-name-{n}" for n in range(8)]
    verdicts = {"control": BETTER, "produce": WORSE, "fetch": OPEN, "group": OPEN}
    cells = {(name, arm): it for name, it in verdicts.items() for arm in arms}
    found = made({"live": cells, "kafka": cells, "virtual": cells})
    write_report(found, (), directory)
    path = directory / "index.html"
    path.write_text(path.read_text().replace("</head>", PROBE + "</head>"))
    return path


def run(page: Path, *options: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *options]
    command += [f"--user-data-dir={page.parent / 'profile'}", page.as_uri()]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True
    ).stdout


def title(page: Path, *options: str) -> str:
    found = re.search("<title>(.*)</title>", run(page, "--dump-dom", *options))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_the_page_does_not_overflow(page: Path, width: int) -> None:
    scroll, inner, _ = title(page, f"--window-size={width},900").split(" ", 2)
    assert int(scroll) <= int(inner)


def test_dark_mode_has_a_dark_background(page: Path) -> None:
    light = title(page)
    dark = title(page, "--blink-settings=preferredColorScheme=0")
    assert max(_colour(dark)) < min(_colour(light))


def _colour(text: str) -> tuple[int, ...]:
    return tuple(int(it) for it in re.findall(r"\d+", text)[2:5])


def test_the_page_prints(page: Path) -> None:
    pdf = page.parent / "page.pdf"
    run(page, f"--print-to-pdf={pdf}")
    assert pdf.read_bytes().startswith(b"%PDF")
