"""Committed offsets: permission to commit, visibility, expiry and deletion."""

from __future__ import annotations

import pytest

from broker.groups.committed_offsets import CommitRequest, FetchedOffset, Position
from broker.groups.state.group_messages import MemberIdentity
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
WEEK_MS = 7 * 24 * 3_600_000
NONE = ErrorCode.none


def fails_with(code: ErrorCode):
    return pytest.raises(KafkaError, match=code.name)


def commit_held(world, offset: int):
    """Send a commit whose append is held back."""
    target = TopicPartition(*T0)
    return world.coordinator.offsets.commit(
        CommitRequest(
            group_id="g",
            member_id="",
            generation=-1,
            instance_id=None,
            retention_ms=-1,
            positions={target: Position(offset, -1, None)},
        )
    )


# ---- commit and fetch ---------------------------------------------------------------


def test_committed_offsets_are_fetched(world) -> None:
    assert world.commit({T0: 10, T1: 20}) == {T0: NONE, T1: NONE}
    fetched = world.coordinator.offsets.fetch(
        "g", [TopicPartition(*T1), TopicPartition(*U0)], require_stable=False
    )
    assert fetched == {
        T1: FetchedOffset(20, 5, "m", NONE),
        U0: FetchedOffset(-1, -1, "", NONE),
    }
    assert world.fetched() == {T0: 10, T1: 20}
    assert world.coordinator.statistics().counters.offset_commits == 2


def test_a_group_that_is_not_there_has_no_offsets(world) -> None:
    target = TopicPartition(*T0)
    fetch = world.coordinator.offsets.fetch
    assert fetch("g", [target], require_stable=True) == {target: FetchedOffset()}
    assert world.fetched() == {}
    assert world.coordinator.statistics().groups == 0


def test_offsets_without_a_member_make_a_simple_group(world) -> None:
    world.commit({T0: 1})
    assert (world.state, world.group.protocol_type) == ("Empty", None)


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        (None, 1, None),
        (None, 0, ErrorCode.illegal_generation),
        (None, 2, ErrorCode.illegal_generation),
        (None, -1, ErrorCode.illegal_generation),
        ("", -1, ErrorCode.unknown_member_id),
        ("stranger", 1, ErrorCode.unknown_member_id),
    ],
)
def test_only_members_of_this_generation_commit_to_a_group_with_members(
    world, member, generation, error
) -> None:
    (own,) = world.form(1)
    member = own if member is None else member
    if error is None:
        assert world.commit({T0: 1}, member, generation) == {T0: NONE}
        return
    with fails_with(error):
        world.commit({T0: 1}, member, generation)
    assert world.fetched() == {}


def test_members_still_commit_while_others_join(world) -> None:
    leader, follower = world.form(2)
    world.join(leader)
    assert world.commit({T0: 3}, follower, 1) == {T0: NONE}


def test_no_member_commits_between_join_and_sync(world) -> None:
    joined = world.join()
    world.advance(3_000)
    with fails_with(ErrorCode.rebalance_in_progress):
        world.commit({T0: 1}, joined.answer().member_id, 1)


def test_members_of_an_emptied_group_cannot_commit(world) -> None:
    (member,) = world.form(1)
    world.coordinator.leave("g", [MemberIdentity(member)])
    with fails_with(ErrorCode.unknown_member_id):
        world.commit({T0: 1}, member, 1)
    assert world.commit({T0: 1}) == {T0: NONE}


@pytest.mark.parametrize(
    "error", [ErrorCode.illegal_generation, ErrorCode.group_id_not_found]
)
def test_a_member_of_an_unknown_group_gets_the_error_of_its_version(
    world, error
) -> None:
    with fails_with(error):
        world.commit({T0: 1}, "m", 1, missing_group_error=error)
    assert world.coordinator.statistics().groups == 0


def test_metadata_that_is_too_long_fails_for_its_partition_alone(make_world) -> None:
    world = make_world(offset_metadata_max_bytes=4)
    positions = {
        TopicPartition(*T0): Position(1, -1, "12345"),
        TopicPartition(*T1): Position(2, -1, "1234"),
        TopicPartition(*U0): Position(3, -1, None),
    }
    outcome = world.commit({}, positions=positions)
    assert outcome == {T0: ErrorCode.offset_metadata_too_large, T1: NONE, U0: NONE}
    assert world.fetched() == {T1: 2, U0: 3}


def test_a_commit_of_nothing_is_answered_and_leaves_nothing(world) -> None:
    assert world.commit({}) == {}
    assert world.coordinator.statistics().groups == 0


def test_a_commit_is_shown_when_it_is_in_the_log(world) -> None:
    world.commit({T0: 1})
    world.log.hold = True
    waiting = commit_held(world, 2)
    target = TopicPartition(*T0)
    fetch = world.coordinator.offsets.fetch
    assert not waiting.answered
    assert fetch("g", [target], require_stable=False)[target].offset == 1
    unstable = fetch("g", [target], require_stable=True)[target]
    assert unstable == FetchedOffset(error=ErrorCode.unstable_offset_commit)
    world.log.release()
    assert waiting.answer() == {target: NONE}
    assert fetch("g", [target], require_stable=True)[target].offset == 2


def test_commits_take_effect_in_the_order_of_the_log(world) -> None:
    world.log.hold = True
    first, second = commit_held(world, 1), commit_held(world, 2)
    world.log.release()
    assert first.answered
    assert world.fetched() == {T0: 1}
    world.log.release()
    assert second.answered
    assert world.fetched() == {T0: 2}


def test_a_commit_that_cannot_be_stored_is_not_shown(world) -> None:
    world.commit({T0: 1})
    world.log.fail_with = ErrorCode.not_enough_replicas
    unavailable = ErrorCode.coordinator_not_available
    assert world.commit({T0: 2, T1: 2}) == {T0: unavailable, T1: unavailable}
    assert world.fetched() == {T0: 1}


def test_a_first_commit_that_cannot_be_stored_leaves_no_group(world) -> None:
    world.log.fail_with = ErrorCode.kafka_storage_error
    assert world.commit({T0: 2}) == {T0: ErrorCode.not_coordinator}
    assert world.coordinator.statistics().groups == 0


# ---- expiry -------------------------------------------------------------------------


def test_offsets_of_a_simple_group_expire_a_week_after_their_commit(world) -> None:
    world.commit({T0: 1})
    world.advance(WEEK_MS // 2)
    world.commit({T1: 1})
    world.advance(WEEK_MS // 2 - 1)
    assert world.fetched() == {T0: 1, T1: 1}
    world.advance(600_000)
    assert world.fetched() == {T1: 1}
    world.advance(WEEK_MS)
    assert world.coordinator.describe("g") is None
    assert world.coordinator.statistics().counters.offset_expirations == 2


def test_offsets_of_a_group_expire_a_week_after_it_became_empty(world) -> None:
    (member,) = world.form(1, session_timeout_ms=1_800_000)
    world.commit({T0: 1}, member, 1)
    for _ in range(WEEK_MS // 1_000_000 + 2):
        world.advance(1_000_000)
        world.heartbeat(member, 1)
    assert world.fetched() == {T0: 1}
    world.coordinator.leave("g", [MemberIdentity(member)])
    world.advance(WEEK_MS - 1)
    assert world.fetched() == {T0: 1}
    world.advance(600_000)
    assert world.coordinator.describe("g") is None


def test_a_stable_group_loses_offsets_of_topics_nobody_subscribes_to(world) -> None:
    (member,) = world.form(1, session_timeout_ms=1_800_000)
    world.commit({T0: 1, U0: 1}, member, 1)
    for _ in range(WEEK_MS // 1_000_000 + 2):
        world.advance(1_000_000)
        world.heartbeat(member, 1)
    assert world.fetched() == {T0: 1}


def test_offsets_of_a_group_whose_topics_are_unknown_stay(world) -> None:
    (member,) = world.form(1, session_timeout_ms=1_800_000, protocol_type="connect")
    world.commit({T0: 1}, member, 1)
    for _ in range(WEEK_MS // 1_000_000 + 2):
        world.advance(1_000_000)
        world.heartbeat(member, 1)
    assert world.fetched() == {T0: 1}


def test_a_retention_of_its_own_outlives_and_undercuts_the_brokers(world) -> None:
    world.commit({T0: 1}, retention_ms=2 * WEEK_MS)
    world.commit({T1: 1}, retention_ms=1_000)
    world.advance(600_000)
    assert world.fetched() == {T0: 1}
    world.advance(2 * WEEK_MS - 600_001)
    assert world.fetched() == {T0: 1}
    world.advance(600_001)
    assert world.fetched() == {}


def test_an_empty_group_without_offsets_is_cleaned_up(world) -> None:
    (member,) = world.form(1)
    world.coordinator.leave("g", [MemberIdentity(member)])
    world.advance(600_000)
    assert world.coordinator.describe("g") is None


def test_a_commit_under_way_keeps_the_group(world) -> None:
    world.commit({T0: 1})
    world.log.hold = True
    world.advance(WEEK_MS + 600_000 - 1)
    waiting = commit_held(world, 2)
    while world.log.held:
        world.log.release()
    assert waiting.answered
    assert world.fetched() == {T0: 2}


def test_a_cleanup_that_finds_nothing_to_do_writes_nothing(world) -> None:
    """A tombstone of a live group would remove the group at the next start."""
    (member,) = world.form(1, session_timeout_ms=1_800_000)
    world.commit({T0: 1, T1: 1}, group_id="simple")
    before = {number: list(it) for number, it in world.log.partitions.items()}
    world.advance(1_500_000)
    assert world.log.partitions == before
    world.start()
    assert world.heartbeat(member, 1) is NONE


def test_a_group_of_which_some_offsets_expire_is_there_after_a_start(world) -> None:
    (member,) = world.form(1)
    world.coordinator.leave("g", [MemberIdentity(member)])
    world.commit({T0: 1}, retention_ms=1_000)
    world.commit({T1: 1}, retention_ms=WEEK_MS)
    world.advance(600_000)
    assert world.fetched() == {T1: 1}
    world.start()
    assert world.fetched() == {T1: 1}
    assert (world.group.generation, world.group.protocol_type) == (2, "consumer")


# ---- deletion -----------------------------------------------------------------------


def delete(world, *targets):
    wanted = [TopicPartition(*target) for target in targets]
    return dict(world.coordinator.offsets.delete("g", wanted).answer())


def test_offsets_are_deleted_one_by_one(world) -> None:
    world.commit({T0: 1, T1: 1})
    assert delete(world, T0, U0) == {T0: NONE, U0: NONE}
    assert world.fetched() == {T1: 1}
    assert world.coordinator.statistics().counters.offset_deletions == 1


def test_offsets_of_a_topic_in_use_cannot_be_deleted(world) -> None:
    (member,) = world.form(1)
    world.commit({T0: 1, U0: 1}, member, 1)
    in_use = ErrorCode.group_subscribed_to_topic
    assert delete(world, T0, U0) == {T0: in_use, U0: NONE}
    assert world.fetched() == {T0: 1}


def test_a_deletion_that_finds_nothing_to_delete_is_answered(world) -> None:
    (member,) = world.form(1)
    world.commit({T0: 1}, member, 1)
    in_use = ErrorCode.group_subscribed_to_topic
    assert delete(world, T0) == {T0: in_use}
    assert delete(world, U0) == {U0: NONE}
    assert delete(world) == {}


def test_offsets_of_members_that_are_no_consumers_cannot_be_deleted(world) -> None:
    world.form(1, protocol_type="connect")
    with fails_with(ErrorCode.non_empty_group):
        delete(world, T0)


def test_offsets_of_no_group_cannot_be_deleted(world) -> None:
    with fails_with(ErrorCode.group_id_not_found):
        delete(world, T0)


def test_an_empty_group_is_deleted_with_its_offsets(world) -> None:
    (member,) = world.form(1)
    world.commit({T0: 1}, member, 1)
    with fails_with(ErrorCode.non_empty_group):
        world.coordinator.offsets.delete_group("g")
    world.coordinator.leave("g", [MemberIdentity(member)])
    assert world.coordinator.offsets.delete_group("g").answer() is NONE
    assert world.coordinator.describe("g") is None
    with fails_with(ErrorCode.group_id_not_found):
        world.coordinator.offsets.delete_group("g")


def test_a_deletion_that_cannot_be_stored_deletes_nothing(world) -> None:
    world.commit({T0: 1})
    world.log.fail_with = ErrorCode.not_enough_replicas
    told = world.coordinator.offsets.delete_group("g").answer()
    assert told is ErrorCode.coordinator_not_available
    assert world.fetched() == {T0: 1}


def test_a_commit_after_the_tombstones_survives_them(world) -> None:
    world.commit({T0: 1})
    world.log.hold = True
    deletion = world.coordinator.offsets.delete_group("g")
    commit = commit_held(world, 2)
    world.log.release()
    world.log.release()
    assert deletion.answer() is NONE
    assert commit.answered
    assert world.fetched() == {T0: 2}


def test_a_member_that_joins_during_the_deletion_keeps_the_group(world) -> None:
    world.commit({T0: 1})
    world.log.hold = True
    deletion = world.coordinator.offsets.delete_group("g")
    world.join()
    world.log.release()
    assert deletion.answer() is NONE
    assert world.state == "PreparingRebalance"
    assert world.fetched() == {}


def test_offsets_go_with_their_topic(world) -> None:
    world.commit({T0: 1, T1: 1, U0: 1})
    world.commit({T0: 1}, group_id="other")
    gone = [TopicPartition(*T0), TopicPartition(*T1)]
    written = list(world.coordinator.offsets.delete_topics(gone))
    assert written.count(world.coordinator.partition_for(world.group_id)) >= 1
    assert world.fetched() == {U0: 1}
    world.group_id = "other"
    assert world.fetched() == {}
