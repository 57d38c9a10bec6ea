"""Conversion of groups from one protocol to the other, with members and offsets.

Kafka: ``convertToConsumerGroup`` and ``convertToClassicGroup`` (KIP-848, "Upgrading to
the new protocol"). A classic group becomes a consumer group when the first member of
the consumer protocol joins. Its members continue: their generation becomes the epoch,
and they keep their partitions. A consumer group becomes classic when its last member of
the consumer protocol leaves, and is rebalanced.

The offsets are the same object before and after. Records of the former protocol are
deleted in the batch that writes the new group.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer.consumer_records import (
    TargetEpochValue,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from broker.groups.consumer.members import ClassicProtocols, ConsumerMember, Held
from broker.groups.consumer.subscribed_topics import ClusterTopics
from broker.groups.group_shards import GroupShards
from broker.groups.rebalance import Rebalance
from broker.groups.state.classic_consumer_messages import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from broker.groups.state.group import Group, join_refusal
from broker.groups.state.group_messages import CONSUMER_PROTOCOL_TYPE, SyncAnswer
from broker.groups.state.roster import Member, Roster
from broker.groups.state.snapshot import group_metadata_record
from broker.groups.state.transitions import GroupState
from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.effects import Effects, Instant


class Migration:
    """Creates groups of the other protocol; the callers replace the former ones."""

    def __init__(
        self, shards: GroupShards, rebalance: Rebalance, topics: ClusterTopics
    ) -> None:
        self._shards = shards
        self._config = shards.config
        self._rebalance = rebalance
        self._topics = topics

    # ---- to a consumer group ----------------------------------------------------

    def upgraded(self, classic: Group) -> ConsumerGroup:
        """Convert a classic group to a consumer group; raise if that is not allowed."""
        group = ConsumerGroup(classic.group_id)
        group.offsets = classic.offsets
        if classic.is_stored():
            group.journal.note(*classic.tombstones())
        if classic.state is GroupState.EMPTY:
            return group
        self._require_upgradable(classic)
        group.epoch = classic.generation
        group.target_epoch = TargetEpochValue(classic.generation, 0)
        taken: dict[UUID, set[int]] = {}
        for member in classic.roster:
            self._upgrade_member(classic, group, member, taken)
        group.topics_hash = group.compute_hash(self._topics)
        self._note_all(group)
        return group

    def _require_upgradable(self, classic: Group) -> None:
        reason = None
        if not self._config.consumer_migration_policy.upgrades:
            reason = "online upgrade is disabled"
        elif classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            reason = "the group does not use the consumer embedded protocol"
        elif len(classic.roster) > self._config.consumer_max_size:
            reason = "the group size exceeds the consumer group maximum size"
        if reason is not None:
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"Cannot upgrade classic group {classic.group_id} to consumer group "
                f"because {reason}.",
            )

    def _upgrade_member(
        self,
        classic: Group,
        group: ConsumerGroup,
        member: Member,
        taken: dict[UUID, set[int]],
    ) -> None:
        name = classic.protocol_name or classic.roster.select_protocol()
        protocols = {each.name: each for each in member.protocols}
        metadata = protocols[name].metadata if name in protocols else b""
        subscription = read_subscription(metadata)
        partitions = read_assignment(member.assignment)
        if subscription is None or partitions is None:
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"Cannot upgrade the classic group {classic.group_id} to consumer "
                "group because the embedded consumer protocol is malformed.",
            )
        assigned: dict[UUID, dict[int, int]] = {}
        for topic_name, indexes in partitions.items():
            topic = self._topics.find(topic_name)
            if topic is None:
                continue
            others = taken.setdefault(topic.topic_id, set())
            own = indexes - others
            others |= own
            if own:
                assigned[topic.topic_id] = dict.fromkeys(own, classic.generation)
        upgraded = ConsumerMember(
            member_id=member.member_id,
            epoch=classic.generation,
            previous_epoch=classic.generation,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topics=subscription.topics,
            assigned=assigned,
            classic=ClassicProtocols(
                session_timeout_ms=member.session_timeout_ms,
                protocols=member.protocols,
            ),
        )
        group.put(upgraded)
        group.targets[member.member_id] = {
            topic_id: frozenset(epochs) for topic_id, epochs in assigned.items()
        }

    def _note_all(self, group: ConsumerGroup) -> None:
        group_id, note = group.group_id, group.journal.note
        members = group.members.values()
        note(*(member_record(group_id, member) for member in members))
        note(epoch_record(group_id, group.epoch_value()))
        for member_id, target in group.targets.items():
            note(target_record(group_id, member_id, target))
        note(target_epoch_record(group_id, group.target_epoch))
        note(*(current_record(group_id, member) for member in members))

    def end_classic(self, classic: Group, effects: Effects) -> None:
        """Answer all parked requests of a classic group, and cancel its deadlines."""
        rebalancing = ErrorCode.rebalance_in_progress
        for member in classic.roster:
            refusal = join_refusal(member.member_id, rebalancing)
            effects.answer(member.joining, refusal)
            effects.answer(member.syncing, SyncAnswer(error=rebalancing))
            member.joining = member.syncing = None
            self._rebalance.end_session(classic, member.member_id)
        for member_id in classic.roster.pending:
            self._rebalance.end_session(classic, member_id)
        self._rebalance.cancel_deadlines(classic)
        classic.roster = Roster()
        classic.move_to(GroupState.DEAD, self._shards.clock())

    # ---- to a classic group -----------------------------------------------------

    def may_downgrade(
        self, group: ConsumerGroup, leaving: Collection[ConsumerMember]
    ) -> bool:
        """Return whether only classic members remain, and a downgrade is allowed."""
        staying = len(group.members) - len(leaving)
        return (
            staying > 0
            and group.classic_count == staying
            and all(member.classic is None for member in leaving)
            and self._config.consumer_migration_policy.downgrades
            and staying <= self._config.group_max_size
        )

    def may_downgrade_with(
        self, group: ConsumerGroup, replaced: ConsumerMember
    ) -> bool:
        """Return whether the group may become classic when a member is replaced."""
        return (
            replaced.classic is None
            and group.classic_count == len(group.members) - 1
            and self._config.consumer_migration_policy.downgrades
            and len(group.members) <= self._config.group_max_size
        )

    def downgraded(
        self,
        group: ConsumerGroup,
        leaving: Collection[str],
        *,
        replaced_by: ConsumerMember | None = None,
    ) -> Group:
        """Convert a consumer group to a classic group.

        ``replaced_by`` replaces the static member in ``leaving``.
        """
        classic = Group(group.group_id, self._shards.clock())
        classic.offsets = group.offsets
        members = [it for it in group.members.values() if it.member_id not in leaving]
        targets = {it.member_id: self._target_of(group, it) for it in members}
        if replaced_by is not None:
            (former,) = leaving
            former_member = group.members[former]
            targets[replaced_by.member_id] = self._target_of(
                group, former_member, speaks_as=replaced_by
            )
            members.append(replaced_by)
        for member in members:
            classic.admit(_classic_member(member, targets[member.member_id]))
        classic.state, classic.previous = GroupState.STABLE, GroupState.STABLE
        classic.generation = group.epoch
        classic.protocol_name = classic.roster.select_protocol()
        classic.note_topics()
        group.journal.note(*group.tombstones())
        group.journal.note(group_metadata_record(classic, targets))
        return classic

    def _target_of(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        speaks_as: ConsumerMember | None = None,
    ) -> bytes:
        held: Held | dict[UUID, frozenset[int]] = dict(
            group.targets.get(member.member_id, {})
        )
        return self.classic_assignment(speaks_as or member, held)

    def classic_assignment(
        self, member: ConsumerMember, held: Held | dict[UUID, frozenset[int]]
    ) -> bytes:
        """Return partitions as an assignment in the classic protocol's format."""
        assert member.classic is not None, member
        metadata = member.classic.protocols[0].metadata
        version = max(int.from_bytes(metadata[:2], "big", signed=True), 0)
        named = {self._topics.name(topic_id): held[topic_id] for topic_id in held}
        return assignment_bytes(
            version,
            {name: sorted(named[name]) for name in sorted(filter(None, named))},
        )

    def begin_classic(
        self, classic: Group, now: Instant, *, rebalances: bool = True
    ) -> None:
        """Start the sessions of a classic group's members, and a rebalance."""
        for member in classic.roster:
            self._rebalance.touch(classic, member, now)
        if rebalances:
            effects = Effects()
            self._rebalance.prepare(classic, effects, now)
            self._shards.perform(classic.group_id, effects)

    def emptied(self, group: ConsumerGroup) -> Group:
        """Convert an empty consumer group to a classic group."""
        classic = Group(group.group_id, self._shards.clock())
        classic.offsets = group.offsets
        if group.is_stored():
            group.journal.note(*group.tombstones())
        return classic

    def keep_records(self, group: ConsumerGroup) -> None:
        """Keep the unwritten records of a group that has been converted."""
        group_id = group.group_id
        shard = self._shards.by_partition.get(self._shards.partition(group_id))
        current = None if shard is None else shard.by_id.get(group_id)
        if current is not None and current is not group:
            self._shards.owe(group.group_id, group.journal.take())


def _classic_member(member: ConsumerMember, assignment: bytes) -> Member:
    assert member.classic is not None, member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=member.classic.protocols,
        assignment=assignment,
    )
