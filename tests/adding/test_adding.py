"""Every addition of docs/adding.md, made in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adding.additions import ADDITIONS, PAGE, ROOT, Addition, said
from tests.architecture import PACKAGES

FILES_MAX = 3
MARKER = "__init__.py"


@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda it: it.title)
def test_an_addition_touches_the_files_that_the_page_lists(addition: Addition) -> None:
    touched = {file for file in addition.touched if not file.endswith(MARKER)}
    assert touched == said(addition.title)
    assert len(touched) <= FILES_MAX


def test_the_page_has_nothing_that_is_not_tried_out() -> None:
    titles = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert titles == [addition.title for addition in ADDITIONS]


def test_all_of_it_works_in_a_copy_of_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for folder in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / folder, tree / folder)
    shutil.copyfile(ROOT / "pyproject.toml", tree / "pyproject.toml")
    skipped = (ROOT / "SKIPPED.md").read_text()
    served, count = re.subn(r"\bUnregisterBroker 64, ", "", skipped)
    assert count == 1
    (tree / "SKIPPED.md").write_text(served)
    for addition in ADDITIONS:
        addition.make(tree)
    run(tree, "-m", "tests.test_skipped")
    checks = ("tests/adding/checks.py", "tests/test_skipped.py")
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *checks)


def run(tree: Path, *words: str) -> None:
    """Run a program of the copy; check that it succeeds."""
    found = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
