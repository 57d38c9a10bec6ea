"""What conversations with both brokers are made of."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from broker.errors import ErrorCode
from broker.wire.api_keys import SUPPORTED, ApiKey
from tests.broker.apis.requests import SECONDS_30, fetch_fields, new_topic
from tests.kafka.peer import Peer


def versions(key: ApiKey) -> range:
    """Return the versions in which we answer in earnest; Kafka 3.9 has them all."""
    served = SUPPORTED[key]
    return range(served.implemented_min, served.max + 1)


def create(
    peer: Peer, *topics: dict[str, Any], version: int = 4, **fields: Any
) -> None:
    """Create topics; version 4 is the last that does not answer with all configs."""
    peer.send(
        ApiKey.CREATE_TOPICS,
        version,
        topics=list(topics),
        **{"timeout": SECONDS_30, **fields},
    )


def topic(peer: Peer, name: str, partitions: int = 1, **configs: str) -> str:
    """Create one topic and return its name."""
    written = [(key.replace("_", "."), value) for key, value in configs.items()]
    create(peer, new_topic(name, partitions, configs=written))
    wait_for_leaders(peer, name, partitions)
    return name


def wait_for_leaders(peer: Peer, name: str, partitions: int) -> None:
    """Wait until partitions can be used: Kafka answers before they have leaders."""
    wanted = {(name, index): 0 for index in range(partitions)}
    while True:
        answer = peer.ask(ApiKey.FETCH, 11, **fetch_fields(wanted))
        rows = [row for topic in answer.responses for row in topic.partitions]
        if {row.error_code for row in rows} == {ErrorCode.none}:
            return
        time.sleep(0.01)


def init_producer_id(peer: Peer) -> Any:
    """Ask for a producer id; the answer is not compared."""
    return peer.ask(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=None,
        transaction_timeout=timedelta(seconds=60),
        producer_id=-1,
        producer_epoch=-1,
    )


def topic_id(peer: Peer, name: str) -> Any:
    """Return the id of a topic."""
    answer = peer.send(ApiKey.METADATA, 12, topics=[{"name": name}])
    return answer.topics[0].topic_id
