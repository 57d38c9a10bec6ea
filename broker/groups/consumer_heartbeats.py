"""ConsumerGroupHeartbeat, and the time-outs of members.

Kafka: ``consumerGroupHeartbeat`` of ``GroupMetadataManager``. A heartbeat has three
phases:

1. Store the member's fields; increment the group's epoch if the assignment may change.
2. Compute a target for a new epoch. Heartbeats of other members are served meanwhile,
   by the previous target.
3. Move the member towards its target.

Topics of regular expressions are looked up in the background, in steps. The group
changes at the end of the lookup.
"""

from __future__ import annotations

import base64
import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from logging import getLogger
from typing import Final
from uuid import UUID

from broker.groups.consumer.assignors import (
    ASSIGNORS,
    NOTHING,
    Assignment,
    Subscriber,
)
from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer.consumer_group_messages import (
    ConsumerHeartbeat,
    HeartbeatAnswer,
)
from broker.groups.consumer.consumer_records import (
    Kind,
    ResolvedRegex,
    TargetEpochValue,
    current_record,
    epoch_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from broker.groups.consumer.journal import Then
from broker.groups.consumer.members import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    Held,
    MemberState,
)
from broker.groups.consumer.reconciliation import Owned, reconciled
from broker.groups.consumer.subscribed_topics import ClusterTopics, KnownTopic
from broker.groups.group_shards import GroupShards
from broker.groups.migration import Migration
from broker.groups.rebalance import TimerKey, TimerKind
from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group import Group
from broker.groups.state.group_settings import ConsumerSettings, OwnSettings
from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.patterns import full_matcher
from broker.shards.effects import NS_PER_MS, Effects, Instant, Record
from broker.shards.parked_answer import Waiting
from broker.shards.shard import InSteps
from broker.shards.timers import Timers

logger = getLogger(__name__)

# Members or topics per step.
_PER_STEP: Final = 64
_MEMBER_TIMERS: Final = (
    TimerKind.SESSION,
    TimerKind.REVOCATION,
    TimerKind.CLASSIC_JOIN,
    TimerKind.CLASSIC_SYNC,
)


class Heartbeats:
    """The requests and time-outs of members; ``rng`` generates member ids.

    ``own_settings`` are read at each use, so that changes take effect at the next
    heartbeat.

    ``running`` has the remaining steps of work that no request drives. ``rebalances``
    counts the epochs of groups.
    """

    def __init__(
        self,
        shards: GroupShards,
        timers: Timers[TimerKey],
        topics: ClusterTopics,
        rng: random.Random,
        migration: Migration,
        own_settings: OwnSettings,
    ) -> None:
        self._shards = shards
        self._config = shards.config
        self._default_settings = shards.config.consumer_settings
        self._own_settings = own_settings
        self._timers = timers
        self._topics = topics
        self._rng = rng
        self._migration = migration
        self.running: deque[Iterator[None]] = deque()
        self.rebalances = 0

    # ---- heartbeats -------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerHeartbeat
    ) -> InSteps[Waiting[HeartbeatAnswer]]:
        """Serve a heartbeat, in steps; raise `KafkaError` if it is refused."""
        if request.epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            return self._leave(request)
        found = self._shards.find(request.group_id)
        group = self._group_of(request, found)
        self._require_room(group, request)
        member_id = request.member_id or self.new_member_id()
        former, replaced = self._member_of(group, request, member_id)
        member = _updated(former, request)
        if member.regex and member.regex not in group.regexes():
            full_matcher(member.regex)
        # All checks have passed: the state may change from here on.
        self._enter(group, found)
        if replaced is not None:
            self.replace(group, replaced, former)
        has_new_subscription = self.take_over(group, former, member)
        self._resolve_if_due(group, request)
        yield from self.assign_if_due(group)
        if not self._shards.has(group.group_id, group):
            raise KafkaError(ErrorCode.not_coordinator)
        member = group.member(member_id)
        member = self.reconcile(group, member, request.owned, has_new_subscription)
        settings = self._settings(group)
        self.touch(group, member_id, settings.session_timeout_ms)
        is_shown = request.wants_assignment or member.assigned != former.assigned
        answer = HeartbeatAnswer(
            member_id=member_id,
            epoch=member.epoch,
            interval_ms=settings.heartbeat_interval_ms,
            assigned=member.assigned if is_shown else None,
        )
        return self._answered(group, answer)

    def _settings(self, group: ConsumerGroup) -> ConsumerSettings:
        return self._own_settings(group.group_id) or self._default_settings

    def _answered(
        self, group: ConsumerGroup, answer: HeartbeatAnswer
    ) -> Waiting[HeartbeatAnswer]:
        """Write the group's records; the answer follows once they are in the log."""
        waiting = Waiting[HeartbeatAnswer]()

        def then(error: ErrorCode, effects: Effects) -> None:
            if error is not ErrorCode.none:
                self._migration.keep_records(group)
            refused = HeartbeatAnswer(member_id="", epoch=0, error=error)
            effects.answer(waiting, refused if error is not ErrorCode.none else answer)

        self.write(group, then)
        return waiting

    def write(self, group: ConsumerGroup, then: Then) -> None:
        """Write the unwritten records of a group."""
        effects = Effects()
        group.journal.write(effects, then)
        self._shards.perform(group.group_id, effects)

    def _group_of(
        self, request: ConsumerHeartbeat, found: AnyGroup | None
    ) -> ConsumerGroup:
        if isinstance(found, ConsumerGroup):
            return found
        joins = request.epoch == JOINING_EPOCH
        if found is None and joins:
            return ConsumerGroup(request.group_id)
        if found is None:
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"Consumer group {request.group_id} not found.",
            )
        if isinstance(found, Group) and joins:
            return self._migration.upgraded(found)
        raise KafkaError(
            ErrorCode.group_id_not_found,
            f"Group {request.group_id} is not a consumer group.",
        )

    def _enter(self, group: ConsumerGroup, found: AnyGroup | None) -> None:
        """Add a new group, or replace a group of the classic protocol."""
        if group is found:
            return
        if isinstance(found, Group):
            effects = Effects()
            self._migration.end_classic(found, effects)
            self._shards.put(group)
            self._shards.perform(group.group_id, effects)
            for member in group.members.values():
                assert member.classic is not None, member
                self.touch(group, member.member_id, member.classic.session_timeout_ms)
        else:
            self._shards.put(group)

    def _require_room(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> None:
        bound = self._config.consumer_max_size
        is_member = request.member_id in group.members
        returns = group.static_member(request.instance_id) is not None
        if len(group.members) >= bound and not is_member and not returns:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                "The consumer group has reached its maximum capacity of "
                f"{bound} members.",
            )

    def new_member_id(self) -> str:
        """Return an id in the format of Kafka's ``Uuid``."""
        number = UUID(int=self._rng.getrandbits(128), version=4)
        return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")

    def _member_of(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, member_id: str
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member before the request, and the static member it replaces."""
        joins = request.epoch == JOINING_EPOCH
        if request.instance_id is None:
            if joins and member_id not in group.members:
                return ConsumerMember(member_id=member_id), None
            member = group.member(member_id)
            _require_epoch(member, request)
            return member, None
        owner = group.static_member(request.instance_id)
        if not joins:
            owner = _static(owner, request)
            _require_epoch(owner, request)
            return owner, None
        if owner is None:
            known = group.members.get(member_id)
            return known or ConsumerMember(member_id=member_id), None
        if owner.classic is None and owner.epoch != STATIC_LEAVING_EPOCH:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"Static member {member_id} with instance id {request.instance_id} "
                "cannot join the group because the instance id is owned by "
                f"{owner.member_id} member.",
            )
        return as_replacement(owner, member_id), owner

    # ---- the group's epoch ------------------------------------------------------

    def replace(
        self, group: ConsumerGroup, former: ConsumerMember, member: ConsumerMember
    ) -> None:
        """Replace the former process of a static member."""
        target = group.targets.get(former.member_id, NOTHING)
        self._remove(group, former.member_id)
        group.is_snapshot_void = True
        group.put(member)
        group.targets[member.member_id] = target
        group_id = group.group_id
        group.journal.note(
            member_record(group_id, member),
            target_record(group_id, member.member_id, target),
            current_record(group_id, member),
        )

    def take_over(
        self, group: ConsumerGroup, former: ConsumerMember, member: ConsumerMember
    ) -> bool:
        """Store a member's fields; return whether its subscription has changed."""
        preferred = group.preferred_assignor()
        is_known = former.member_id in group.members
        if not is_known or member.subscription() != former.subscription():
            group.journal.note(member_record(group.group_id, member))
        group.put(member)
        has_new_names = member.topics != former.topics
        has_new_regex = member.regex != former.regex
        if has_new_regex:
            self.drop_unused_regexes(group, (former.regex,))
        is_resolved = not member.regex or member.regex in group.resolved
        if (
            has_new_names
            or (has_new_regex and is_resolved)
            or preferred != group.preferred_assignor()
        ):
            self.bump(group)
        elif group.checked_version != self._topics.version:
            self.bump(group, is_changed=False)
        return has_new_names or has_new_regex

    def bump(self, group: ConsumerGroup, *, is_changed: bool = True) -> None:
        """Increment the epoch if ``is_changed``, or if the hash of topics differs."""
        found = group.compute_hash(self._topics)
        group.checked_version = self._topics.version
        if group.has_topics_record:
            group.has_topics_record = False
            group.journal.note(tombstone(Kind.TOPICS, group.group_id))
        if not is_changed and found == group.topics_hash:
            return
        group.topics_hash = found
        group.epoch += 1
        self.rebalances += 1
        group.journal.note(epoch_record(group.group_id, group.epoch_value()))
        logger.info(
            "consumer group begins an epoch",
            extra=fields(group=group.group_id, epoch=group.epoch),
        )

    def drop_unused_regexes(self, group: ConsumerGroup, regexes: Iterable[str]) -> None:
        """Remove regular expressions without a subscribed member."""
        for regex in regexes:
            if regex and regex not in group.regexes():
                group.journal.note(tombstone(Kind.REGEX, group.group_id, regex))
                group.resolved.pop(regex, None)

    # ---- the target -------------------------------------------------------------

    def assign_if_due(self, group: ConsumerGroup) -> InSteps[None]:
        """Compute the target of a new epoch, after the interval between targets."""
        made_ms = group.target_epoch.made_ms
        waited_ms = self._shards.clock().wall_ms - made_ms
        interval_ms = self._settings(group).assignment_interval_ms
        may = made_ms == 0 or waited_ms >= interval_ms
        is_new = group.epoch > group.target_epoch.epoch
        if is_new and may and not group.is_assigning:
            group.is_assigning, group.is_snapshot_void = True, False
            try:
                yield from self._assign(group)
            finally:
                group.is_assigning = False

    def _assign(self, group: ConsumerGroup) -> InSteps[None]:
        epoch, group_id = group.epoch, group.group_id
        name = group.preferred_assignor() or self._config.consumer_assignors[0]
        known = yield from self._known_topics(group)
        members: list[Subscriber] = []
        for subscriber in group.subscribers(known):
            members.append(subscriber)
            if not len(members) % _PER_STEP:
                yield
        counts = {topic.topic_id: topic.partitions for topic in known.values()}
        computed = yield from ASSIGNORS[name](members, counts)
        changed: list[tuple[str, Assignment, Record]] = []
        for number, (member_id, target) in enumerate(computed.items(), 1):
            if target != group.targets.get(member_id, NOTHING):
                record = target_record(group_id, member_id, target)
                changed.append((member_id, target, record))
            if not number % _PER_STEP:
                yield
        if group.is_snapshot_void or not self._shards.has(group_id, group):
            return
        for member_id, target, record in changed:
            if member_id in group.members:
                group.targets[member_id] = target
                group.journal.note(record)
        now_ms = self._shards.clock().wall_ms
        group.target_epoch = TargetEpochValue(epoch, now_ms)
        group.journal.note(target_epoch_record(group_id, group.target_epoch))
        logger.info(
            "consumer group has a target assignment",
            extra=fields(group=group_id, epoch=epoch, assignor=name),
        )

    def _known_topics(self, group: ConsumerGroup) -> InSteps[dict[str, KnownTopic]]:
        """Return the existing topics of a group."""
        known: dict[str, KnownTopic] = {}
        for number, name in enumerate(group.topic_names(), 1):
            topic = self._topics.find(name)
            if topic is not None:
                known[name] = topic
            if not number % _PER_STEP:
                yield
        return known

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Owned,
        has_new_subscription: bool,
    ) -> ConsumerMember:
        """Move a member towards its target; return its new value."""
        target_epoch = group.target_epoch.epoch
        if not has_new_subscription and member.is_reconciled(target_epoch):
            return member
        after = reconciled(
            member,
            target_epoch,
            group.targets.get(member.member_id, NOTHING),
            owned=owned,
            subscribed=group.topic_ids_of(member, self._topics),
            is_held=group.is_held,
            has_new_subscription=has_new_subscription,
        )
        if after.position() == member.position():
            return member
        group.put(after)
        group.journal.note(current_record(group.group_id, after))
        if after.classic is None:
            self.watch_revocation(group, after)
        return after

    # ---- leaving ----------------------------------------------------------------

    def _leave(self, request: ConsumerHeartbeat) -> Waiting[HeartbeatAnswer]:
        found = self._shards.find(request.group_id)
        if not isinstance(found, ConsumerGroup):
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"Group {request.group_id} is not a consumer group."
                if found is not None
                else f"Group {request.group_id} not found.",
            )
        if request.instance_id is None:
            member = found.member(request.member_id)
        else:
            member = _static(found.static_member(request.instance_id), request)
        answer = HeartbeatAnswer(member_id=member.member_id, epoch=request.epoch)
        is_static = request.instance_id is not None
        if request.epoch == STATIC_LEAVING_EPOCH and is_static:
            waits = replace(
                member,
                epoch=STATIC_LEAVING_EPOCH,
                assigned=_since_ever(member.assigned),
                revoking={},
            )
            found.put(waits)
            found.journal.note(current_record(found.group_id, waits))
            return self._answered(found, answer)
        return self.fence(found, (member,), answer, "it has left")

    def fence(
        self,
        group: ConsumerGroup,
        members: Iterable[ConsumerMember],
        answer: HeartbeatAnswer,
        why: str,
    ) -> Waiting[HeartbeatAnswer]:
        """Remove members; ``answer`` follows once the removal is in the log."""
        leaving = tuple(members)
        for member in leaving:
            logger.info(
                "consumer group loses a member",
                extra=fields(group=group.group_id, member=member.member_id, why=why),
            )
        if self._migration.may_downgrade(group, leaving):
            return self._downgrade(group, leaving, answer)
        self.remove(group, leaving)
        return self._answered(group, answer)

    def _downgrade(
        self,
        group: ConsumerGroup,
        leaving: Iterable[ConsumerMember],
        answer: HeartbeatAnswer,
    ) -> Waiting[HeartbeatAnswer]:
        for member_id in group.members:
            self.cancel(group, member_id)
        classic = self._migration.downgraded(group, {it.member_id for it in leaving})
        self._shards.put(classic)
        waiting = self._answered(group, answer)
        self._migration.begin_classic(classic, self._shards.clock())
        return waiting

    def remove(self, group: ConsumerGroup, members: Iterable[ConsumerMember]) -> None:
        """Remove members and all their records."""
        regexes = []
        for member in members:
            self._remove(group, member.member_id)
            regexes.append(member.regex)
        self.drop_unused_regexes(group, regexes)
        self.bump(group)
        if not group.members:
            group.target_epoch = TargetEpochValue(group.epoch, 0)
            group.journal.note(target_epoch_record(group.group_id, group.target_epoch))

    def _remove(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            group.journal.note(tombstone(kind, group.group_id, member_id))
        group.remove(member_id)
        self.cancel(group, member_id)

    # ---- timers -----------------------------------------------------------------

    def touch(self, group: ConsumerGroup, member_id: str, timeout_ms: int) -> None:
        """Restart a member's session timeout."""
        self.schedule(TimerKind.SESSION, group, member_id, timeout_ms)

    def schedule(
        self, kind: TimerKind, group: ConsumerGroup, member_id: str, timeout_ms: int
    ) -> None:
        """Set a deadline of a member."""
        key = TimerKey(kind, group.group_id, member_id)
        end_ns = self._shards.clock().ns + timeout_ms * NS_PER_MS
        self._timers.schedule(key, end_ns)

    def watch_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the time limit of a member's revocation, or cancel it."""
        key = TimerKey(TimerKind.REVOCATION, group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.schedule(
                TimerKind.REVOCATION,
                group,
                member.member_id,
                member.rebalance_timeout_ms,
            )
        else:
            self._timers.cancel(key)

    def cancel(self, group: ConsumerGroup, member_id: str) -> None:
        """Cancel all deadlines of a member."""
        for kind in _MEMBER_TIMERS:
            self._timers.cancel(TimerKey(kind, group.group_id, member_id))

    def due(self, group: ConsumerGroup, key: TimerKey) -> None:
        """Remove a member whose deadline has passed."""
        member = group.members.get(key.member_id)
        if member is not None:
            answer = HeartbeatAnswer(member_id=key.member_id, epoch=LEAVING_EPOCH)
            self.fence(group, (member,), answer, key.kind.value)

    def revive(self, group: ConsumerGroup, now: Instant) -> Iterator[None]:
        """Start the sessions of a group that was read from the log."""
        session_timeout_ms = self._settings(group).session_timeout_ms
        for number, member in enumerate(tuple(group.members.values()), 1):
            timeout_ms = session_timeout_ms
            if member.classic is not None:
                timeout_ms = member.classic.session_timeout_ms
            else:
                self.watch_revocation(group, member)
            self.touch(group, member.member_id, timeout_ms)
            if not number % _PER_STEP:
                yield

    def unloading(self, group: ConsumerGroup) -> Iterator[Effects]:
        """Cancel the deadlines of a group that another broker coordinates, in steps."""
        for number, member_id in enumerate(tuple(group.members), 1):
            self.cancel(group, member_id)
            if not number % _PER_STEP:
                yield Effects()

    # ---- regular expressions ----------------------------------------------------

    def _resolve_if_due(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> None:
        """Start a lookup of the topics of a group's expressions, if it is due."""
        if not group.regexes() or group.is_resolving:
            return
        since_ms = self._shards.clock().wall_ms - group.last_resolved_ms()
        if since_ms <= self._config.consumer_regex_pause_ms:
            return
        is_due = (
            group.regexes().keys() != group.resolved.keys()
            or group.resolved_version != self._topics.version
            or since_ms > self._config.consumer_regex_refresh_interval_ms
        )
        if is_due:
            group.is_resolving = True
            self.running.append(self._resolving(group, request))
            self._shards.wake()

    def run(self, steps: Iterator[None]) -> None:
        """Run the first step of some work now, and queue the rest."""
        for _ in steps:
            self.running.append(steps)
            self._shards.wake()
            return

    def run_some(self) -> None:
        """Run one step of the first work in the queue."""
        steps = self.running.popleft()
        for _ in steps:
            self.running.append(steps)
            return

    def _resolving(
        self, group: ConsumerGroup, request: ConsumerHeartbeat
    ) -> Iterator[None]:
        try:
            version, now_ms = self._topics.version, self._shards.clock().wall_ms
            found: dict[str, set[str]] = {regex: set() for regex in group.regexes()}
            matchers = [(regex, full_matcher(regex)) for regex in found]
            number = 0
            for name in self._topics.names():
                matching = [regex for regex, matches in matchers if matches(name)]
                number += len(matchers)
                if number >= _PER_STEP:
                    number = 0
                    yield
                if matching and request.may_describe(name):
                    for regex in matching:
                        found[regex].add(name)
            if self._shards.has(group.group_id, group):
                group.resolved_version = version
                self._take_resolved(
                    group,
                    {
                        regex: ResolvedRegex(frozenset(names), version, now_ms)
                        for regex, names in found.items()
                    },
                )
        finally:
            group.is_resolving = False

    def _take_resolved(
        self, group: ConsumerGroup, resolved: dict[str, ResolvedRegex]
    ) -> None:
        is_changed = False
        for regex, value in resolved.items():
            if regex not in group.regexes():
                continue
            former = group.resolved.get(regex)
            is_changed |= value.topics != (former.topics if former else frozenset())
            group.resolved[regex] = value
            group.journal.note(regex_record(group.group_id, regex, value))
        self.bump(group, is_changed=is_changed)
        self.write(group, _nothing)


def _nothing(error: ErrorCode, effects: Effects) -> None:
    pass


def _updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member with the fields of the request."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms
        ),
        topics=member.topics if request.topics is None else request.topics,
        regex=member.regex if request.regex is None else request.regex,
        assignor=request.assignor or member.assignor,
        classic=None,
    )


def as_replacement(member: ConsumerMember, member_id: str) -> ConsumerMember:
    """Return a static member under the id of its new process."""
    return replace(member, member_id=member_id, epoch=0, previous_epoch=0)


def _since_ever(held: Held) -> Held:
    """Return partitions as if they had been assigned in epoch 0.

    The next process of the static member commits with an epoch of its own.
    """
    return {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in held.items()}


def _static(owner: ConsumerMember | None, request: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member of an instance id if it is the sender, else raise."""
    if owner is None:
        raise KafkaError(
            ErrorCode.unknown_member_id,
            f"Instance id {request.instance_id} is unknown.",
        )
    if owner.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {request.member_id} with instance id {request.instance_id} "
            f"was fenced by member {owner.member_id}.",
        )
    return owner


def _require_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's.

    The previous epoch is accepted if all owned partitions are assigned to the member:
    it has missed the last response.
    """
    if request.epoch in (JOINING_EPOCH, member.epoch):
        return
    is_greater = request.epoch > member.epoch
    missed_answer = (
        request.epoch == member.previous_epoch
        and request.owned is not None
        and all(
            partitions <= member.assigned.get(topic_id, {}).keys()
            for topic_id, partitions in request.owned.items()
        )
    )
    if is_greater or not missed_answer:
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The consumer group member has a {'greater' if is_greater else 'smaller'} "
            f"member epoch ({request.epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions "
            "and rejoin.",
        )
