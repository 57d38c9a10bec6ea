"""The machine and code in the manifest."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.records import environment


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sources outside any repository."""
    for package in environment.CODE_PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "file.py").write_text("one")
    monkeypatch.setattr(environment, "_ROOT", tmp_path)
    # The other tests have asked git already.
    monkeypatch.setattr(environment, "_git", environment._git.__wrapped__)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    environment.code_sha256.cache_clear()
    yield tmp_path
    environment.code_sha256.cache_clear()


def test_without_a_repository_the_commit_is_unknown(checkout: Path) -> None:
    found = environment.code()
    assert found["commit"] == "unknown"
    assert found["dirty"] is None
    assert len(found["sha256"]) == 64


@pytest.mark.parametrize("package", environment.CODE_PACKAGES)
def test_the_hash_follows_every_source_that_a_run_executes(
    checkout: Path, package: str
) -> None:
    before = environment.code_sha256()
    environment.code_sha256.cache_clear()
    (checkout / package / "file.py").write_text("two")
    assert environment.code_sha256() != before


def test_the_hash_does_not_follow_the_analysis(checkout: Path) -> None:
    before = environment.code_sha256()
    environment.code_sha256.cache_clear()
    (checkout / "spark_analysis").mkdir()
    (checkout / "spark_analysis" / "file.py").write_text("one")
    assert environment.code_sha256() == before


def test_the_machine_is_described() -> None:
    found = environment.environment()
    assert found["python"] == platform.python_version()
    assert found["kernel"] == platform.release()
    assert found["packages"]["trio"] == "0.35.0"
    assert found["memory_bytes"] > 2**28
