"""Requests with extreme values: both brokers accept, refuse or disconnect alike.

Every API is tested in every version. The test compares error codes, and whether the
connection stays open; other tests compare the rest of the responses.
"""

from __future__ import annotations

import random
import struct
import time

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import new_topic
from tests.fuzzing.extremes import Words
from tests.fuzzing.frames import OF_CLIENTS
from tests.kafka.conftest import Both
from tests.kafka.extremes import TOPIC_IDS, comparable, error_codes
from tests.kafka.peer import Peer
from tests.kafka.requests import create, settle, topic_id, versions, wait_for_leaders

pytestmark = pytest.mark.kafka

SEED = 1
OF_EACH_VERSION = 4
UNANSWERED = "not answered"
_SENTINEL = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 0x5E4713, -1)
_ALTER_TOPICS = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)


@pytest.mark.parametrize("key", OF_CLIENTS, ids=lambda key: key.name)
def test_extremes_are_seen_alike(both: Both, key: ApiKey) -> None:
    print(f"seed {SEED}, {OF_EACH_VERSION} of each version")
    both.compare(lambda peer: ask_extremes(peer, key))


def ask_extremes(peer: Peer, key: ApiKey) -> None:
    """Send the generated requests of one API in each of its versions."""
    rng = random.Random(f"{SEED} {key.name}")
    prefix = f"extreme-{key.name.lower()}"
    topics = [f"{prefix}-{each}" for each in "tc"]
    ids = _created(peer, topics)
    words = Words(
        topics=[name.encode() for name in topics],
        topic_ids=[bytes(16), *TOPIC_IDS],
    )
    for version in versions(key):
        for number in range(OF_EACH_VERSION):
            # New groups: the effect of another request on a group depends on timing.
            words.groups = [f"{prefix}-{version}-{number}-{i}".encode() for i in "ab"]
            sent = comparable(rng, words, (key, version), number)
            frame = sent.frame
            for stand_in, own in zip(TOPIC_IDS, ids, strict=True):
                frame = frame.replace(stand_in, own)
            answer = _exchange(peer, sent.key, sent.version, frame)
            asked = f"{sent}, number {number}: {frame[:200].hex()}"
            # A separate name, since other tests compare whole responses of the API.
            peer.note(f"{key.name}-extreme v{version}", answer, asked)
            if " none" in answer and key in _ALTER_TOPICS:
                settle(peer)


def _created(peer: Peer, topics: list[str]) -> list[bytes]:
    """Create the topics named in the requests; return their ids."""
    compact = [("cleanup.policy", "compact")]
    create(peer, new_topic(topics[0], 2), new_topic(topics[1], 2, configs=compact))
    for each in topics:
        wait_for_leaders(peer, each, 2)
    settle(peer)
    while peer.ask(ApiKey.FIND_COORDINATOR, 0, key="g").error_code != ErrorCode.none:
        time.sleep(0.01)
    return [topic_id(peer, each).bytes for each in topics]


def _exchange(peer: Peer, key: int, version: int, frame: bytes) -> str:
    """Send a request, followed by a valid one; return a summary of the responses."""
    peer.send_bytes(frame + _SENTINEL)
    first = peer.receive()
    if isinstance(first, str):
        return first
    if first[:4] == _SENTINEL[8:12]:
        return UNANSWERED
    told = error_codes(key, version, first)
    second = peer.receive()
    return f"answered: {told}" if isinstance(second, bytes) else f"{told}, {second}"
