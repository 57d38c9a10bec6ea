"""SKIPPED.md against the code: every API is in it, with what it leaves out.

The part on served APIs repeats the headers of ``broker/apis``; after a change there,
``python -P tests/test_skipped.py`` writes it anew. The part on APIs that are not served
is written by hand, because reasons are.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import broker.apis
from broker.apis.kafka_apis import SERVED
from broker.wire.api_keys import SUPPORTED, ApiKey

PAGE = Path(__file__).parents[1] / "SKIPPED.md"
_SERVED_HEAD = "## What served APIs leave out\n"
_NEXT_HEAD = "\n## "


def api_name(key: ApiKey) -> str:
    """Return the name that Kafka's documentation uses."""
    return key.name.title().replace("_", "")


def left_out() -> dict[ApiKey, str]:
    """Return the last paragraph of the header of each API's file, on one line."""
    found = {}
    for module in pkgutil.iter_modules(broker.apis.__path__):
        text = importlib.import_module(f"broker.apis.{module.name}").__doc__ or ""
        head = re.match(r"\w+ \((\d+)\): ", text)
        paragraph = re.search(r"^Left out: (.*?)(?:\n\n|\Z)", text, re.S | re.M)
        if head is not None:
            assert paragraph is not None, f"{module.name}: no paragraph 'Left out:'"
            key = ApiKey(int(head.group(1)))
            found[key] = " ".join(paragraph.group(1).split()).replace("``", "`")
    return found


def served_part() -> str:
    """Return the table of served APIs, as it should stand in the page."""
    lines = ["| API | versions | left out |", "|---|---|---|"]
    for key, text in sorted(left_out().items()):
        versions = SUPPORTED[key]
        served = f"{versions.implemented_min}-{versions.max}"
        lines.append(f"| {api_name(key)} {int(key)} | {served} | {text} |")
    return "\n".join(lines) + "\n"


def _split(page: str) -> tuple[str, str, str]:
    """Return what stands before, in and after the part on served APIs."""
    before, head, rest = page.partition(_SERVED_HEAD)
    assert head, f"{PAGE.name} has no part {_SERVED_HEAD!r}"
    part, next_head, after = rest.partition(_NEXT_HEAD)
    return before + head, part.strip() + "\n", next_head + after


def test_every_served_api_has_a_header_that_says_what_it_leaves_out() -> None:
    assert left_out().keys() == SERVED


def test_what_served_apis_leave_out_is_on_the_page() -> None:
    _, part, _ = _split(PAGE.read_text())
    assert part == served_part(), "run `python -P tests/test_skipped.py`"


def test_every_other_api_is_on_the_page_once_with_a_reason() -> None:
    before, _, _ = _split(PAGE.read_text())
    rows = re.findall(r"^\| ([^|]+ \d+) \| ([^|]+) \|$", before, re.M)
    named = [name.strip() for apis, _ in rows for name in apis.split(",")]
    others = [f"{api_name(key)} {int(key)}" for key in ApiKey if key not in SERVED]
    assert sorted(named) == sorted(others)
    assert all(reason.strip().endswith(".") for _, reason in rows)


def main() -> None:
    """Write the part on served APIs anew."""
    before, _, after = _split(PAGE.read_text())
    PAGE.write_text(f"{before}\n{served_part()}{after}")


if __name__ == "__main__":
    main()
