"""The page of promises: each row names a test, and its tests and keys exist."""

import ast
import re
from pathlib import Path

from broker.config import KEYS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text()
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Rows of tables, without headings and rules.
ROWS = [
    line
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| promise", "| key"))
]


def test_the_tests_that_hold_promises_exist() -> None:
    named: dict[str, set[str]] = {}
    for path, name in TEST.findall(PAGE):
        named.setdefault(path, set()).add(name)
    for path, names in named.items():
        tree = ast.parse((ROOT / path).read_text())
        defined = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert names <= defined, path


def test_every_promise_names_a_test() -> None:
    assert len(ROWS) > 30
    assert [row for row in ROWS if not TEST.search(row)] == []


def test_the_keys_that_bound_something_are_read() -> None:
    bounds = PAGE.partition("## Bounds and their keys")[2].partition("\n## ")[0]
    keys = {
        key
        for line in bounds.splitlines()
        if line.startswith("| `")
        for key in re.findall(r"`([a-z.]+)`", line.split("|")[1])
    }
    assert len(keys) > 10
    assert {key for key in keys if KEYS[key].inert} == set()
