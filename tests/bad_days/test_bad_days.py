"""One round of bad days and one of restarts: no loss, and full recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_days.bad_days import BadDays, bad_days

# Not in CI: when librdkafka raises its own epoch (`rd_kafka_pid_bump`), it renumbers
# records that it may have sent, and a record may legitimately occur twice.
pytestmark = [pytest.mark.live, pytest.mark.search]


def test_everything_happens_once_and_nothing_is_lost(tmp_path: Path) -> None:
    assert bad_days(tmp_path, seconds=1, seed=11) == []


def test_a_rolling_restart_is_no_error_of_any_idempotent_producer(
    tmp_path: Path,
) -> None:
    restart = (BadDays.brokers_restart_one_by_one,)
    assert bad_days(tmp_path, seconds=1, seed=5, strikes=restart) == []
