"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the groups' administration."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.group_client import NONE, Client, commit, versions


@pytest.fixture
def client() -> Client:
    return Client()


# ---- members ------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group(client: Client, version: int) -> None:
    answer = client.send(ApiKey.JOIN_GROUP, version)
    if version >= 4:
        assert answer.error_code is ErrorCode.member_id_required
        assert answer.protocol_name == (None if version >= 7 else "")
        member_id = answer.member_id
        answer = client.send(ApiKey.JOIN_GROUP, version, member_id=member_id)
    assert answer.error_code is NONE
    assert answer.member_id == answer.leader
    assert answer.member_id.startswith("app-")
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    (member,) = answer.members
    assert member.metadata == b"\0\0\0\0\0\1\0\1t"
    kept = client.broker.groups.describe("g").roster.members[answer.member_id]
    assert kept.client_host == "/10.0.0.1"
    assert kept.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)
    if version >= 7:
        assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group_refused(client: Client, version: int) -> None:
    answer = client.send(ApiKey.JOIN_GROUP, version, session_timeout=timedelta(0))
    assert answer.error_code is ErrorCode.invalid_session_timeout
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_static_leader_that_comes_back_skips_the_assignment(
    client: Client, version: int, skips: bool
) -> None:
    static = {"group_instance_id": "i"}
    first = client.send(ApiKey.JOIN_GROUP, version, **static)
    client.send(
        ApiKey.SYNC_GROUP,
        5,
        member_id=first.member_id,
        assignments=[(first.member_id, b"a")],
        **static,
    )
    again = client.send(ApiKey.JOIN_GROUP, version, **static)
    assert getattr(again, "skip_assignment", False) == skips
    assert (again.leader == again.member_id) == skips


def test_a_join_is_parked_until_everyone_has_joined(client: Client) -> None:
    member_id = client.stable()
    other = client.join()
    assert other.answer is None
    beat = client.send(ApiKey.HEARTBEAT, 4, member_id=member_id)
    assert beat.error_code is ErrorCode.rebalance_in_progress
    mine = client.send(ApiKey.JOIN_GROUP, 9, member_id=member_id)
    assert other.answer.generation_id == mine.generation_id == 2
    assert len(mine.members) == 2


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync_group(client: Client, version: int) -> None:
    first = client.join()
    second = client.join()
    rejoined = client.send(
        ApiKey.JOIN_GROUP,
        9,
        member_id=first.answer.member_id,
        protocols=[("range", b"changed")],
    )
    leader, follower = rejoined.member_id, second.answer.member_id
    parked = client.start(
        ApiKey.SYNC_GROUP, version, member_id=follower, generation_id=2, assignments=()
    )
    assert parked.answer is None
    own = client.send(
        ApiKey.SYNC_GROUP,
        version,
        member_id=leader,
        generation_id=2,
        assignments=[(leader, b"L"), (follower, b"F")],
    )
    assert (own.error_code, own.assignment) == (NONE, b"L")
    assert (parked.answer.error_code, parked.answer.assignment) == (NONE, b"F")
    if version >= 5:
        assert (own.protocol_type, own.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_the_protocol_is_mandatory_in_sync_group_v5(
    client: Client, missing: str
) -> None:
    fields = {missing: None, "member_id": client.stable(), "assignments": ()}
    answer = client.send(ApiKey.SYNC_GROUP, 5, **fields)
    assert answer.error_code is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(client: Client, version: int) -> None:
    member_id = client.stable()
    assert (
        client.send(ApiKey.HEARTBEAT, version, member_id=member_id).error_code is NONE
    )
    refused = client.send(ApiKey.HEARTBEAT, version, member_id="stranger")
    assert refused.error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group(client: Client, version: int) -> None:
    member_id = client.stable()
    members = [("stranger",), (member_id,)]
    unknown = ErrorCode.unknown_member_id
    if version < 3:
        refused = client.send(ApiKey.LEAVE_GROUP, version, member_id="stranger")
        assert refused.error_code is unknown
        answer = client.send(ApiKey.LEAVE_GROUP, version, member_id=member_id)
    else:
        answer = client.send(ApiKey.LEAVE_GROUP, version, members=members)
        found = [(m.member_id, m.error_code) for m in answer.members]
        assert found == [("stranger", unknown), (member_id, NONE)]
    assert answer.error_code is NONE
    assert len(client.broker.groups.describe("g").roster) == 0


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group_of_no_name(client: Client, version: int) -> None:
    answer = client.send(ApiKey.LEAVE_GROUP, version, group_id="", members=[("m",)])
    assert answer.error_code is ErrorCode.invalid_group_id


# ---- groups -------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe_groups(client: Client, version: int) -> None:
    member_id = client.stable()
    commit(client, "simple")
    named = ("g", "simple", "no such")
    answer = client.send(ApiKey.DESCRIBE_GROUPS, version, groups=named)
    stable, simple, missing = answer.groups
    assert (stable.group_state, stable.protocol_type) == ("Stable", "consumer")
    assert stable.protocol_data == "range"
    (member,) = stable.members
    assert (member.member_id, member.client_id) == (member_id, "app")
    assert (member.client_host, member.member_assignment) == ("/10.0.0.1", b"mine")
    assert member.member_metadata == b"\0\0\0\0\0\1\0\1t"
    assert (simple.group_state, simple.protocol_type) == ("Empty", "")
    # KIP-1043 names the error from version 6 on.
    error = ErrorCode.group_id_not_found if version >= 6 else NONE
    assert (missing.group_state, missing.error_code) == ("Dead", error)
    assert missing.members == ()


def test_describe_groups_reports_the_allowed_operations_when_asked(
    client: Client,
) -> None:
    client.stable()
    for asked, told in ((False, -(2**31)), (True, 0b110101001000)):
        answer = client.send(
            ApiKey.DESCRIBE_GROUPS,
            5,
            groups=("g",),
            include_authorized_operations=asked,
        )
        assert answer.groups[0].authorized_operations == told


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list_groups(client: Client, version: int) -> None:
    client.stable()
    commit(client, "simple")
    answer = client.send(ApiKey.LIST_GROUPS, version)
    found = {(group.group_id, group.protocol_type) for group in answer.groups}
    assert found == {("g", "consumer"), ("simple", "")}
    if version >= 5:
        assert {group.group_type for group in answer.groups} == {"classic"}

    def listed(**filters: tuple[str, ...]) -> set[tuple[str, str]]:
        answer = client.send(ApiKey.LIST_GROUPS, version, **filters)
        return {(group.group_id, group.group_state) for group in answer.groups}

    if version >= 4:
        assert listed(states_filter=("stable",)) == {("g", "Stable")}
        assert listed(states_filter=("Dead",)) == set()
        assert listed(states_filter=("Dead", " Empty ")) == {("simple", "Empty")}
    if version >= 5:
        only = {"states_filter": ("Empty",)}
        assert listed(types_filter=("Classic",), **only) == {("simple", "Empty")}
        assert listed(types_filter=("consumer",)) == set()


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(client: Client, version: int) -> None:
    client.stable()
    commit(client, "simple")
    named = ("g", "simple", "no such", "simple")
    answer = client.send(ApiKey.DELETE_GROUPS, version, groups_names=named)
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        ("g", ErrorCode.non_empty_group),
        ("simple", NONE),
        ("no such", ErrorCode.group_id_not_found),
    ]
