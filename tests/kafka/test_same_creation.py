"""Topics created implicitly by a request: Apache Kafka's answers and ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.kafka.conftest import SETTINGS, beside_kafka
from tests.kafka.java_tools import VERSIONS, KafkaPrograms
from tests.kafka.peer import Peer
from tests.kafka.requests import versions

pytestmark = pytest.mark.kafka


def create_on_the_way(peer: Peer) -> None:
    """Request missing topics, and request them again once they exist."""
    for version in versions(ApiKey.METADATA):
        asked: dict[str, Any] = {
            "topics": [{"name": f"new-{version}"}, {"name": "a/b"}],
            "include_topic_authorized_operations": True,
        }
        peer.send(ApiKey.METADATA, version, **asked)
        retry(peer, ApiKey.METADATA, version, **asked)
        peer.send(ApiKey.METADATA, version, **asked)
    peer.send(
        ApiKey.METADATA,
        12,
        topics=[{"name": "unwanted"}],
        allow_auto_topic_creation=False,
    )
    group = {"key": "g", "key_type": 0}
    peer.send(ApiKey.FIND_COORDINATOR, 3, **group)
    retry(peer, ApiKey.FIND_COORDINATOR, 3, **group)
    peer.send(ApiKey.FIND_COORDINATOR, 3, **group)


def retry(peer: Peer, api: ApiKey, version: int, /, **asked: Any) -> None:
    """Retry a request until there is no error, as clients do."""
    while True:
        answer = peer.ask(api, version, **asked)
        row = answer.topics[0] if api is ApiKey.METADATA else answer
        if row.error_code is ErrorCode.none:
            return
        time.sleep(0.02)


def test_creation_is_begun_and_answered_alike(
    programs_of: Callable[[str], KafkaPrograms], tmp_path: Path
) -> None:
    settings = {**SETTINGS, "auto_create_topics_enable": "true"}
    with beside_kafka(programs_of(VERSIONS[0]), tmp_path, **settings) as both:
        both.compare(create_on_the_way)
