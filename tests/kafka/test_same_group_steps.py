"""Requests of group members in each state: Apache Kafka's answers and ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import topic, versions
from tests.kafka.test_same_groups import (
    ASSIGNMENT,
    JOIN,
    METADATA,
    join,
    partitions,
    ready,
    sync,
)

pytestmark = pytest.mark.kafka


def commit(peer: Peer, group: str, name: str, version: int = 9, **fields: Any) -> None:
    told = {
        "group_id": group,
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": name, "partitions": partitions(0, committed_offset=3)}],
        **fields,
    }
    peer.send(ApiKey.OFFSET_COMMIT, version, **told)


def beat(peer: Peer, group: str, member: str, generation: int, **fields: Any) -> None:
    told = {"group_id": group, "member_id": member, "generation_id": generation}
    peer.send(ApiKey.HEARTBEAT, 4, **told, **fields)


def wait_until_it_rebalances(peer: Peer, group: str, member: str) -> None:
    told = {"group_id": group, "member_id": member, "generation_id": 1}
    while True:
        answer = peer.ask(ApiKey.HEARTBEAT, 4, **told)
        if answer.error_code is not ErrorCode.none:
            return


def describe(peer: Peer, group: str) -> None:
    peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])


@same_answers
def test_members_that_may_commit(peer: Peer) -> None:
    name = topic(peer, "who-commits")
    for version in versions(ApiKey.OFFSET_COMMIT):
        group = ready(peer, f"committers-{version}")
        commit(peer, group, name, version)
        member = join(peer, group).member_id
        # Before the assignment, and after it.
        for _ in range(2):
            for fields in (
                {},
                {"member_id": member, "generation_id_or_member_epoch": 1},
                {"member_id": member, "generation_id_or_member_epoch": 0},
                {"member_id": member, "generation_id_or_member_epoch": 2},
                {"member_id": member, "generation_id_or_member_epoch": -1},
                {"member_id": "stranger", "generation_id_or_member_epoch": 1},
                {"member_id": "", "generation_id_or_member_epoch": 1},
            ):
                commit(peer, group, name, version, **fields)
            sync(peer, group, member)
        peer.send(
            ApiKey.LEAVE_GROUP,
            5,
            group_id=group,
            members=[{"member_id": member, "group_instance_id": None}],
        )
        commit(peer, group, name, version)
        mine = {"member_id": member, "generation_id_or_member_epoch": 1}
        commit(peer, group, name, version, **mine)
        everything = [{"group_id": group, "topics": None, "member_epoch": -1}]
        peer.send(ApiKey.OFFSET_FETCH, 8, groups=everything)


@same_answers
def test_a_static_member_is_fenced_wherever_it_turns_up(peer: Peer) -> None:
    name = topic(peer, "fencing")
    group = ready(peer, "fenced")
    old = join(peer, group, group_instance_id="i").member_id
    sync(peer, group, old, group_instance_id="i")
    new = join(peer, group, group_instance_id="i").member_id
    for member, instance in ((old, "i"), (new, "i"), (new, "other"), (new, None)):
        who = {"group_instance_id": instance}
        beat(peer, group, member, 1, **who)
        sync(peer, group, member, **who)
        commit(
            peer,
            group,
            name,
            member_id=member,
            generation_id_or_member_epoch=1,
            **who,
        )
        peer.send(
            ApiKey.JOIN_GROUP,
            9,
            **{**JOIN, "group_id": group, "member_id": member, **who},
        )
    for member, instance in ((old, "i"), (new, "other"), ("", "i"), ("", "i")):
        peer.send(
            ApiKey.LEAVE_GROUP,
            5,
            group_id=group,
            members=[{"member_id": member, "group_instance_id": instance}],
        )
    describe(peer, group)


@same_answers
def test_rebalances_when_a_member_rejoins(peer: Peer) -> None:
    group = ready(peer, "again")
    leader = join(peer, group).member_id
    sync(peer, group, leader)
    told = {**JOIN, "group_id": group, "member_id": leader}
    # The leader always causes a rebalance; other members do with new metadata.
    peer.send(ApiKey.JOIN_GROUP, 9, **told)
    sync(peer, group, leader, generation_id=2)
    sync(peer, group, leader, generation_id=2)
    changed = [{"name": "range", "metadata": METADATA + b"\0"}]
    peer.send(ApiKey.JOIN_GROUP, 9, **{**told, "protocols": changed})
    beat(peer, group, leader, 2)
    beat(peer, group, leader, 3)
    sync(peer, group, leader, generation_id=3)
    two = [{"name": each, "metadata": METADATA} for each in ("sticky", "range")]
    peer.send(ApiKey.JOIN_GROUP, 9, **{**told, "protocols": two})
    sync(peer, group, leader, generation_id=4)
    sync(peer, group, leader, generation_id=4, protocol_name="sticky")
    describe(peer, group)


@same_answers
def test_a_follower_waits_for_its_leader(peer: Peer) -> None:
    group = ready(peer, "following")
    first = join(peer, group).member_id
    sync(peer, group, first)
    fields = {**JOIN, "group_id": group, "member_id": ""}
    second = peer.send(ApiKey.JOIN_GROUP, 9, **fields).member_id
    who = {**fields, "member_id": second}
    peer.start(ApiKey.JOIN_GROUP, 9, connection="second", **who)
    wait_until_it_rebalances(peer, group, first)
    # During the rebalance: requests of the old generation, and early ones of the new.
    name = topic(peer, "during")
    mine = {"member_id": first, "generation_id_or_member_epoch": 1}
    commit(peer, group, name, **mine)
    sync(peer, group, first)
    beat(peer, group, second, 1)
    commit(peer, group, name, member_id=second, generation_id_or_member_epoch=1)
    peer.send(ApiKey.JOIN_GROUP, 9, **{**fields, "member_id": first})
    peer.finish(ApiKey.JOIN_GROUP, 9, "second")
    # The follower's SyncGroup waits; meanwhile the follower may rejoin unchanged.
    told = {
        "generation_id": 2,
        "group_id": group,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "member_id": second,
    }
    peer.start(ApiKey.SYNC_GROUP, 5, connection="second", **told)
    beat(peer, group, second, 2)
    commit(peer, group, name, member_id=first, generation_id_or_member_epoch=2)
    both = [{"member_id": each, "assignment": ASSIGNMENT} for each in (first, second)]
    peer.send(ApiKey.SYNC_GROUP, 5, **{**told, "member_id": first, "assignments": both})
    peer.finish(ApiKey.SYNC_GROUP, 5, "second")
    peer.send(ApiKey.JOIN_GROUP, 9, **who)
    beat(peer, group, second, 2)
    gone = [{"member_id": each, "group_instance_id": None} for each in (first, second)]
    peer.send(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[*gone, *gone])
    describe(peer, group)
    peer.send(ApiKey.DELETE_GROUPS, 2, groups_names=[group, group])


@same_answers
def test_a_member_that_is_silent_is_put_out(peer: Peer) -> None:
    group = ready(peer, "silent")
    short = {"session_timeout": timedelta(seconds=1)}
    member = join(peer, group, **short).member_id
    sync(peer, group, member)
    told = {"group_id": group, "member_id": "x", "generation_id": 1}
    while True:
        answer = peer.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
        if answer.groups[0].group_state == "Empty":
            break
    peer.ask(ApiKey.HEARTBEAT, 4, **told)
    beat(peer, group, member, 1)
    describe(peer, group)
    peer.send(ApiKey.JOIN_GROUP, 9, **{**JOIN, "group_id": group, "member_id": member})


@same_answers
def test_offsets_of_many_groups_at_once(peer: Peer) -> None:
    name = topic(peer, "many", 2)
    for number in range(3):
        commit(peer, ready(peer, f"many-{number}"), name)
    for version in (8, 9):
        for stable in (False, True):
            peer.send(
                ApiKey.OFFSET_FETCH,
                version,
                groups=[
                    {"group_id": f"many-{number}", "topics": wanted, "member_epoch": -1}
                    for number, wanted in enumerate(
                        (
                            None,
                            [{"name": name, "partition_indexes": [1, 0]}],
                            [{"name": name, "partition_indexes": []}],
                            [],
                        )
                    )
                ],
                require_stable=stable,
            )
    for version in versions(ApiKey.FIND_COORDINATOR):
        if version >= 4:
            peer.send(
                ApiKey.FIND_COORDINATOR,
                version,
                key_type=0,
                coordinator_keys=["many-0", "many-1", ""],
            )
