"""Fetch sessions: partitions remembered and reported, and eviction (KIP-227)."""

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
from broker.log.steps import run
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
        """Fetch from these offsets; return the partitions in the answer."""
        steps = self.sessions.context(
            fields.get("session_id", self.session_id),
            fields.get("epoch", self.epoch),
            [target(key, offset) for key, offset in wanted.items()],
            forget,
            uses_topic_ids=fields.get("uses_topic_ids", False),
            is_follower=self.is_follower,
            now_ns=now_ns,
        )
        context = run(steps)
        self.asked = [((t.topic, t.partition), t.offset) for t in context.targets]
        outcome = [(t, found[str(t.topic), t.partition]) for t in context.targets]
        self.session_id, told = run(context.respond(outcome, now_ns))
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


def test_a_session_remembers_what_is_wanted_and_reports_only_news(
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
def test_a_request_of_a_wrong_epoch_is_refused_and_ends_nothing(
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


def test_a_larger_session_replaces_a_smaller_one_in_a_full_cache() -> None:
    """Kafka's rule: no eviction in the first two minutes, or for an equal session."""
    sessions = FetchSessions(2, random.Random(1))
    small, large = Reader(sessions), Reader(sessions)
    small.fetch({A: 0}, NOTHING)
    large.fetch({A: 0, B: 0, C: 0}, NOTHING)

    def comes(*wanted: tuple[str, int], now_ns: int) -> bool:
        for each in (small, large):
            each.fetch({}, NOTHING, now_ns=now_ns)
        late = Reader(sessions)
        late.fetch(dict.fromkeys(wanted, 0), NOTHING, now_ns=now_ns)
        return late.session_id > 0

    assert not comes(A, B, now_ns=EVICTION_NS)
    assert not comes(A, now_ns=EVICTION_NS + 1)
    assert comes(A, B, now_ns=EVICTION_NS + 1)
    with pytest.raises(KafkaError) as gone:
        small.fetch({}, NOTHING)
    assert gone.value.code is ErrorCode.fetch_session_id_not_found
    assert large.fetch({}, NOTHING, now_ns=EVICTION_NS + 1) == []


def test_a_follower_in_use_gives_way_to_a_larger_follower_only() -> None:
    sessions = FetchSessions(1, random.Random(1))
    first = Reader(sessions, is_follower=True)
    first.fetch({A: 0}, NOTHING)
    first.fetch({}, NOTHING, now_ns=EVICTION_NS + 1)
    everything = {A: 0, B: 0, C: 0}
    consumer = Reader(sessions)
    consumer.fetch(everything, NOTHING, now_ns=EVICTION_NS + 1)
    assert consumer.session_id == 0
    second = Reader(sessions, is_follower=True)
    second.fetch(everything, NOTHING, now_ns=EVICTION_NS + 1)
    assert second.session_id > 0


class NaiveCache:
    """Kafka's rule, by a scan of all sessions; no two sessions have the same size."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        # By name: is a follower, partitions, created, used; least recently used first.
        self.held: dict[int, tuple[bool, int, int, int]] = {}

    def use(self, name: int, is_follower: bool, size: int, now_ns: int) -> None:
        _, _, created, _ = self.held.pop(name, (0, 0, now_ns, 0))
        self.held[name] = is_follower, size, created, now_ns

    def admits(self, is_follower: bool, size: int, now_ns: int) -> bool:
        if len(self.held) < self.slots:
            return True
        stale = [n for n, held in self.held.items() if now_ns - held[3] > EVICTION_NS]
        less = [
            (follower, partitions, name)
            for name, (follower, partitions, created, used) in self.held.items()
            if used - created > EVICTION_NS or (is_follower and not follower)
        ]
        if stale:
            del self.held[stale[0]]
            return True
        if not less or (is_follower, size) < min(less)[:2]:
            return False
        del self.held[min(less)[2]]
        return True


@pytest.mark.parametrize("seed", range(20))
def test_more_readers_than_slots_are_served_and_share_as_in_kafka(seed: int) -> None:
    """Readers return with or without a session and always fetch all their partitions.

    A naive cache predicts which readers have a session. An answer without a session has
    all partitions.
    """
    rng = random.Random(seed)
    slots, now_ns = 4, 0
    sessions, naive = FetchSessions(slots, random.Random(seed)), NaiveCache(slots)
    keys = [("t", index) for index in range(12)]
    found = {key: row() for key in keys}
    readers = [
        (Reader(sessions, is_follower=rng.random() < 0.3), rng.sample(keys, size))
        for size in range(1, 11)
    ]
    held = 0
    for _ in range(400):
        now_ns += rng.choice((0, S, 30 * S, 130 * S))
        number = rng.randrange(len(readers))
        reader, wanted = readers[number]
        everything = dict.fromkeys(wanted, 0)
        try:
            asked = everything if reader.session_id == 0 else {}
            epoch = INITIAL_EPOCH if reader.session_id == 0 else reader.epoch
            told = reader.fetch(asked, found, epoch=epoch, now_ns=now_ns)
            assert (told == []) == (not asked), "all or nothing is news"
            admitted = number in naive.held or naive.admits(
                reader.is_follower, len(wanted), now_ns
            )
        except KafkaError:
            assert number not in naive.held
            reader.session_id, reader.epoch = 0, INITIAL_EPOCH
            continue
        assert {key for key, _ in reader.asked} == set(wanted)
        assert (reader.session_id > 0) == admitted, number
        if reader.session_id == 0:
            reader.epoch = INITIAL_EPOCH
            continue
        naive.use(number, reader.is_follower, len(wanted), now_ns)
        held += 1
        assert len(sessions) == len(naive.held) <= slots
    assert held > 100
