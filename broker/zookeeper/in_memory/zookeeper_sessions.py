"""Sessions and their expiry: ``SessionTrackerImpl`` with its ``ExpiryQueue``.

Times are milliseconds, passed by the caller. As in ZooKeeper, expiry is rounded up to a
multiple of the tick: a session lives up to one tick longer than its time-out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from broker.zookeeper.jute import Reader, packed_buffer, packed_int, packed_long

P = TypeVar("P")

_PASSWORD_BYTES: Final = 16
# A server's first session id; in Java it contains the server's id and the time.
_FIRST_ID: Final = 0x0100_0000_0000_0000
_TICKS_MIN, _TICKS_MAX = 2, 20


@dataclass(slots=True, eq=False)
class Session(Generic[P]):
    """A session, until closed or expired; ``peer`` is None while disconnected."""

    id: int
    password: bytes
    timeout_ms: int
    expires_ms: int
    peer: P | None


class Sessions(Generic[P]):
    """All sessions by id."""

    def __init__(self, tick_ms: int, rng: random.Random) -> None:
        self.tick_ms = tick_ms
        self._rng = rng
        self._next_id = _FIRST_ID
        self._by_id: dict[int, Session[P]] = {}

    def open(self, timeout_ms: int, now_ms: int, peer: P) -> Session[P]:
        """Open a session; its time-out is limited to 2 to 20 ticks."""
        granted_ms = min(
            max(timeout_ms, _TICKS_MIN * self.tick_ms), _TICKS_MAX * self.tick_ms
        )
        password = self._rng.randbytes(_PASSWORD_BYTES)
        session = self.add(self._next_id, password, granted_ms)
        session.peer = peer
        self.touch(session, now_ms)
        return session

    def add(self, session_id: int, password: bytes, timeout_ms: int) -> Session[P]:
        """Add a session without a connected client."""
        session = Session[P](session_id, password, timeout_ms, 0, None)
        self._next_id = max(self._next_id, session_id + 1)
        self._by_id[session_id] = session
        return session

    def __len__(self) -> int:
        return len(self._by_id)

    def packed(self) -> bytes:
        """Return all sessions as bytes, for `add_all`."""
        pieces = [packed_long(self._next_id), packed_int(len(self._by_id))]
        for it in self._by_id.values():
            pieces.append(packed_long(it.id) + packed_buffer(it.password))
            pieces.append(packed_int(it.timeout_ms))
        return b"".join(pieces)

    def add_all(self, reader: Reader) -> None:
        """Decode and add the sessions of a snapshot; raises `MalformedFrame`."""
        self._next_id = reader.read_long()
        for _ in range(reader.read_count()):
            session_id, password = reader.read_long(), reader.read_buffer()
            self.add(session_id, password, reader.read_int())

    def __getitem__(self, session_id: int) -> Session[P]:
        return self._by_id[session_id]

    def find(self, session_id: int, password: bytes) -> Session[P] | None:
        """Return a session, if it exists and ``password`` matches."""
        session = self._by_id.get(session_id)
        return session if session and session.password == password else None

    def touch(self, session: Session[P], now_ms: int) -> None:
        """Restart a session's time-out."""
        end_ms = now_ms + session.timeout_ms
        session.expires_ms = (end_ms // self.tick_ms + 1) * self.tick_ms

    def touch_all(self, now_ms: int) -> None:
        """Restart all time-outs, after a time without any server."""
        for session in self._by_id.values():
            self.touch(session, now_ms)

    def remove(self, session: Session[P]) -> None:
        """End a session."""
        del self._by_id[session.id]

    def expired(self, now_ms: int) -> list[Session[P]]:
        """Return the expired sessions, in the order of their opening."""
        return [it for it in self._by_id.values() if it.expires_ms <= now_ms]
