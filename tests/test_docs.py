"""Files, commands, options and make targets named on the pages exist."""

import os
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from doorkeeper import cli
from spark_analysis.report.findings import render
from tests.test_tidy import SENTENCE_WORDS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "tests/README.md"])
# Names on the pages that are not files of the project: output of runs, or Kafka's.
NOT_HERE = {
    "index.html",
    "manifest.json",
    "results.json",
    "report/results.json",
    "server.properties",
    "meta.properties",
    "paper.pdf",
    # Files of the reader.
    "my_policies.py",
}
_PATH = re.compile(r"`([\w./-]+(?:\.(?:py|md|toml|svg|json|css|html|typ|java)|/))`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_MADE = ("runs/", ".venv", ".tools", "data/")


@cache
def names_below() -> frozenset[str]:
    """Return the names in the root's folders; names of folders end in a slash."""
    found: set[str] = set()
    for top in ROOT.glob("[!.]*/"):
        for _, folders, files in os.walk(top):
            found.update(files, (f"{folder}/" for folder in folders))
    return frozenset(found)


def is_there(page: Path, name: str) -> bool:
    """Return whether a path from the root or the page, or a bare name, exists."""
    if "/" in name.rstrip("/"):
        inside = [ROOT / name, page.parent / name]
        return any(it.exists() for it in inside) or any(ROOT.glob(f"*/{name}"))
    return name in names_below() or (ROOT / name).exists()


def test_every_file_that_a_page_names_is_there() -> None:
    # NAME stands for any name.
    named = {
        (page, name)
        for page in PAGES
        for name in _PATH.findall(page.read_text())
        if name not in NOT_HERE and not name.startswith(_MADE) and "NAME" not in name
    }
    assert sorted(it for it in named if not is_there(*it)) == []


def test_every_link_of_a_page_leads_somewhere() -> None:
    links = {(page, it) for page in PAGES for it in _LINK.findall(page.read_text())}
    assert sorted(it for it in links if not (it[0].parent / it[1]).exists()) == []


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every ``doorkeeper`` command of a page, without comments."""
    for line in re.findall(r"(?:^|`)doorkeeper ([^`\n]*)", text, re.MULTILINE):
        yield shlex.split(line, comments=True)


def complaint(words: list[str]) -> str:
    """Return the error in a command's name or options, or an empty string."""
    command: click.Command = cli.main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            return f"no command {rest[0]!r}"
        command = found
        del rest[0]
    known = {name for it in command.params for name in it.opts} | {"--help"}
    asked = {it.partition("=")[0] for it in rest if it.startswith("--")}
    return f"no options {sorted(asked - known)}" if asked - known else ""


def test_every_command_of_a_page_exists_with_its_options() -> None:
    for page in PAGES:
        found = [(words, complaint(words)) for words in commands(page.read_text())]
        assert [it for it in found if it[1]] == [], page


def test_every_make_target_of_a_page_exists() -> None:
    rules = re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(), re.M)
    targets = {target for rule in rules for target in rule.split()}
    for page in PAGES:
        asked = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M))
        assert asked - targets == set(), page


# Measured values in prose: a number with a unit.
_FIGURE = re.compile(r"\b\d[\d.,–]* ?(?:%|(?:ms|us|s|per cent|times|minutes)\b)")
# Pages rendered from docs/results/.
_RENDERED = [ROOT / "docs/results.md", ROOT / "docs/experiments.md"]


def figures(text: str) -> list[str]:
    """Return the measured values of a page's prose without a command next to them."""
    prose = re.sub(r"^```.*?^```$|\]\([^)]*\)", "", text, flags=re.M | re.S)
    return [
        figure
        for paragraph in prose.split("\n\n")
        if not paragraph.startswith("|")
        if not re.search(r"`(?:make|doorkeeper|python) ", paragraph)
        for figure in _FIGURE.findall(paragraph)
    ]


def test_a_figure_appears_with_the_command_that_makes_it_again() -> None:
    for page in {*PAGES} - {*_RENDERED, ROOT / "DECISIONS.md"}:
        assert figures(page.read_text()) == [], page


# ---- lengths ------------------------------------------------------------------------

# Maximum number of words per page; the last bound is the default.
BUDGETS = {
    "README.md": 700,
    "ARCHITECTURE.md": 2000,
    "DECISIONS.md": 5000,
    "CHANGELOG.md": 5000,
    "console.md": 900,
    # Generated: a list, and tables.
    "map.md": 3000,
    # Generated: five experiments, mostly tables.
    "experiments.md": 2900,
    "method.md": 2600,
    "promises.md": 1800,
    "security.md": 2200,
    "testing.md": 700,
    "": 1300,
}
RECORD_WORDS = 80


def words_of(text: str) -> int:
    """Return the number of words, without Markdown syntax."""
    return len(re.findall(r"\S*\w\S*", text))


def prose_of(text: str) -> Iterator[str]:
    """Yield the sentences of a page, without code, tables, headings and pictures."""
    for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines():
        if not line.lstrip().startswith(("|", "#", "![", "<")):
            shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
            yield from re.split(r"(?<=[.!?:;])\s+", shown.strip())


def test_sentences_of_a_page_are_short() -> None:
    # The map is a list of names, and generated.
    for page in {*PAGES} - {ROOT / "docs/map.md"}:
        sentences = prose_of(page.read_text())
        long = [it for it in sentences if len(it.split()) > SENTENCE_WORDS]
        assert long == [], page


def test_sentences_are_found_in_the_prose_of_a_page() -> None:
    text = (
        "# A b\n\nOne two. [Three](a.md) four: five\n\n```\nsix. seven\n```\n| 8. 9 |"
    )
    assert list(filter(None, prose_of(text))) == ["One two.", "Three four:", "five"]


def test_a_page_keeps_within_its_budget_of_words() -> None:
    for page in PAGES:
        words = words_of(page.read_text())
        assert words <= BUDGETS.get(page.name, BUDGETS[""]), page


def test_decisions_are_short_records_with_numbers_and_dates() -> None:
    text = (ROOT / "DECISIONS.md").read_text()
    titled = re.compile(r"^### (\d+)\. [^\n]+ \(2\d{3}-\d\d-\d\d\)\n", re.M)
    _, *parts = titled.split(text)
    bodies = [it.partition("\n## ")[0] for it in parts[1::2]]
    assert [int(it) for it in parts[::2]] == list(range(1, len(bodies) + 1))
    assert len(bodies) == len(re.findall("^### ", text, re.M))
    assert [it for it in bodies if words_of(it) > RECORD_WORDS] == []


def test_the_contents_of_decisions_are_its_headings() -> None:
    text = (ROOT / "DECISIONS.md").read_text()
    headings = re.findall("^## (.+)$", text, re.M)
    assert re.findall(r"^- \[(.+?)\]\(#", text, re.M) == headings


@pytest.mark.parametrize("page", _RENDERED, ids=lambda it: it.name)
def test_a_page_of_results_is_rendered_from_the_files_next_to_it(page: Path) -> None:
    template = page.with_name(f"{page.name}.j2")
    assert render(template, ROOT / "docs/results") == page.read_text()


def test_a_figure_without_its_command_is_noticed() -> None:
    assert figures("It takes 2.5 ms, half as much as `make bench` says.") == []
    assert figures("It takes 2.5 ms.\n\n`make bench` says 95 %.") == ["2.5 ms"]


def test_a_wrong_command_is_noticed() -> None:
    assert complaint(["serve", "--set", "a=b"]) == ""
    assert complaint(["serve", "--nope", "1"]) == "no options ['--nope']"
    assert complaint(["nope"]) == "no command 'nope'"
