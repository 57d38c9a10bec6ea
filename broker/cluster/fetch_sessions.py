"""Fetch sessions (KIP-227): a reader sends its partitions once, and then only changes.

Kafka's ``FetchManager``, ``FetchSessionCache`` and ``FetchContext``. Epoch -1 is a
Fetch without a session, epoch 0 requests a session, and larger epochs count its
requests. An incremental request lists changed partitions only, and its response omits
partitions without changes. Partitions with data move to the end of the session, so that
``max_bytes`` starves none.

The cache has a bounded number of sessions. A full cache evicts the least recently used
session if it has been unused for two minutes. Otherwise it evicts the session of the
lowest value, if the new session has a higher value: followers before consumers, then
many partitions before few. A session younger than two minutes is evicted only if it is
a consumer's and the new one is a follower's. Without an eviction the reader gets no
session and continues with full fetches, as the protocol allows.

A reader may request very many partitions, so each loop over them is a generator that
yields after every 64, where other tasks may run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from sortedcontainers import SortedList

from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.wire.hot import FetchPartition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
EVICTION_NS: Final = 120_000_000_000

# Partitions between two yields.
_STEP: Final = 64
# Partitions of one session: enough for a follower in a large cluster.
_PARTITIONS_MAX: Final = 250_000

Address = tuple[str | UUID, int]
R = TypeVar("R")
# Work that yields where other tasks may run.
InSteps: TypeAlias = Generator[None, None, R]


class Target(NamedTuple):
    """The request for one partition; topics by name, or by id from v13 on."""

    topic: str | UUID
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


Answered = Sequence[tuple[Target, FetchPartition]]


class Context(Protocol):
    """One Fetch: its targets, and the part of the outcome to report."""

    @property
    def targets(self) -> Collection[Target]:
        """The targets, in order."""

    @property
    def session_id(self) -> int:
        """The session that the Fetch continues; 0: none."""

    def needs_report(self, target: Target, row: FetchPartition) -> bool:
        """Return whether a row has to be reported."""

    def respond(self, outcome: Answered, now_ns: int) -> InSteps[tuple[int, Answered]]:
        """Return the session id and the rows of the response."""


@dataclass(slots=True)
class _Entry:
    """One partition of a session, and the last state reported to the reader."""

    target: Target
    high_watermark: int = -1
    log_start_offset: int = -1

    def needs_report(self, row: FetchPartition) -> bool:
        """Return whether an outcome has to be reported."""
        return (
            bool(row.error_code)
            or bool(row.records)
            or row.diverging_epoch is not None
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
        )

    def report(self, row: FetchPartition) -> bool:
        """Record a row as reported; return whether it has to be reported."""
        changed = self.needs_report(row)
        self.high_watermark = row.high_watermark
        self.log_start_offset = row.log_start_offset
        return changed


class _Worth(NamedTuple):
    """The value of a session to the cache: Kafka's ``EvictableKey``."""

    is_follower: bool
    partitions: int
    session_id: int


@dataclass(slots=True, kw_only=True)
class _Session:
    session_id: int
    uses_topic_ids: bool
    is_follower: bool
    created_ns: int
    used_ns: int
    # The value as the cache has it, and whether the session is older than EVICTION_NS.
    worth: _Worth | None = None
    is_old: bool = False
    epoch: int = INITIAL_EPOCH + 1
    entries: dict[Address, _Entry] = field(default_factory=dict)

    def add_targets(self, targets: Iterable[Target]) -> InSteps[None]:
        for number, target in enumerate(targets, 1):
            if not number % _STEP:
                yield
            address = (target.topic, target.partition)
            entry = self.entries.get(address)
            if entry is None:
                self.entries[address] = _Entry(target)
            else:
                entry.target = target

    def remove_targets(self, addresses: Iterable[Address]) -> InSteps[None]:
        for number, address in enumerate(addresses, 1):
            if not number % _STEP:
                yield
            self.entries.pop(address, None)

    def list_targets(self) -> InSteps[list[Target]]:
        targets = []
        # A copy, since entries are added and removed between two steps.
        for number, entry in enumerate(tuple(self.entries.values()), 1):
            if not number % _STEP:
                yield
            targets.append(entry.target)
        return targets


class FetchSessions:
    """The sessions of a broker, at most ``slots`` of them."""

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._rng = rng
        # Least recently used first.
        self._sessions: dict[int, _Session] = {}
        # Values of the sessions that any better session may evict, and of those that a
        # follower's session may evict; the lowest first.
        self._give_way = SortedList()
        self._give_way_to_followers = SortedList()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(
        self,
        session_id: int,
        epoch: int,
        targets: Collection[Target],
        forgotten: Iterable[Address],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ns: int,
    ) -> InSteps[Context]:
        """Return the context of a Fetch, with all its targets.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR: errors of the whole request.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id)
            if epoch == FINAL_EPOCH:
                return _Sessionless(targets)
            return _Full(self, targets, uses_topic_ids, is_follower)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        # Before the first yield: another request of the session may come between steps.
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        yield from session.add_targets(targets)
        yield from session.remove_targets(forgotten)
        if not session.entries:
            self._end(session_id)
            return _Sessionless(())
        if len(session.entries) > _PARTITIONS_MAX:
            self._end(session_id)
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if self._sessions.get(session_id) is session:
            self._use(session, now_ns)
        return _Incremental(session, (yield from session.list_targets()))

    def create(
        self, outcome: Answered, now_ns: int, *, uses_topic_ids: bool, is_follower: bool
    ) -> InSteps[int]:
        """Begin a session that has reported ``outcome``; 0 if there is no room."""
        entries: dict[Address, _Entry] = {}
        for number, (target, row) in enumerate(outcome, 1):
            if not number % _STEP:
                yield
            entry = entries[target.topic, target.partition] = _Entry(target)
            entry.report(row)
        if not self._make_room(_Worth(is_follower, len(outcome), NO_SESSION), now_ns):
            return NO_SESSION
        session_id = self._rng.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, 2**31 - 1)
        session = _Session(
            session_id=session_id,
            uses_topic_ids=uses_topic_ids,
            is_follower=is_follower,
            created_ns=now_ns,
            used_ns=now_ns,
            entries=entries,
        )
        self._use(session, now_ns)
        return session_id

    def _make_room(self, wanted: _Worth, now_ns: int) -> bool:
        """Free a slot for a session of a value; return whether there is one."""
        if len(self._sessions) < self._slots:
            return True
        unused = next(iter(self._sessions.values()), None)
        if unused is None:
            return False
        if now_ns - unused.used_ns > EVICTION_NS:
            self._end(unused.session_id)
            return True
        least = self._give_way_to_followers if wanted.is_follower else self._give_way
        if not least or wanted < least[0]:
            return False
        self._end(least[0].session_id)
        return True

    def _use(self, session: _Session, now_ns: int) -> None:
        """Record the use of a session, and update its value."""
        session_id = session.session_id
        self._sessions.pop(session_id, None)
        self._sessions[session_id] = session
        session.used_ns = now_ns
        is_old = now_ns - session.created_ns > EVICTION_NS
        known, size = session.worth, len(session.entries)
        if known and known.partitions == size and session.is_old == is_old:
            return
        self._discard_worth(session)
        worth = _Worth(session.is_follower, size, session_id)
        session.worth, session.is_old = worth, is_old
        if is_old:
            self._give_way.add(worth)
        if is_old or not session.is_follower:
            self._give_way_to_followers.add(worth)

    def _end(self, session_id: int) -> None:
        """End the session of an id, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._discard_worth(session)

    def _discard_worth(self, session: _Session) -> None:
        if session.worth is not None:
            self._give_way.discard(session.worth)
            self._give_way_to_followers.discard(session.worth)


class _Sessionless:
    session_id = NO_SESSION

    def __init__(self, targets: Collection[Target]) -> None:
        self.targets = targets

    def needs_report(self, target: Target, row: FetchPartition) -> bool:
        return True

    def respond(self, outcome: Answered, now_ns: int) -> InSteps[tuple[int, Answered]]:
        yield from ()
        return NO_SESSION, outcome


class _Full:
    session_id = NO_SESSION

    def __init__(
        self,
        sessions: FetchSessions,
        targets: Collection[Target],
        uses_topic_ids: bool,
        is_follower: bool,
    ) -> None:
        self.targets = targets
        self._sessions = sessions
        self._uses_topic_ids = uses_topic_ids
        self._is_follower = is_follower

    def needs_report(self, target: Target, row: FetchPartition) -> bool:
        return True

    def respond(self, outcome: Answered, now_ns: int) -> InSteps[tuple[int, Answered]]:
        session_id = yield from self._sessions.create(
            outcome,
            now_ns,
            uses_topic_ids=self._uses_topic_ids,
            is_follower=self._is_follower,
        )
        return session_id, outcome


class _Incremental:
    def __init__(self, session: _Session, targets: Collection[Target]) -> None:
        self.targets = targets
        self.session_id = session.session_id
        self._session = session

    def needs_report(self, target: Target, row: FetchPartition) -> bool:
        entry = self._session.entries.get((target.topic, target.partition))
        return entry is not None and entry.needs_report(row)

    def respond(self, outcome: Answered, now_ns: int) -> InSteps[tuple[int, Answered]]:
        entries = self._session.entries
        reported = []
        for number, (target, row) in enumerate(outcome, 1):
            if not number % _STEP:
                yield
            address = (target.topic, target.partition)
            entry = entries.get(address)
            if entry is not None and entry.report(row):
                reported.append((target, row))
                if row.records:
                    entries[address] = entries.pop(address)
        return self._session.session_id, reported
