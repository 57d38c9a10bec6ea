"""Real clients copy exactly once while they and their brokers are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exactly_once.clients import CLIENTS, MissingError
from tests.exactly_once.exactly_once import exactly_once

pytestmark = [pytest.mark.live, pytest.mark.kafka]

CYCLES = 3


@pytest.mark.parametrize(
    ("name", "brokers"), [*((name, 1) for name in CLIENTS), ("streams", 3)]
)
def test_records_are_copied_exactly_once(
    name: str, brokers: int, tmp_path: Path
) -> None:
    try:
        print(exactly_once(name, brokers, CYCLES, seed=2, at=tmp_path))
    except MissingError as missing:
        pytest.skip(str(missing))
