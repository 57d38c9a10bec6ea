"""Completeness of the comparison: every API is compared, every allowance is used.

These tests evaluate the records of all other `test_same_*.py` files, so they need a run
of all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import Both
from tests.kafka.requests import versions

pytestmark = pytest.mark.kafka

# Requests of controllers and brokers, which KRaft lacks or our listener refuses. Other
# tests compare them with those of Kafka's controllers and coordinators.
CONTROLLERS = {
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
}
# Compared with Kafka 4.4 only (test_same_consumer_groups.py).
OF_KAFKA_4 = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
# Compared between brokers with several log directories (test_same_log_dirs.py).
OF_SEVERAL_DIRECTORIES = {ApiKey.ALTER_REPLICA_LOG_DIRS}


@pytest.fixture
def whole(request: pytest.FixtureRequest, both: Both) -> Both:
    """Return both brokers after all other tests of the comparison."""
    here = Path(__file__)
    wanted = {each.name for each in here.parent.glob("test_same_*.py")}
    selected = {item.path.name for item in request.session.items}
    if not wanted <= selected or request.config.option.keyword:
        pytest.skip("only some of the conversations were selected")
    return both


def test_every_api_was_compared_in_every_version(whole: Both) -> None:
    missing = [
        f"{key.name} v{version}"
        for key in sorted(
            APIS.keys() - CONTROLLERS - OF_KAFKA_4 - OF_SEVERAL_DIRECTORIES
        )
        for version in versions(key)
        if f"{key.name} v{version}" not in whole.asked
    ]
    assert missing == []


def test_every_allowed_difference_was_met(whole: Both) -> None:
    assert [row for row in whole.allowed if row not in whole.used] == []
