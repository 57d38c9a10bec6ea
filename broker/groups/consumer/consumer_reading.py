"""Restore a consumer group from the records of the log.

Kafka: the ``replay`` methods of ``GroupMetadataManager``. The last record of each key
counts. Fields of a missing record have their initial values, and a partition of two
members belongs to the first.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from broker.groups.consumer.assignors import Assignment
from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer.consumer_records import (
    ConsumerKey,
    CurrentValue,
    EpochValue,
    Kind,
    ResolvedRegex,
    TargetEpochValue,
    read_current,
    read_epoch,
    read_member,
    read_regex,
    read_target,
    read_target_epoch,
)
from broker.groups.consumer.members import ConsumerMember, Held

_MEMBERS_PER_STEP = 48
_T = TypeVar("_T")


class FoundConsumerGroup:
    """The records of one group."""

    __slots__ = (
        "_currents",
        "_epoch",
        "_has_topics",
        "_members",
        "_resolved",
        "_target_epoch",
        "_targets",
    )

    def __init__(self) -> None:
        self._epoch: EpochValue | None = None
        self._target_epoch: TargetEpochValue | None = None
        self._members: dict[str, ConsumerMember] = {}
        self._targets: dict[str, Assignment] = {}
        self._currents: dict[str, CurrentValue] = {}
        self._resolved: dict[str, ResolvedRegex] = {}
        self._has_topics = False

    @property
    def exists(self) -> bool:
        """Return whether the group exists at the end of the log."""
        return self._epoch is not None

    def take(self, key: ConsumerKey, value: bytes | None) -> None:
        """Apply a record; raise `UnreadableRecord`."""
        kind, _, name = key
        if kind is Kind.EPOCH:
            self._epoch = None if value is None else read_epoch(value)
        elif kind is Kind.TOPICS:
            self._has_topics = value is not None
        elif kind is Kind.TARGET_EPOCH:
            self._target_epoch = None if value is None else read_target_epoch(value)
        elif kind is Kind.MEMBER:
            _put(
                self._members, name, None if value is None else read_member(name, value)
            )
        elif kind is Kind.TARGET:
            _put(self._targets, name, None if value is None else read_target(value))
        elif kind is Kind.CURRENT:
            _put(self._currents, name, None if value is None else read_current(value))
        else:
            _put(self._resolved, name, None if value is None else read_regex(value))

    def building(self, group_id: str) -> Generator[None, None, ConsumerGroup]:
        """Build the group, in steps of some members."""
        assert self._epoch is not None, group_id
        group = ConsumerGroup(group_id)
        group.journal.is_used = True
        group.epoch, group.topics_hash = self._epoch
        if self._target_epoch is not None:
            made_ms = self._target_epoch.made_ms
            epoch = min(self._target_epoch.epoch, group.epoch)
            group.target_epoch = TargetEpochValue(epoch, made_ms)
        group.resolved = self._resolved
        group.has_topics_record = self._has_topics
        taken: dict[UUID, set[int]] = {}
        for number, (member_id, member) in enumerate(self._members.items(), 1):
            group.put(self._positioned(member, group, taken))
            if member_id in self._targets:
                group.targets[member_id] = self._targets[member_id]
            if not number % _MEMBERS_PER_STEP:
                yield
        return group

    def _positioned(
        self, member: ConsumerMember, group: ConsumerGroup, taken: dict[UUID, set[int]]
    ) -> ConsumerMember:
        current = self._currents.get(member.member_id)
        if current is None:
            return member
        return replace(
            member,
            epoch=min(current.epoch, group.target_epoch.epoch),
            previous_epoch=current.previous_epoch,
            state=current.state,
            assigned=_untaken(current.assigned, taken),
            revoking=_untaken(current.revoking, taken),
        )


def _untaken(held: Held, taken: dict[UUID, set[int]]) -> Held:
    found: dict[UUID, Mapping[int, int]] = {}
    for topic_id, epochs in held.items():
        others = taken.setdefault(topic_id, set())
        own = {it: epoch for it, epoch in epochs.items() if it not in others}
        others |= own.keys()
        if own:
            found[topic_id] = own
    return found


def _put(values: dict[str, _T], name: str, value: _T | None) -> None:
    """Set a value; None removes it, as a tombstone does."""
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
