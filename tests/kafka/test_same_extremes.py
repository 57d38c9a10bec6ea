"""Requests at their extremes: accepted, refused or cut off by both brokers alike.

Every API is asked in every version. Error codes are compared, and whether the
connection stays open; what answers say else is a matter of the tests beside this one.
"""

from __future__ import annotations

import os
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
from tests.kafka.extremes import comparable, error_codes
from tests.kafka.peer import Peer
from tests.kafka.requests import create, settle, topic_id, versions, wait_for_leaders

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("XSEED", "1"))
OF_EACH = int(os.environ.get("XCOUNT", "12"))
NONE = ErrorCode.none
UNANSWERED = "not answered"
_SENTINEL = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 0x5E4713, -1)


@pytest.mark.parametrize("key", OF_CLIENTS, ids=lambda key: key.name)
def test_extremes_are_seen_alike(both: Both, key: ApiKey) -> None:
    print(f"seed {SEED}, {key.name}")
    both.compare(lambda peer: _ask_extremes(peer, key))


def _ask_extremes(peer: Peer, key: ApiKey) -> None:
    rng = random.Random(f"{SEED} {key.name}")
    prefix = f"extreme-{key.name.lower()}"
    words = _words(peer, prefix)
    for version in versions(key):
        for number in range(OF_EACH):
            words.groups[0] = f"{prefix}-{version}-{number}".encode()
            sent = comparable(rng, words, (key, version), number)
            answer = _exchange(peer, sent.key, sent.version, sent.frame)
            asked = f"{sent} {number} {sent.frame[: int(os.environ.get('XLEN', '150'))].hex()}"
            peer.note(f"{key.name}-extreme v{version}", answer, asked)
            if " none" in answer and _alters(key):
                settle(peer)


def _alters(key: ApiKey) -> bool:
    return key.name.startswith(("CREATE", "DELETE", "ALTER", "INCREMENTAL"))


def _words(peer: Peer, name: str) -> Words:
    """Create the topics that the requests of one version name."""
    names = [f"{name}-t", f"{name}-c"]
    compact = [("cleanup.policy", "compact")]
    create(peer, new_topic(names[0], 2), new_topic(names[1], 2, configs=compact))
    for each in names:
        wait_for_leaders(peer, each, 2)
    settle(peer)
    while peer.ask(ApiKey.FIND_COORDINATOR, 0, key="g").error_code is not NONE:
        time.sleep(0.01)
    return Words(
        topics=[each.encode() for each in names],
        topic_ids=[bytes(16), *(topic_id(peer, each).bytes for each in names)],
        groups=[b"", f"{name}-group".encode()],
    )


def _exchange(peer: Peer, key: int, version: int, frame: bytes) -> str:
    """Send a request, and one behind it that is surely answered; say what came."""
    peer.send_bytes(frame + _SENTINEL)
    first = peer.receive()
    if isinstance(first, str):
        return first
    if first[:4] == _SENTINEL[8:12]:
        return UNANSWERED
    told = error_codes(key, version, first)
    second = peer.receive()
    return f"answered: {told}" if isinstance(second, bytes) else f"{told}, {second}"
