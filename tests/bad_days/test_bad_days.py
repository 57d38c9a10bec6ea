"""One round of bad days: nothing acknowledged is lost, and all heals by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_days.bad_days import bad_days

# Not for CI: librdkafka renumbers what it may have sent when it raises its own epoch
# (`rd_kafka_pid_bump`), and a record may then rightly stand twice.
pytestmark = [pytest.mark.live, pytest.mark.search]


def test_everything_happens_once_and_nothing_is_lost(tmp_path: Path) -> None:
    assert bad_days(tmp_path, seconds=1, seed=11) == []
