"""Fetch sessions (KIP-227), step by step: Apache Kafka's answers and ours."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.requests import batch, fetch_fields, produce_fields
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import settle, topic, topic_id, versions

pytestmark = pytest.mark.kafka

Where = dict[tuple[str | UUID, int], int]


def produce(peer: Peer, name: str, partition: int, *values: bytes) -> None:
    records = {(name, partition): batch(*values)}
    peer.send(ApiKey.PRODUCE, 11, **produce_fields(records))


class Session:
    """A fetch session of one version; topics are names or ids as in that version."""

    def __init__(self, peer: Peer, version: int, wanted: Where) -> None:
        self._peer = peer
        self.version = version
        self.id = 0
        answer = self.fetch(0, wanted)
        self.id = answer.session_id

    def fetch(self, epoch: int, wanted: Where, **fields: Any) -> Any:
        told = fetch_fields(wanted, session_id=self.id, session_epoch=epoch, **fields)
        return self._peer.send(ApiKey.FETCH, self.version, **told)

    def forget(self, epoch: int, name: str | UUID, *partitions: int) -> None:
        key = "topic_id" if isinstance(name, UUID) else "topic"
        forgotten = [{key: name, "partitions": list(partitions)}]
        self.fetch(epoch, {}, forgotten_topics_data=forgotten)


@same_answers
def test_changed_partitions_are_answered_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.FETCH):
        if version < 7:
            continue
        name = topic(peer, f"incremental-{version}", 3)
        named = name if version < 13 else topic_id(peer, name)
        session = Session(peer, version, {(named, index): 0 for index in range(3)})
        session.fetch(1, {})
        produce(peer, name, 1, b"a")
        session.fetch(2, {})
        # Without a new fetch offset the partition is returned again.
        session.fetch(3, {})
        session.fetch(4, {(named, 1): 1})
        session.fetch(5, {})
        produce(peer, name, 0, b"b")
        produce(peer, name, 2, b"c")
        session.fetch(6, {})
        session.forget(7, named, 0)
        session.fetch(8, {(named, 2): 1})
        session.forget(9, named, 1, 2)
        session.fetch(10, {(named, 2): 0})
        session.fetch(11, {}, max_bytes=1)


@same_answers
def test_a_session_is_told_of_errors_again_and_again(peer: Peer) -> None:
    name = topic(peer, "errors", 2)
    for version in (7, 11, 12):
        session = Session(peer, version, {(name, 0): 0, (name, 5): 0, ("none", 0): 0})
        session.fetch(1, {})
        session.fetch(2, {(name, 0): 77})
        session.fetch(3, {})
        session.fetch(4, {(name, 0): 0})
        session.forget(5, "none", 0)
        session.forget(6, "never-asked-for", 3)
    session = Session(peer, 12, {("missing", 0): 0})
    session.fetch(1, {})
    for wanted in (UUID(int=78), topic_id(peer, name)):
        session = Session(peer, 13, {(wanted, 0): 0, (wanted, 9): 0})
        session.fetch(1, {})
        session.fetch(2, {})


@same_answers
def test_sessions_that_do_not_fit(peer: Peer) -> None:
    name = topic(peer, "fitting", 2)
    named = topic_id(peer, name)
    session = Session(peer, 12, {(name, 0): 0})
    session.fetch(3, {})
    session.fetch(0, {(name, 1): 0})
    session.fetch(1, {})
    # A change from topic names to ids, and back.
    session = Session(peer, 12, {(name, 0): 0})
    session.version = 13
    session.fetch(1, {(named, 0): 0})
    session = Session(peer, 13, {(named, 0): 0})
    session.version = 12
    session.fetch(1, {(name, 0): 0})
    # A new session replaces the old one; another session ends.
    session = Session(peer, 12, {(name, 0): 0})
    session.fetch(-1, {(name, 1): 0})
    session.fetch(1, {})
    session = Session(peer, 12, {})
    session.fetch(1, {(name, 0): 0})


@same_answers
def test_a_topic_goes_while_a_session_watches_it(peer: Peer) -> None:
    name = topic(peer, "passing", 1)
    named = topic_id(peer, name)
    session = Session(peer, 13, {(named, 0): 0})
    peer.send(
        ApiKey.DELETE_TOPICS,
        6,
        topics=[{"name": name}],
        timeout=fetch_fields({}, max_wait_ms=30_000)["max_wait"],
    )
    settle(peer)
    session.fetch(1, {})
    session.fetch(2, {})
