"""Fetch sessions: what is remembered, what is told, and who gets one (KIP-227)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.cluster.fetch_sessions import (
    EVICTION_NS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSessions,
    Target,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.wire.hot import FetchPartition

S = 1_000_000_000


class Reader:
    """One client and its session."""

    def __init__(self, sessions: FetchSessions, *, is_follower: bool = False) -> None:
        self.sessions = sessions
        self.is_follower = is_follower
        self.session_id = 0
        self.epoch = INITIAL_EPOCH

    def fetch(
        self,
        wanted: dict[tuple[str, int], int],
        found: dict[tuple[str, int], FetchPartition],
        *,
        forget: tuple[tuple[str, int], ...] = (),
        now_ns: int = 0,
        **fields: Any,
    ) -> list[tuple[str, int]]:
        """Fetch from these offsets; return the partitions that the answer tells of."""
        context = self.sessions.context(
            fields.get("session_id", self.session_id),
            fields.get("epoch", self.epoch),
            [target(key, offset) for key, offset in wanted.items()],
            forget,
            uses_topic_ids=fields.get("uses_topic_ids", False),
            is_follower=self.is_follower,
            now_ns=now_ns,
        )
        self.asked = [((t.topic, t.partition), t.offset) for t in context.targets]
        outcome = [(t, found[str(t.topic), t.partition]) for t in context.targets]
        self.session_id, told = context.told(outcome, now_ns)
        self.epoch += 1
        return [(str(t.topic), t.partition) for t, _ in told]


def target(key: tuple[str, int], offset: int) -> Target:
    return Target(key[0], key[1], offset, 1 << 20, -1, -1, -1)


def row(hw: int = 0, records: bytes = b"", error: int = 0) -> FetchPartition:
    return FetchPartition(0, error, hw, hw, 0, records)


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(2, random.Random(1))


A, B, C = ("a", 0), ("b", 0), ("c", 0)
NOTHING = {A: row(), B: row(), C: row()}


def test_a_session_remembers_what_is_wanted_and_tells_only_news(
    sessions: FetchSessions,
) -> None:
    reader = Reader(sessions)
    assert reader.fetch({A: 0, B: 5}, NOTHING) == [A, B]
    assert reader.session_id > 0
    assert reader.fetch({}, NOTHING) == []
    assert reader.asked == [(A, 0), (B, 5)]
    assert reader.fetch({}, {A: row(), B: row(hw=6, records=b"r")}) == [B]
    assert reader.fetch({B: 6}, {A: row(), B: row(hw=6)}) == []
    assert dict(reader.asked) == {A: 0, B: 6}


def test_errors_and_watermarks_are_news(sessions: FetchSessions) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0}, NOTHING)
    assert reader.fetch({}, {A: row(hw=1)}) == [A]
    assert reader.fetch({}, {A: row(hw=1)}) == []
    failed = FetchPartition(0, 6, -1, -1, -1, b"")
    assert reader.fetch({}, {A: failed}) == [A]
    assert reader.fetch({}, {A: failed}) == [A]
    assert reader.fetch({}, {A: row(hw=1)}) == [A]
    moved = FetchPartition(0, 0, 1, 1, 1, b"")
    assert reader.fetch({}, {A: moved}) == [A]


def test_partitions_are_added_changed_and_forgotten(sessions: FetchSessions) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0}, NOTHING)
    assert reader.fetch({B: 1}, NOTHING) == [B]
    assert reader.fetch({}, NOTHING, forget=(A,)) == []
    assert reader.asked == [(B, 1)]


def test_partitions_with_data_go_to_the_end(sessions: FetchSessions) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0, B: 0, C: 0}, NOTHING)
    reader.fetch({}, {**NOTHING, A: row(hw=1, records=b"r")})
    reader.fetch({}, NOTHING)
    assert [key for key, _ in reader.asked] == [B, C, A]


def test_a_session_that_wants_nothing_any_more_ends(sessions: FetchSessions) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0}, NOTHING)
    assert reader.fetch({}, NOTHING, forget=(A,)) == []
    assert (reader.session_id, len(sessions)) == (0, 0)


def test_epoch_minus_one_is_without_a_session_and_ends_one(
    sessions: FetchSessions,
) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0}, NOTHING)
    assert reader.fetch({A: 0}, NOTHING, epoch=FINAL_EPOCH) == [A]
    assert (reader.session_id, len(sessions)) == (0, 0)


def test_epoch_zero_begins_anew(sessions: FetchSessions) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0}, NOTHING)
    first = reader.session_id
    reader.fetch({B: 0}, NOTHING, epoch=INITIAL_EPOCH)
    assert reader.session_id != first
    assert len(sessions) == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_id": 99}, ErrorCode.fetch_session_id_not_found),
        ({"epoch": 2}, ErrorCode.invalid_fetch_session_epoch),
        ({"uses_topic_ids": True}, ErrorCode.fetch_session_topic_id_error),
    ],
)
def test_what_does_not_fit_the_session_is_refused_and_ends_nothing(
    sessions: FetchSessions, fields: dict[str, Any], error: ErrorCode
) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0}, NOTHING)
    with pytest.raises(KafkaError) as refused:
        reader.fetch({}, NOTHING, **fields)
    assert refused.value.code is error
    assert reader.fetch({}, NOTHING) == []


def test_epochs_wrap_to_one(sessions: FetchSessions) -> None:
    reader = Reader(sessions)
    reader.fetch({A: 0}, NOTHING)
    (session,) = sessions._sessions.values()
    session.epoch = reader.epoch = 2**31 - 1
    reader.fetch({}, NOTHING)
    assert session.epoch == 1


def test_a_full_cache_gives_no_session_until_one_is_stale(
    sessions: FetchSessions,
) -> None:
    old, fresh, late = Reader(sessions), Reader(sessions), Reader(sessions)
    old.fetch({A: 0}, NOTHING)
    fresh.fetch({A: 0}, NOTHING, now_ns=S)
    fresh.fetch({}, NOTHING, now_ns=EVICTION_NS)
    assert late.fetch({A: 0}, NOTHING, now_ns=EVICTION_NS, epoch=0) == [A]
    assert late.session_id == 0
    late.fetch({A: 0}, NOTHING, now_ns=EVICTION_NS + 1, epoch=0)
    assert late.session_id > 0
    assert fresh.fetch({}, NOTHING) == []
    with pytest.raises(KafkaError):
        old.fetch({}, NOTHING)


def test_a_follower_takes_a_consumers_session_but_no_followers(
    sessions: FetchSessions,
) -> None:
    Reader(sessions).fetch({A: 0}, NOTHING)
    Reader(sessions).fetch({A: 0}, NOTHING)
    followers = [Reader(sessions, is_follower=True) for _ in range(3)]
    for follower in followers:
        follower.fetch({A: 0}, NOTHING)
    assert [follower.session_id > 0 for follower in followers] == [True, True, False]


def test_a_session_may_begin_with_nothing(sessions: FetchSessions) -> None:
    reader = Reader(sessions)
    assert reader.fetch({}, NOTHING) == []
    assert (reader.session_id > 0, len(sessions)) == (True, 1)
    assert reader.fetch({A: 0}, NOTHING) == [A]
