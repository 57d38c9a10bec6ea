"""Heartbeats of consumer groups: epochs, fencing, timeouts, offsets.

Epochs and errors are those of Kafka 4.4.0: a group begins in epoch 1, so its first
member is in epoch 2.
"""

from __future__ import annotations

import pytest

from broker.groups.consumer.consumer_records import Kind, read_consumer_key
from broker.groups.state.group_settings import ConsumerSettings
from broker.protocol.errors import ErrorCode, KafkaError

START_MS = 1_700_000_000_000


@pytest.fixture
def world(make_world):
    """A topic t of three partitions, and no pause between assignments."""
    world = make_world(consumer_assignment_interval_ms=0)
    world.topics.create("t", 3)
    return world


def refusal(call, *args, **fields) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(*args, **fields)
    return refused.value.code


def owned(world, *partitions: int, topic: str = "t"):
    return {world.topics.ids[topic]: frozenset(partitions)}


def shown(answer) -> list[int] | None:
    if answer.assigned is None:
        return None
    return sorted(index for epochs in answer.assigned.values() for index in epochs)


def join(world, member_id: str, **fields):
    return world.beat(member_id, **fields).answer()


# ---- reassignment of partitions -----------------------------------------------------


def test_the_first_member_gets_everything_in_epoch_2(world) -> None:
    answer = join(world, "a")
    assert (answer.member_id, answer.epoch, shown(answer)) == ("a", 2, [0, 1, 2])
    assert answer.interval_ms == 5_000
    assert world.consumers.state_name == "Stable"


def test_an_idle_heartbeat_writes_and_shows_nothing(world) -> None:
    join(world, "a")
    partition = world.coordinator.partition_for("g")
    before = list(world.log.partitions[partition])
    answer = world.beat("a", 2).answer()
    assert (answer.epoch, answer.assigned) == (2, None)
    assert world.log.partitions[partition] == before


def test_a_partition_is_given_on_only_when_its_owner_has_let_it_go(world) -> None:
    join(world, "a")
    second = join(world, "b")
    assert (second.epoch, shown(second)) == (3, [])
    told = world.beat("a", 2).answer()
    # Member a keeps its epoch until it has revoked one partition.
    assert told.epoch == 2
    kept = shown(told)
    assert kept is not None
    assert len(kept) == 2
    assert world.consumers.state_name == "Reconciling"
    # Member a still owns all partitions, so none moves.
    world.beat("a", 2, owned=owned(world, 0, 1, 2))
    assert world.beat("b", 3).answer().assigned is None
    done = world.beat("a", 2, owned=owned(world, *kept)).answer()
    assert done.epoch == 3
    given = world.beat("b", 3).answer()
    assert shown(given) == sorted({0, 1, 2} - set(kept))
    assert world.consumers.state_name == "Stable"


def test_new_partitions_are_assigned(world) -> None:
    join(world, "a")
    world.topics.create("t", 5)
    answer = world.beat("a", 2).answer()
    assert (answer.epoch, shown(answer)) == (3, [0, 1, 2, 3, 4])


def test_a_topic_that_comes_later_is_assigned(world) -> None:
    assert shown(join(world, "a", topics=frozenset({"later"}))) == []
    world.topics.create("later", 1)
    assert shown(world.beat("a", 2).answer()) == [0]


def test_assignments_are_a_second_apart_by_default(make_world) -> None:
    world = make_world()
    world.topics.create("t", 2)
    join(world, "a")
    join(world, "b")
    assert world.consumers.state_name == "Assigning"
    world.advance(999)
    world.beat("b", 2)
    assert world.consumers.target_epoch.epoch == 2
    world.advance(1)
    world.beat("b", 2)
    assert world.consumers.target_epoch.epoch == 3


def test_most_members_choose_the_assignor_and_ties_do_not_swing(world) -> None:
    join(world, "a", assignor="range")
    join(world, "b", assignor="uniform")
    epoch = world.consumers.epoch
    for _ in range(4):
        for member_id, assignor in (("a", "range"), ("b", "uniform")):
            member_epoch = world.consumers.members[member_id].epoch
            world.beat(member_id, member_epoch, assignor=assignor)
    assert world.consumers.epoch == epoch
    assert world.coordinator.assignor_of(world.consumers) == "uniform"


# ---- epochs -------------------------------------------------------------------------


def test_other_epochs_are_fenced(world) -> None:
    join(world, "a")
    world.topics.create("t", 4)
    world.beat("a", 2)
    assert refusal(world.beat, "a", 4) is ErrorCode.fenced_member_epoch
    assert refusal(world.beat, "a", 1) is ErrorCode.fenced_member_epoch
    assert refusal(world.beat, "b", 3) is ErrorCode.unknown_member_id


def test_the_last_epoch_is_accepted_from_one_that_missed_the_answer(world) -> None:
    join(world, "a")
    world.topics.create("t", 4)
    world.beat("a", 2)
    answer = world.beat("a", 2, owned=owned(world, 0, 1, 2)).answer()
    assert answer.epoch == 3
    assert refusal(world.beat, "a", 2) is ErrorCode.fenced_member_epoch
    wrong = owned(world, 0, 9)
    assert refusal(world.beat, "a", 2, owned=wrong) is ErrorCode.fenced_member_epoch


def test_a_member_may_join_again_under_its_id(world) -> None:
    join(world, "a")
    answer = join(world, "a")
    assert (answer.epoch, shown(answer)) == (2, [0, 1, 2])


def test_groups_that_are_not_there_are_not_found(world) -> None:
    assert refusal(world.beat, "a", 2) is ErrorCode.group_id_not_found
    assert refusal(world.beat, "a", -1) is ErrorCode.group_id_not_found
    assert world.coordinator.describe("g") is None


def test_a_member_without_an_id_is_given_one(world) -> None:
    first, second = join(world, ""), join(world, "")
    assert len(first.member_id) == len(second.member_id) == 22
    assert first.member_id != second.member_id


def test_a_group_has_room_for_so_many(make_world) -> None:
    world = make_world(consumer_max_size=1)
    join(world, "a")
    assert refusal(world.beat, "b") is ErrorCode.group_max_size_reached
    assert join(world, "a").error is ErrorCode.none


# ---- the end of members -------------------------------------------------------------


def test_who_leaves_frees_its_partitions_at_once(world) -> None:
    join(world, "a")
    join(world, "b")
    assert world.beat("a", -1).answer().epoch == -1
    answer = world.beat("b", 3).answer()
    assert (answer.epoch, shown(answer)) == (4, [0, 1, 2])


def test_a_silent_member_is_fenced_after_its_session(world) -> None:
    join(world, "a")
    world.advance(44_999)
    assert "a" in world.consumers.members
    world.advance(1)
    assert world.consumers.members == {}
    assert world.consumers.state_name == "Empty"
    assert refusal(world.beat, "a", 2) is ErrorCode.unknown_member_id


def test_settings_of_a_group_count_from_the_next_heartbeat_on(world) -> None:
    join(world, "a")
    own = {"session_timeout_ms": 50_000, "heartbeat_interval_ms": 7_000}
    own["assignment_interval_ms"] = 2_000
    world.own_settings["g"] = ConsumerSettings(**own)
    world.own_settings["h"] = ConsumerSettings(**dict.fromkeys(own, 1))
    world.advance(44_000)
    assert world.beat("a", 2).answer().interval_ms == 7_000
    world.advance(49_999)
    assert "a" in world.consumers.members
    world.start()
    world.advance(49_999)
    assert "a" in world.consumers.members
    join(world, "b")
    join(world, "c")
    world.advance(1)
    assert "a" not in world.consumers.members
    assert world.consumers.state_name == "Assigning"
    world.advance(1_998)
    world.beat("b", 3)
    assert world.consumers.state_name == "Assigning"
    world.advance(1)
    world.beat("b", 3)
    assert world.consumers.state_name != "Assigning"
    del world.own_settings["g"]
    assert world.beat("b", 5).answer().interval_ms == 5_000


def test_a_member_that_does_not_revoke_in_time_is_fenced(world) -> None:
    join(world, "a", rebalance_timeout_ms=20_000)
    join(world, "b")
    world.beat("a", 2)
    for _ in range(3):
        world.advance(5_000)
        world.beat("a", 2, owned=owned(world, 0, 1, 2))
    assert "a" in world.consumers.members
    world.advance(5_000)
    assert "a" not in world.consumers.members


def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions(world) -> None:
    join(world, "a", instance_id="i")
    join(world, "b")
    epoch = world.consumers.epoch
    assert world.beat("a", -2, instance_id="i").answer().epoch == -2
    answer = join(world, "a2", instance_id="i")
    kept = set(shown(answer) or ())
    assert len(kept) == 2
    assert world.consumers.epoch == epoch
    assert "a" not in world.consumers.members


def test_a_static_member_that_does_not_come_back_is_fenced(world) -> None:
    join(world, "a", instance_id="i")
    world.beat("a", -2, instance_id="i")
    world.advance(45_000)
    assert world.consumers.members == {}


def test_an_instance_id_has_one_member(world) -> None:
    join(world, "a", instance_id="i")
    taken = refusal(world.beat, "b", instance_id="i")
    assert taken is ErrorCode.unreleased_instance_id
    fenced = refusal(world.beat, "b", 2, instance_id="i")
    assert fenced is ErrorCode.fenced_instance_id
    unknown = refusal(world.beat, "b", 2, instance_id="j")
    assert unknown is ErrorCode.unknown_member_id


# ---- regular expressions ------------------------------------------------------------


def test_topics_of_a_regular_expression_are_found_in_the_background(world) -> None:
    world.topics.create("ta", 1)
    answer = join(world, "a", topics=frozenset(), regex="t.*")
    assert shown(answer) == []
    world.advance(0)
    answer = world.beat("a", answer.epoch).answer()
    assert shown(answer) == [0, 0, 1, 2]
    # New topics are found after ten seconds.
    world.topics.create("tb", 1)
    world.beat("a", answer.epoch)
    world.advance(10_001)
    world.beat("a", answer.epoch)
    world.advance(0)
    assert shown(world.beat("a", answer.epoch).answer()) == [0, 0, 0, 1, 2]


def test_only_topics_that_the_member_may_describe_are_found(world) -> None:
    world.topics.create("secret", 1)
    answer = join(
        world,
        "a",
        topics=frozenset(),
        regex=".*",
        may_describe=lambda topic: topic != "secret",
    )
    world.advance(0)
    assert world.consumers.topic_names() == {"t"}
    assert shown(world.beat("a", answer.epoch).answer()) == [0, 1, 2]


def test_an_invalid_regular_expression_leaves_nothing(world) -> None:
    code = refusal(world.beat, "a", topics=frozenset(), regex="(")
    assert code is ErrorCode.invalid_regular_expression
    assert world.coordinator.describe("g") is None


def test_a_regular_expression_goes_with_its_last_member(world) -> None:
    join(world, "a", topics=frozenset(), regex="t.*")
    world.advance(0)
    assert world.consumers.resolved.keys() == {"t.*"}
    world.beat("a", 1, regex="")
    assert world.consumers.resolved == {}


# ---- offsets ------------------------------------------------------------------------


def test_members_commit_in_their_epoch(world) -> None:
    join(world, "a")
    ids = {"topic_ids": world.topics.ids}
    assert world.commit({("t", 0): 5}, "a", 2, **ids) == {("t", 0): ErrorCode.none}
    stale = refusal(world.commit, {("t", 0): 5}, "a", 3, **ids)
    assert stale is ErrorCode.stale_member_epoch
    unknown = refusal(world.commit, {("t", 0): 5}, "b", 2, **ids)
    assert unknown is ErrorCode.unknown_member_id
    old = refusal(world.commit, {("t", 0): 5}, "a", 2, supports_member_epochs=False)
    assert old is ErrorCode.unsupported_version


def test_an_earlier_epoch_may_commit_what_it_was_assigned_by_then(world) -> None:
    """KIP-1251: partition 3 was assigned in epoch 3, the others in epoch 2."""
    join(world, "a")
    world.topics.create("t", 4)
    world.beat("a", 2)
    ids = {"topic_ids": world.topics.ids}
    assert world.commit({("t", 0): 5}, "a", 2, **ids) == {("t", 0): ErrorCode.none}
    stale = refusal(world.commit, {("t", 3): 5}, "a", 2, **ids)
    assert stale is ErrorCode.stale_member_epoch


def test_nobody_commits_while_there_are_members(world) -> None:
    join(world, "a")
    assert refusal(world.commit, {("t", 0): 5}) is ErrorCode.unknown_member_id
    world.beat("a", -1)
    assert world.commit({("t", 0): 5}) == {("t", 0): ErrorCode.none}


def test_members_read_offsets_in_their_epoch(world) -> None:
    join(world, "a")
    fetch = world.coordinator.offsets.fetch
    assert fetch("g", (), require_stable=False) == {}
    assert fetch("g", (), require_stable=False, member=("a", 2)) == {}
    stale = refusal(fetch, "g", (), require_stable=False, member=("a", 1))
    assert stale is ErrorCode.stale_member_epoch
    unknown = refusal(fetch, "g", (), require_stable=False, member=("b", 2))
    assert unknown is ErrorCode.unknown_member_id


def test_a_group_with_members_is_not_deleted(world) -> None:
    join(world, "a")
    delete = world.coordinator.offsets.delete_group
    assert refusal(delete, "g") is ErrorCode.non_empty_group
    world.beat("a", -1)
    assert delete("g").answer() is ErrorCode.none
    assert world.coordinator.describe("g") is None
    world.start()
    assert world.coordinator.describe("g") is None


def test_offsets_of_topics_in_use_neither_expire_nor_go(world) -> None:
    join(world, "a")
    ids = {"topic_ids": world.topics.ids}
    world.commit({("t", 0): 5}, "a", 2, **ids)
    deleted = world.coordinator.offsets.delete("g", list(world.consumers.offsets))
    assert set(deleted.answer().values()) == {ErrorCode.group_subscribed_to_topic}
    week_ms = 7 * 24 * 3_600_000
    for _ in range(2):
        world.now_ms += week_ms
        world.beat("a", 2)
        world.advance(0)
    assert world.fetched() == {("t", 0): 5}
    world.beat("a", -1)
    world.advance(week_ms)
    assert world.coordinator.describe("g") is None


# ---- the log ------------------------------------------------------------------------


def test_an_answer_waits_for_the_log(world) -> None:
    world.log.hold = True
    waiting = world.beat("a")
    assert not waiting.answered
    # An answer without records also waits for earlier appends.
    idle = world.beat("a", 2)
    world.log.release()
    assert waiting.answer().epoch == idle.answer().epoch == 2


def test_what_could_not_be_written_is_written_with_the_next(world) -> None:
    world.log.fail_with = ErrorCode.not_enough_replicas
    failed = join(world, "a")
    assert failed.error is ErrorCode.coordinator_not_available
    world.log.fail_with = ErrorCode.none
    assert join(world, "a").epoch == 2
    members = dict(world.consumers.members)
    world.start()
    assert world.consumers.members == members


def test_a_later_value_is_not_overwritten_by_a_failed_earlier_one(world) -> None:
    world.log.hold = True
    world.beat("a", client_id="first")
    world.beat("a", 2, client_id="second")
    world.log.release(ErrorCode.not_enough_replicas)
    world.log.release()
    world.log.hold = False
    world.beat("a", 2, client_id="second")
    world.start()
    assert world.consumers.members["a"].client_id == "second"


def test_sessions_begin_anew_after_a_restart(world) -> None:
    join(world, "a")
    world.advance(40_000)
    world.start()
    world.advance(44_999)
    assert "a" in world.consumers.members
    world.advance(1)
    assert world.consumers.members == {}


def test_topics_of_a_log_by_kafka_before_4_1_are_deleted(world) -> None:
    join(world, "a")
    group = world.consumers
    group.has_topics_record = True
    world.topics.create("t", 4)
    world.beat("a", 2)
    partition = world.coordinator.partition_for("g")
    keys = [read_consumer_key(it.key) for it in world.log.partitions[partition]]
    assert Kind.TOPICS in [key.kind for key in keys if key is not None]
    assert not group.has_topics_record
