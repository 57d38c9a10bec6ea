"""A member's next step towards its target.

Kafka: ``CurrentAssignmentBuilder``. A member passes through these states:

- UNREVOKED_PARTITIONS: held partitions that the target lacks are being revoked. The
  member stays in its epoch until it reports that it owns none of them.
- UNRELEASED_PARTITIONS: the member is in the target's epoch, with the free partitions
  of its target, and other members still hold some.
- STABLE: the member has all partitions of its target.

Safety depends on two rules. A partition counts as held until its owner reports the
revocation, and is assigned only while no member holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

from broker.groups.consumer.assignors import Assignment
from broker.groups.consumer.members import (
    NOTHING_HELD,
    ConsumerMember,
    Held,
    MemberState,
)
from broker.protocol.errors import ErrorCode, KafkaError

# The partitions that a member owns, as reported; None: not reported.
Owned: TypeAlias = Mapping[UUID, frozenset[int]] | None


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    *,
    owned: Owned,
    subscribed: frozenset[UUID],
    is_held: Callable[[UUID, int], bool],
    has_new_subscription: bool = False,
) -> ConsumerMember:
    """Return the member after its next step, or the same value if there is none.

    ``subscribed`` are its subscribed topics; targets of other topics are ignored.
    ``is_held`` returns whether some member holds a partition. Raises
    FENCED_MEMBER_EPOCH for a member in an unknown state, written by another version.
    """
    state = member.state
    if state is MemberState.UNKNOWN and owned != {}:
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    waits = state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, member.revoking)
    settled = state is MemberState.STABLE and member.epoch == target_epoch
    if waits or settled:
        if has_new_subscription:
            return _without_unsubscribed(member, owned, subscribed)
        return member
    return _next(member, target_epoch, target, owned, subscribed, is_held)


def _owns(owned: Owned, held: Held) -> bool:
    """Return whether the member owns, or may own, some of the partitions."""
    if owned is None:
        return True
    return any(
        not held[topic_id].keys().isdisjoint(partitions)
        for topic_id, partitions in owned.items()
        if topic_id in held
    )


def _without_unsubscribed(
    member: ConsumerMember, owned: Owned, subscribed: frozenset[UUID]
) -> ConsumerMember:
    """Return the member, revoking partitions of unsubscribed topics."""
    dropped = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in subscribed
    }
    if not dropped:
        return member
    assigned = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id in subscribed
    }
    revoking = dict(member.revoking)
    for topic_id, partitions in dropped.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **partitions}
    if _owns(owned, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    return replace(member, previous_epoch=member.epoch, assigned=assigned)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owned: Owned,
    subscribed: frozenset[UUID],
    is_held: Callable[[UUID, int], bool],
) -> ConsumerMember:
    assigned: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    free: dict[UUID, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, frozenset())
        if topic_id not in subscribed:
            wanted = frozenset()
        held = member.assigned.get(topic_id, {})
        given_up = member.revoking.get(topic_id, {})
        kept = {it: epoch for it, epoch in held.items() if it in wanted}
        leaving = {it: epoch for it, epoch in held.items() if it not in wanted}
        coming = []
        for partition in sorted(wanted - kept.keys()):
            # Partitions that the member itself has just revoked are free, too.
            if is_held(topic_id, partition) and partition not in given_up:
                unreleased = True
            else:
                coming.append(partition)
        if kept:
            assigned[topic_id] = kept
        if leaving:
            revoking[topic_id] = leaving
        if coming:
            free[topic_id] = coming
    if revoking and _owns(owned, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    for topic_id, partitions in free.items():
        epochs = dict.fromkeys(partitions, target_epoch)
        assigned[topic_id] = {**assigned.get(topic_id, {}), **epochs}
    return replace(
        member,
        state=(MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE),
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NOTHING_HELD,
    )
