"""Membership of a group: members, static instances, the leader, votes, parked joins.

A plain container (Kafka: the member maps of ``ClassicGroup``, ``ClassicGroupMember``);
other modules decide the consequences for the group's state. Members keep their order of
arrival. The first one wins ties (the next leader, equal votes); Kafka uses hash order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from broker.groups.state.classic_consumer_messages import subscribed_topics
from broker.groups.state.group_messages import (
    CONSUMER_PROTOCOL_TYPE,
    GroupProtocol,
    JoinAnswer,
    JoinedMember,
    SyncAnswer,
)
from broker.groups.state.group_records import MemberValue, member_row
from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.parked_answer import Waiting


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One member; ``joining`` and ``syncing`` are its parked requests.

    The code that parks or answers a JoinGroup calls `Roster.joins`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    # The first join is not complete: the member has no id yet and sends no heartbeats.
    is_new: bool = False
    joining: Waiting[JoinAnswer] | None = None
    syncing: Waiting[SyncAnswer] | None = None
    # The answer to its parked request is determined, but not yet sent.
    is_next: bool = False
    # The names of its protocols in order of preference, and the topics in each.
    preference: tuple[str, ...] = ()
    topics: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    # The fields of its cached row in a record of the group, and the row.
    _row: tuple[tuple[object, ...], bytes] = ((), b"")

    def row(self, protocol_name: str) -> bytes:
        """Return the member's row in a record for a protocol, cached while unchanged.

        A record of ten thousand members is made in one slice, from rows that have been
        made one by one before.
        """
        made_of = (
            protocol_name,
            self.protocols,
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
        )
        if self._row[0] != made_of:
            value = MemberValue(
                member_id=self.member_id,
                instance_id=self.instance_id,
                client_id=self.client_id,
                client_host=self.client_host,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                session_timeout_ms=self.session_timeout_ms,
                subscription=self.metadata(protocol_name),
                assignment=b"",
            )
            self._row = (made_of, member_row(value))
        return self._row[1]

    def metadata(self, protocol_name: str) -> bytes:
        """Return the member's metadata for a protocol that it supports."""
        return metadata_of(self.protocols, protocol_name)

    def heartbeat_excused(self) -> bool:
        """Return whether a parked request (no first join) excuses heartbeats."""
        return self.is_next or (
            not self.is_new and (self.joining is not None or self.syncing is not None)
        )

    def set_protocols(self, protocols: tuple[GroupProtocol, ...]) -> None:
        """Set the protocols that the member supports."""
        self.protocols = protocols
        self.preference = tuple(protocol.name for protocol in protocols)
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            self.topics = {
                name: subscribed_topics(metadata) for name, metadata in protocols
            }


class Roster:
    """The members of one group. Lookups are O(1), votes O(members x protocols)."""

    __slots__ = (
        "_joined",
        "_static",
        "_supporters",
        "leader",
        "members",
        "pending",
        "unsynced",
    )

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        # Ids sent to dynamic members (KIP-394) that have not joined with them yet.
        self.pending: set[str] = set()
        # Members of this generation that have not synced.
        self.unsynced: set[str] = set()
        self.leader: str | None = None
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        # Members with a parked JoinGroup; each JoinGroup needs their number.
        self._joined: set[Member] = set()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    # ---- changes ----------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.member_id not in self.members, member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self._static, member.instance_id
            self._static[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        member.set_protocols(member.protocols)
        self._supporters.update(_names(member.protocols))
        self.joins(member, member.joining)
        self.pending.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id; return the member, if there was one."""
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._joined.discard(member)
        self._supporters.subtract(_names(member.protocols))
        self._supporters += Counter()
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member a new id; it keeps its order and its leadership."""
        assert member.instance_id is not None, member
        old_member_id = member.member_id
        member.member_id = new_member_id
        self.members = {known.member_id: known for known in self.members.values()}
        self._static[member.instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        if old_member_id in self.unsynced:
            self.unsynced.remove(old_member_id)
            self.unsynced.add(new_member_id)

    def update(
        self,
        member: Member,
        protocols: tuple[GroupProtocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Set a member's fields from its new JoinGroup."""
        self._supporters.subtract(_names(member.protocols))
        self._supporters.update(_names(protocols))
        self._supporters += Counter()
        member.set_protocols(protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def joins(self, member: Member, waiting: Waiting[JoinAnswer] | None) -> None:
        """Set a member's parked JoinGroup; None after its answer."""
        member.joining = waiting
        if waiting is None:
            self._joined.discard(member)
        else:
            self._joined.add(member)

    def none_waits(self) -> None:
        """Clear all parked JoinGroups after their answers."""
        for member in self.members.values():
            member.joining = None
        self._joined.clear()

    def elect_joined_leader(self) -> bool:
        """Elect a leader that has joined, if necessary; False if no member has."""
        if self.leader is None:
            return False
        if self.members[self.leader].joining is None:
            joined = (known.member_id for known in self if known.joining is not None)
            elected = next(joined, None)
            if elected is None:
                return False
            self.leader = elected
        return True

    # ---- queries ----------------------------------------------------------------

    def static_member_id(self, instance_id: str) -> str | None:
        """Return the id of the static member of an instance id."""
        return self._static.get(instance_id)

    def validated(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member, or raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.unknown_member_id)
            if owner != member_id:
                raise KafkaError(ErrorCode.fenced_instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return member

    def supports_any(self, protocols: tuple[GroupProtocol, ...]) -> bool:
        """Return whether all members support one of these protocols."""
        return any(self._supporters[name] == len(self) for name in _names(protocols))

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all support.

        Each member votes for its most preferred candidate.
        """
        assert self.members, "there are no votes"
        votes: Counter[str] = Counter()
        preferences = Counter([member.preference for member in self])
        for names, count in preferences.items():
            ours = (name for name in names if self._supporters[name] == len(self))
            votes[next(ours)] += count
        ((elected, _),) = votes.most_common(1)
        return elected

    def joined_count(self) -> int:
        """Return the number of parked JoinGroups."""
        return len(self._joined)

    def all_joined(self) -> bool:
        """Return whether all members, including pending ids, have joined."""
        return not self.pending and self.joined_count() == len(self)

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max([member.rebalance_timeout_ms for member in self], default=0)

    def topics(self, protocol_name: str) -> frozenset[str] | None:
        """Return the topics of all members; None if one's topics cannot be read."""
        each = [member.topics.get(protocol_name) for member in self]
        known = [topics for topics in each if topics is not None]
        return frozenset().union(*known) if len(known) == len(each) else None

    def described(self, protocol_name: str) -> tuple[JoinedMember, ...]:
        """Return the members as in the leader's JoinGroup response."""
        return tuple(
            JoinedMember(
                member.member_id, member.instance_id, member.metadata(protocol_name)
            )
            for member in self
        )

    def check(self) -> None:
        """Assert that the maps agree."""
        assert all(key == member.member_id for key, member in self.members.items())
        static = {m.instance_id: m.member_id for m in self if m.instance_id is not None}
        assert static == self._static, (static, self._static)
        supporters = Counter(n for member in self for n in _names(member.protocols))
        assert supporters == self._supporters, (supporters, self._supporters)
        assert self._joined == {m for m in self if m.joining is not None}
        assert self.unsynced <= self.members.keys(), self.unsynced
        assert not self.pending & self.members.keys(), self.pending
        assert (self.leader in self.members) if self.members else self.leader is None
        for member in self:
            for waiting in (member.joining, member.syncing):
                assert waiting is None or not waiting.answered, member


def metadata_of(protocols: tuple[GroupProtocol, ...], name: str) -> bytes:
    """Return the metadata for one of a member's protocols."""
    for protocol in protocols:
        if protocol.name == name:
            return protocol.metadata
    raise AssertionError(f"{name!r} is none of {protocols}")


def _names(protocols: tuple[GroupProtocol, ...]) -> frozenset[str]:
    """Return the names of the protocols, without duplicates."""
    return frozenset(protocol.name for protocol in protocols)
