"""One consumer group: members, epochs, target assignment, and owners of partitions.

Kafka: ``ConsumerGroup`` and ``ModernGroup``. The group indexes its members and has
queries about its state; ``consumer_heartbeats`` decides on changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, Protocol, TypeVar
from uuid import UUID

from broker.groups.consumer.assignors import NOTHING, Assignment, Subscriber
from broker.groups.consumer.consumer_records import (
    EpochValue,
    Kind,
    ResolvedRegex,
    TargetEpochValue,
    tombstone,
)
from broker.groups.consumer.journal import Journal
from broker.groups.consumer.members import ConsumerMember, Held, MemberState
from broker.groups.consumer.subscribed_topics import ClusterTopics, KnownTopic
from broker.groups.consumer.topic_hashes import group_hash
from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group_messages import CONSUMER_PROTOCOL_TYPE, UNKNOWN_MEMBER_ID
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Record

K = TypeVar("K", int, str)

# As in Kafka 4.4; the first member therefore reaches epoch 2.
FIRST_EPOCH: Final = 1
NEVER_RESOLVED_MS: Final = -(2**63)


class Committing(Protocol):
    """The sender and the partitions of an OffsetCommit request."""

    @property
    def member_id(self) -> str:
        """The sender's member id; empty: no member."""

    @property
    def instance_id(self) -> str | None:
        """The sender's instance id; None: not a static member."""

    @property
    def generation(self) -> int:
        """The sender's member epoch."""

    @property
    def positions(self) -> Mapping[TopicPartition, object]:
        """The partitions with new offsets."""


class CommittingInEpoch(Committing, Protocol):
    """A request that may come from a member of the consumer protocol."""

    @property
    def supports_member_epochs(self) -> bool:
        """Whether the request's version has member epochs."""

    @property
    def topic_ids(self) -> Mapping[str, UUID]:
        """The ids of the topics."""


class ConsumerGroup(AnyGroup):
    """The state of one group."""

    __slots__ = (
        "_assignors",
        "_classic_protocols",
        "_names",
        "_owners",
        "_reconciled",
        "_regexes",
        "_static",
        "checked_version",
        "classic_count",
        "epoch",
        "has_topics_record",
        "is_assigning",
        "is_resolving",
        "is_snapshot_void",
        "journal",
        "members",
        "resolved",
        "resolved_version",
        "target_epoch",
        "targets",
        "topics_hash",
    )

    kind: ClassVar[str] = "consumer"
    protocol_type: str | None = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = FIRST_EPOCH
        self.topics_hash = 0
        self.target_epoch = TargetEpochValue(FIRST_EPOCH, 0)
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.journal = Journal()
        # Whether the log holds a record of the kind that Kafka 4.1 no longer writes.
        self.has_topics_record = False
        # Version of the cluster's topics at the last comparison of the hash.
        self.checked_version: int | None = None
        # Version of the cluster's topics at the last lookup of regular expressions.
        self.resolved_version: int | None = None
        # Number of members that use the classic protocol.
        self.classic_count = 0
        # Whether an assignor, or a lookup of regular expressions, is in progress.
        self.is_assigning = self.is_resolving = False
        # Whether members have changed since the assignor received them.
        self.is_snapshot_void = False
        self._static: dict[str, str] = {}
        self._assignors: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self._owners: dict[UUID, dict[int, str]] = {}
        # Number of STABLE members by epoch.
        self._reconciled: Counter[int] = Counter()

    def __repr__(self) -> str:
        return (
            f"<consumer group {self.group_id!r}: {self.state_name}, epoch {self.epoch},"
            f" {len(self.members)} members>"
        )

    # ---- changes ----------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace its former value."""
        self._uncount(self.members.get(member.member_id))
        self.members[member.member_id] = member
        self._names.update(member.topics)
        if member.regex:
            self._regexes[member.regex] += 1
        if member.assignor is not None:
            self._assignors[member.assignor] += 1
        if member.classic is not None:
            self.classic_count += 1
            self._classic_protocols.update(
                {name for name, _ in member.classic.protocols}
            )
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if member.state is MemberState.STABLE:
            self._reconciled[member.epoch] += 1
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                owners = self._owners.setdefault(topic_id, {})
                for partition in partitions:
                    owner = owners.setdefault(partition, member.member_id)
                    assert owner == member.member_id, (topic_id, partition, owner)

    def remove(self, member_id: str) -> None:
        """Remove a member, its target, and its partitions."""
        self._uncount(self.members.pop(member_id))
        self.targets.pop(member_id, None)

    def _uncount(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        _subtract(self._names, member.topics)
        _subtract(self._regexes, (member.regex,) if member.regex else ())
        if member.assignor is not None:
            _subtract(self._assignors, (member.assignor,))
        if member.classic is not None:
            self.classic_count -= 1
            names = {name for name, _ in member.classic.protocols}
            _subtract(self._classic_protocols, names)
        instance_id = member.instance_id or ""
        if self._static.get(instance_id) == member.member_id:
            del self._static[instance_id]
        if member.state is MemberState.STABLE:
            _subtract(self._reconciled, (member.epoch,))
        for held in (member.assigned, member.revoking):
            self._release(held)

    def _release(self, held: Held) -> None:
        for topic_id, partitions in held.items():
            owners = self._owners[topic_id]
            for partition in partitions:
                del owners[partition]
            if not owners:
                del self._owners[topic_id]

    # ---- queries ----------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        if not self.members:
            return "Empty"
        target_epoch = self.target_epoch.epoch
        if self.epoch > target_epoch:
            return "Assigning"
        is_stable = self._reconciled[target_epoch] == len(self.members)
        return "Stable" if is_stable else "Reconciling"

    def is_held(self, topic_id: UUID, partition: int) -> bool:
        """Return whether a member holds a partition, or has yet to revoke it."""
        return partition in self._owners.get(topic_id, ())

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the static member of an instance id."""
        if instance_id is None:
            return None
        member_id = self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member; raise UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.unknown_member_id,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def regexes(self) -> Mapping[str, int]:
        """Return the regular expressions, each with its number of members."""
        return self._regexes

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics that members subscribe to."""
        matched = [
            self.resolved[it].topics for it in self._regexes if it in self.resolved
        ]
        return frozenset(self._names).union(*matched)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def topic_ids_of(
        self, member: ConsumerMember, topics: ClusterTopics
    ) -> frozenset[UUID]:
        """Return the ids of the topics of a member that exist."""
        known = [topics.find(name) for name in self.topics_of(member)]
        return frozenset([topic.topic_id for topic in known if topic is not None])

    def subscribers(self, known: Mapping[str, KnownTopic]) -> Iterator[Subscriber]:
        """Iterate over the members in the form for an assignor."""
        # Most members share a subscription, so its topic ids are computed once.
        ids: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
        for member in tuple(self.members.values()):
            subscription = (member.topics, member.regex)
            if subscription not in ids:
                topics = sorted(self.topics_of(member))
                ids[subscription] = frozenset(
                    [known[it].topic_id for it in topics if it in known]
                )
            yield Subscriber(
                member.member_id,
                member.instance_id,
                ids[subscription],
                self.targets.get(member.member_id, NOTHING),
            )

    def compute_hash(self, topics: ClusterTopics) -> int:
        """Return the hash of the existing topics that members subscribe to."""
        known = [(name, topics.find(name)) for name in self.topic_names()]
        return group_hash(
            [(name, topic.digest) for name, topic in known if topic is not None]
        )

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members prefer; None: no preference."""
        if not self._assignors:
            return None
        # Ties are broken by name, not by the order of heartbeats.
        return max(self._assignors, key=lambda name: (self._assignors[name], name))

    def last_resolved_ms(self) -> int:
        """Return the time of the last lookup of regular expressions."""
        times = [resolved.resolved_ms for resolved in self.resolved.values()]
        return max(times, default=NEVER_RESOLVED_MS)

    # ---- members of the classic protocol ----------------------------------------

    def supports_any(self, protocols: Iterable[str]) -> bool:
        """Return whether all classic members support one of these protocols."""
        count = self.classic_count
        return any(self._classic_protocols[name] == count for name in protocols)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether other members still hold partitions of a member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.is_held(topic_id, partition)
            for topic_id, partitions in self.targets.get(
                member.member_id, NOTHING
            ).items()
            for partition in partitions
        )

    # ---- offsets ----------------------------------------------------------------

    def validate_commit(self, request: CommittingInEpoch) -> None:
        """Raise `KafkaError` if the sender may not commit offsets.

        A member may commit with an earlier epoch than its current one if the partition
        was assigned in or before that epoch, and is still held (KIP-1251).
        """
        member = self._committing(request)
        if member is None:
            return
        if member.classic is None and not request.supports_member_epochs:
            raise KafkaError(
                ErrorCode.unsupported_version,
                "OffsetCommit version 9 or above must be used by members using the "
                "consumer group protocol",
            )
        ids = request.topic_ids
        self._validate_epoch(member, request, ids)

    def validate_transactional_commit(self, request: Committing) -> None:
        """Raise `KafkaError` if the sender may not commit offsets in a transaction."""
        has_no_member_id = request.member_id == UNKNOWN_MEMBER_ID
        if (
            request.generation == -1
            and has_no_member_id
            and request.instance_id is None
        ):
            return
        member = self._committing(request)
        if member is not None and request.generation != member.epoch:
            raise _stale(member)

    def _committing(self, request: Committing) -> ConsumerMember | None:
        if request.generation < 0 and not self.members:
            return None
        return self.member(request.member_id)

    def _validate_epoch(
        self, member: ConsumerMember, request: Committing, ids: Mapping[str, UUID]
    ) -> None:
        if request.generation == member.epoch:
            return
        if request.generation > member.epoch:
            raise _stale(member)
        for topic, partition in request.positions:
            topic_id = ids.get(topic)
            epoch = None if topic_id is None else member.held_since(topic_id, partition)
            if epoch is None or request.generation < epoch:
                raise _stale(member)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise `KafkaError` if the sender may not read offsets."""
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or UNKNOWN_MEMBER_ID)
        if member_epoch != member.epoch:
            raise _stale(member)

    def require_deletable(self) -> None:
        """Raise NON_EMPTY_GROUP while there are members."""
        if self.members:
            raise KafkaError(ErrorCode.non_empty_group)

    def require_deletable_offsets(self) -> None:
        """Do nothing: offsets can be deleted, unless their topics are in use."""

    def may_expire(self) -> bool:
        """Return True."""
        return True

    def empty_since_ms(self) -> int | None:
        """Return None: the retention of an offset begins with its commit."""
        return None

    def is_stored(self) -> bool:
        """Return whether the log may hold a record of the group itself."""
        return self.journal.is_used

    def has_no_members(self) -> bool:
        """Return whether there are no members, pending commits or pending records."""
        return (
            not self.members
            and not len(self.journal)
            and not self.offsets.any_pending()
        )

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic."""
        return topic in self._names or any(
            regex in self.resolved and topic in self.resolved[regex].topics
            for regex in self._regexes
        )

    def tombstones(self) -> Iterator[Record]:
        """Iterate over the records that delete the group, in Kafka's order."""
        group_id = self.group_id
        for kind in (Kind.CURRENT, Kind.TARGET):
            for member_id in self.members:
                yield tombstone(kind, group_id, member_id)
        yield tombstone(Kind.TARGET_EPOCH, group_id)
        for member_id in self.members:
            yield tombstone(Kind.MEMBER, group_id, member_id)
        for regex in self.resolved:
            yield tombstone(Kind.REGEX, group_id, regex)
        if self.has_topics_record:
            yield tombstone(Kind.TOPICS, group_id)
        yield tombstone(Kind.EPOCH, group_id)

    def epoch_value(self) -> EpochValue:
        """Return the content of the group's epoch record."""
        return EpochValue(self.epoch, self.topics_hash)

    def check(self) -> None:
        """Assert that the indexes agree, and that no partition has two owners."""
        members = self.members.values()
        assert self._names == Counter(it for m in members for it in m.topics)
        assert self._regexes == Counter(m.regex for m in members if m.regex)
        assert self.classic_count == sum(m.classic is not None for m in members)
        assert self._reconciled == Counter(
            m.epoch for m in members if m.state is MemberState.STABLE
        )
        static = {m.instance_id: m.member_id for m in members if m.instance_id}
        assert static == self._static, (static, self._static)
        owners: dict[tuple[UUID, int], str] = {}
        for member in members:
            assert member.epoch <= self.target_epoch.epoch, (self, member)
            for held in (member.assigned, member.revoking):
                for topic_id, partitions in held.items():
                    assert partitions, member
                    for partition in partitions:
                        key = (topic_id, partition)
                        assert key not in owners, (key, owners[key], member)
                        owners[key] = member.member_id
        known = {
            (topic_id, partition): member_id
            for topic_id, partitions in self._owners.items()
            for partition, member_id in partitions.items()
        }
        assert owners == known, (owners, known)
        assert self.target_epoch.epoch <= self.epoch, self
        assert self.targets.keys() <= self.members.keys(), self
        self.offsets.check()


def _subtract(counter: Counter[K], keys: Iterable[K]) -> None:
    for key in keys:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


def _stale(member: ConsumerMember) -> KafkaError:
    if member.classic is not None:
        return KafkaError(ErrorCode.illegal_generation)
    return KafkaError(ErrorCode.stale_member_epoch)
