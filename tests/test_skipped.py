"""SKIPPED.md against the code: every API, with its omissions.

The part on served APIs repeats the headers of ``broker/apis``. After a change there,
``python -P tests/test_skipped.py`` rewrites it. The part on unserved APIs is written by
hand, since it gives reasons.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import broker.apis
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey

PAGE = Path(__file__).parents[1] / "SKIPPED.md"
_SERVED_HEAD = "## What served APIs leave out\n"
_NEXT_HEAD = "\n## "


_TITLE = re.compile(r"(\w+) \((\d+)\): ")
_VERSIONS = re.compile(
    r"^Versions: (\d+)(?:-(\d+))?(?: served, (\d+)-\d+ advertised)?\b", re.M
)


def headers() -> dict[ApiKey, str]:
    """Return the header of each API's file, by API key."""
    found = {}
    for module in pkgutil.iter_modules(broker.apis.__path__):
        if not module.ispkg:
            text = importlib.import_module(f"broker.apis.{module.name}").__doc__ or ""
            title = _TITLE.match(text)
            assert title is not None, f"{module.name} does not begin 'Name (key): '"
            key = ApiKey(int(title.group(2)))
            assert key.api_name == title.group(1)
            found[key] = text
    return found


def left_out(header: str) -> str:
    """Return the last paragraph of a header, on one line."""
    paragraph = re.search(r"^Left out: (.*?)(?:\n\n|\Z)", header, re.S | re.M)
    assert paragraph is not None, f"no paragraph 'Left out:' in {header!r}"
    return " ".join(paragraph.group(1).split()).replace("``", "`")


def served_part() -> str:
    """Return the expected table of served APIs."""
    lines = ["| API | versions | left out |", "|---|---|---|"]
    for key, header in sorted(headers().items()):
        first, last = APIS[key].versions
        name = f"{key.api_name} {int(key)}"
        lines.append(f"| {name} | {first}-{last} | {left_out(header)} |")
    return "\n".join(lines) + "\n"


def _split(page: str) -> tuple[str, str, str]:
    """Return the text before, in and after the part on served APIs."""
    before, head, rest = page.partition(_SERVED_HEAD)
    assert head, f"{PAGE.name} has no part {_SERVED_HEAD!r}"
    part, next_head, after = rest.partition(_NEXT_HEAD)
    return before + head, part.strip() + "\n", next_head + after


def test_every_file_of_an_api_declares_it() -> None:
    assert headers().keys() == APIS.keys()


def test_headers_report_the_versions_that_are_declared() -> None:
    for key, header in headers().items():
        told = _VERSIONS.search(header)
        assert told is not None, f"{key.name}: no line 'Versions: 0-5.'"
        first, last, advertised_from = (each and int(each) for each in told.groups())
        assert APIS[key].versions == (first, first if last is None else last), key
        lowest = first if advertised_from is None else advertised_from
        assert APIS[key].advertised[0] == lowest, key


def test_omissions_of_served_apis_are_on_the_page() -> None:
    _, part, _ = _split(PAGE.read_text())
    assert part == served_part(), "run `python -P tests/test_skipped.py`"


def test_every_other_api_is_on_the_page_once_with_a_reason() -> None:
    before, _, _ = _split(PAGE.read_text())
    rows = re.findall(r"^\| ([^|]+ \d+) \| ([^|]+) \|$", before, re.M)
    named = [name.strip() for apis, _ in rows for name in apis.split(",")]
    others = [f"{key.api_name} {int(key)}" for key in ApiKey if key not in APIS]
    assert sorted(named) == sorted(others)
    assert all(reason.strip().endswith(".") for _, reason in rows)


def main() -> None:
    """Rewrite the part on served APIs."""
    before, _, after = _split(PAGE.read_text())
    PAGE.write_text(f"{before}\n{served_part()}{after}")


if __name__ == "__main__":
    main()
