"""One round of bad days: nothing acknowledged is lost, and all heals by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_days.bad_days import bad_days

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_everything_happens_once_and_nothing_is_lost(tmp_path: Path) -> None:
    assert bad_days(tmp_path, seconds=1, seed=11) == []
