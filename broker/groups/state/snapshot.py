"""Conversion of a group to a record, and of a record to a group.

A record has the data that members need after a restart or a change of coordinator: ids,
timeouts, the metadata for the selected protocol, and the assignment. A group read from
a record is Stable, or Empty if it has no members (``GroupMetadataManager.replay``).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from broker.groups.state.group import Group
from broker.groups.state.group_messages import GroupProtocol
from broker.groups.state.group_records import (
    MEMBERS_PER_STEP,
    GroupValue,
    group_record,
)
from broker.groups.state.roster import Member
from broker.groups.state.transitions import GroupState
from broker.shards.effects import Instant, Record


def group_metadata_record(group: Group, assignments: Mapping[str, bytes]) -> Record:
    """Return the record of the group's generation; missing assignments are empty."""
    value = GroupValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader=group.roster.leader,
        since_ms=group.since_ms,
        members=(),
    )
    name, assigned = group.protocol_name or "", assignments.get
    rows = [
        (member.row(name), assigned(member.member_id, b"")) for member in group.roster
    ]
    return group_record(group.group_id, value, rows)


def building_group(
    group_id: str, value: GroupValue, now: Instant
) -> Generator[None, None, Group]:
    """Build the group of a record, in steps of some members.

    The group has no offsets and no timers.
    """
    group = Group(group_id, now)
    for number, kept in enumerate(value.members, 1):
        protocol = GroupProtocol(value.protocol_name or "", kept.subscription)
        member = Member(
            member_id=kept.member_id,
            instance_id=kept.instance_id,
            client_id=kept.client_id,
            client_host=kept.client_host,
            rebalance_timeout_ms=kept.rebalance_timeout_ms,
            session_timeout_ms=kept.session_timeout_ms,
            protocol_type=value.protocol_type,
            protocols=(protocol,),
            assignment=kept.assignment,
        )
        member.row(protocol.name)
        group.admit(member)
        if not number % MEMBERS_PER_STEP:
            yield
    if group.roster:
        group.state = GroupState.STABLE
        if value.leader is not None and value.leader in group.roster:
            group.roster.leader = value.leader
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol_name
    group.since_ms = value.since_ms
    group.note_topics()
    return group
