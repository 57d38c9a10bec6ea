"""Our admin client and librdkafka's get the same results from a live broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.interoperation import compare_admins
from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.live


def test_librdkafka_and_ours_receive_the_same(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)
    try:
        compare_admins(process.bootstrap)
    finally:
        process.close()
