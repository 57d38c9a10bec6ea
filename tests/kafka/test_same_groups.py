"""Groups and their offsets: Apache Kafka's answers and ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import topic, versions

pytestmark = pytest.mark.kafka

METADATA, ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\0", b"\0\0\0\0\0\0\0\0\0\0"
JOIN: dict[str, Any] = {
    "session_timeout": timedelta(seconds=10),
    "rebalance_timeout": timedelta(seconds=10),
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": METADATA}],
    "group_instance_id": None,
    "reason": "test",
}


def ready(peer: Peer, group: str) -> str:
    """Wait until the group's coordinator has been found and has loaded."""
    while True:
        found = peer.ask(ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
        if found.error_code is ErrorCode.none:
            answer = peer.ask(ApiKey.HEARTBEAT, 4, group_id=group, member_id="x")
            if answer.error_code is ErrorCode.unknown_member_id:
                return group


def join(peer: Peer, group: str, version: int = 9, **fields: Any) -> Any:
    """Join a group; if a member id is required, use the assigned one."""
    fields = {**JOIN, "group_id": group, "member_id": "", **fields}
    answer = peer.send(ApiKey.JOIN_GROUP, version, **fields)
    if answer.error_code is ErrorCode.member_id_required:
        fields["member_id"] = answer.member_id
        answer = peer.send(ApiKey.JOIN_GROUP, version, **fields)
    return answer


def sync(peer: Peer, group: str, member: str, version: int = 5, **fields: Any) -> None:
    assignments = [{"member_id": member, "assignment": ASSIGNMENT}]
    told = {
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": assignments,
        **fields,
    }
    peer.send(ApiKey.SYNC_GROUP, version, group_id=group, member_id=member, **told)


@same_answers
def test_find_coordinator(peer: Peer) -> None:
    ready(peer, "sought")
    for version in versions(ApiKey.FIND_COORDINATOR):
        for key, kind in (("sought", 0), ("", 0), ("sought", 7)):
            peer.send(
                ApiKey.FIND_COORDINATOR,
                version,
                key=key,
                coordinator_keys=[key],
                key_type=kind,
            )


@same_answers
def test_life_of_a_group_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.JOIN_GROUP):
        group = ready(peer, f"life-{version}")
        member = join(peer, group, version).member_id
        peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
        sync(peer, group, member, min(version, 5))
        who = {"group_id": group, "member_id": member}
        for beat in versions(ApiKey.HEARTBEAT):
            peer.send(ApiKey.HEARTBEAT, beat, generation_id=1, **who)
        peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
        leave = min(version, 5)
        identity = {"member_id": member, "group_instance_id": None}
        peer.send(ApiKey.LEAVE_GROUP, leave, members=[identity], **who)
        peer.send(ApiKey.LEAVE_GROUP, leave, members=[identity], **who)
        peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])


@same_answers
def test_refused_joins(peer: Peer) -> None:
    group = ready(peer, "refused")
    for version in (3, 5, 9):
        for fields in (
            {"group_id": ""},
            {"session_timeout": timedelta(milliseconds=10)},
            {"session_timeout": timedelta(days=2)},
            {"member_id": "stranger"},
            {"protocol_type": ""},
            {"protocols": []},
            {"group_id": group, "member_id": "stranger", "group_instance_id": "i"},
        ):
            peer.send(
                ApiKey.JOIN_GROUP,
                version,
                **{**JOIN, "group_id": group, "member_id": "", **fields},
            )
    join(peer, group)
    other = {"protocol_type": "connect"}
    peer.send(
        ApiKey.JOIN_GROUP, 9, **{**JOIN, "group_id": group, "member_id": "", **other}
    )
    protocols = [{"name": "other", "metadata": METADATA}]
    peer.send(
        ApiKey.JOIN_GROUP,
        9,
        **{**JOIN, "group_id": group, "member_id": "", "protocols": protocols},
    )


@same_answers
def test_members_that_are_not_what_they_say(peer: Peer) -> None:
    group = ready(peer, "strangers")
    member = join(peer, group).member_id
    for version in versions(ApiKey.SYNC_GROUP):
        for fields in (
            {"group_id": "unknown-group"},
            {"member_id": "stranger"},
            {"generation_id": 9},
            {"generation_id": -1},
            {"protocol_name": "other"},
            {"protocol_type": "other"},
            {"group_instance_id": "instance"},
            {"group_id": ""},
        ):
            told = {
                "group_id": group,
                "member_id": member,
                "generation_id": 1,
                "protocol_type": "consumer",
                "protocol_name": "range",
                **fields,
            }
            if set(fields) & {"protocol_name", "protocol_type"} and version < 5:
                continue
            if "group_instance_id" in fields and version < 3:
                continue
            peer.send(ApiKey.SYNC_GROUP, version, **told)
    sync(peer, group, member)
    for version in versions(ApiKey.HEARTBEAT):
        for fields in (
            {"group_id": "unknown-group"},
            {"group_id": ""},
            {"member_id": "stranger"},
            {"member_id": ""},
            {"generation_id": 0},
            {"generation_id": 9},
            {"group_instance_id": "instance"} if version >= 3 else {},
        ):
            told = {"group_id": group, "member_id": member, "generation_id": 1}
            peer.send(ApiKey.HEARTBEAT, version, **{**told, **fields})
    for version in versions(ApiKey.LEAVE_GROUP):
        strangers = [
            {"member_id": "stranger", "group_instance_id": None},
            {"member_id": "", "group_instance_id": "instance"},
        ]
        for group_id in (group, "unknown-group", ""):
            peer.send(
                ApiKey.LEAVE_GROUP,
                version,
                group_id=group_id,
                member_id="stranger",
                members=strangers,
            )


@same_answers
def test_a_static_member_comes_back(peer: Peer) -> None:
    group = ready(peer, "static")
    first = join(peer, group, group_instance_id="i").member_id
    sync(peer, group, first, group_instance_id="i")
    second = join(peer, group, group_instance_id="i").member_id
    for member in (first, second):
        peer.send(
            ApiKey.HEARTBEAT,
            4,
            group_id=group,
            member_id=member,
            group_instance_id="i",
            generation_id=1,
        )
    sync(peer, group, second, group_instance_id="i")
    sync(peer, group, first, group_instance_id="i")
    peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    gone = [{"member_id": "", "group_instance_id": "i"}]
    peer.send(ApiKey.LEAVE_GROUP, 5, group_id=group, members=gone)


@same_answers
def test_a_second_member_makes_the_group_rebalance(peer: Peer) -> None:
    group = ready(peer, "pair")
    first = join(peer, group).member_id
    sync(peer, group, first)
    fields = {**JOIN, "group_id": group, "member_id": ""}
    answer = peer.send(ApiKey.JOIN_GROUP, 9, **fields)
    second = answer.member_id
    peer.start(
        ApiKey.JOIN_GROUP, 9, connection="second", **{**fields, "member_id": second}
    )
    beat = {"group_id": group, "member_id": first, "generation_id": 1}
    while True:
        told = peer.ask(ApiKey.HEARTBEAT, 4, **beat)
        if told.error_code is not ErrorCode.none:
            break
    peer.send(ApiKey.HEARTBEAT, 4, **beat)
    peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    peer.send(ApiKey.JOIN_GROUP, 9, **{**fields, "member_id": first})
    peer.finish(ApiKey.JOIN_GROUP, 9, "second")
    peer.send(ApiKey.HEARTBEAT, 4, **beat)
    told = {
        "generation_id": 2,
        "group_id": group,
        "protocol_type": "consumer",
        "protocol_name": "range",
    }
    peer.start(ApiKey.SYNC_GROUP, 5, connection="second", **told, member_id=second)
    both = [{"member_id": each, "assignment": ASSIGNMENT} for each in (first, second)]
    peer.send(ApiKey.SYNC_GROUP, 5, **told, member_id=first, assignments=both)
    peer.finish(ApiKey.SYNC_GROUP, 5, "second")
    peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])


def partitions(*indexes: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"partition_index": index, **fields} for index in indexes]


@same_answers
def test_offsets_are_committed_and_fetched(peer: Peer) -> None:
    name = topic(peer, "committed", 2)
    group = ready(peer, "committing")
    committed = {
        "committed_offset": 7,
        "committed_leader_epoch": 0,
        "committed_metadata": "m",
    }
    for version in versions(ApiKey.OFFSET_COMMIT):
        for fields in (
            {},
            {"member_id": "stranger"},
            {"generation_id_or_member_epoch": 3},
            {"group_id": ""},
        ):
            told = {
                "group_id": group,
                "member_id": "",
                "generation_id_or_member_epoch": -1,
                "topics": [
                    {"name": name, "partitions": partitions(0, 5, **committed)},
                    {"name": "nowhere", "partitions": partitions(0, **committed)},
                ],
                **fields,
            }
            peer.send(ApiKey.OFFSET_COMMIT, version, **told)
    large = {**committed, "committed_metadata": "m" * 5000}
    peer.send(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=group,
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[{"name": name, "partitions": partitions(1, **large)}],
    )
    for version in versions(ApiKey.OFFSET_FETCH):
        for wanted in (
            [
                {"name": name, "partition_indexes": [0, 1, 5]},
                {"name": "nowhere", "partition_indexes": [0]},
            ],
            None,
            [],
        ):
            if wanted is None and version < 2:
                continue
            for each in (group, "unknown-group", ""):
                peer.send(
                    ApiKey.OFFSET_FETCH,
                    version,
                    group_id=each,
                    topics=wanted,
                    groups=[{"group_id": each, "topics": wanted, "member_epoch": -1}],
                )


@same_answers
def test_groups_are_listed_described_and_deleted(peer: Peer) -> None:
    name = topic(peer, "grouped", 2)
    group = ready(peer, "listed")
    member = join(peer, group).member_id
    sync(peer, group, member)
    commit = {
        "group_id": group,
        "member_id": member,
        "generation_id_or_member_epoch": 1,
        "topics": [{"name": name, "partitions": partitions(0, 1, committed_offset=3)}],
    }
    peer.send(ApiKey.OFFSET_COMMIT, 9, **commit)
    for version in versions(ApiKey.LIST_GROUPS):
        for states in ([], ["Stable"], ["Dead"], ["stable"]):
            for types in ([], ["classic"], ["consumer"]):
                if (states and version < 4) or (types and version < 5):
                    continue
                answer = peer.ask(
                    ApiKey.LIST_GROUPS,
                    version,
                    states_filter=states,
                    types_filter=types,
                )
                mine = [each for each in answer.groups if each.group_id == group]
                peer.note(f"LIST_GROUPS v{version}", [str(each) for each in mine])
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        for asked in (False, True):
            peer.send(
                ApiKey.DESCRIBE_GROUPS,
                version,
                groups=[group, "unknown-group", ""],
                include_authorized_operations=asked and version >= 3,
            )
    deletion = {
        "group_id": group,
        "topics": [{"name": name, "partitions": partitions(0, 5)}],
    }
    peer.send(ApiKey.OFFSET_DELETE, 0, **deletion)
    peer.send(ApiKey.OFFSET_DELETE, 0, **{**deletion, "group_id": "unknown-group"})
    names = [group, "unknown-group", ""]
    for version in versions(ApiKey.DELETE_GROUPS):
        peer.send(ApiKey.DELETE_GROUPS, version, groups_names=names)
    gone = [{"member_id": member, "group_instance_id": None}]
    peer.send(ApiKey.LEAVE_GROUP, 5, group_id=group, members=gone)
    peer.send(ApiKey.OFFSET_DELETE, 0, **deletion)
    peer.send(ApiKey.DELETE_GROUPS, 2, groups_names=names)
    peer.send(ApiKey.DELETE_GROUPS, 2, groups_names=names)
