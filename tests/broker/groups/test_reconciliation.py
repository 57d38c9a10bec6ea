"""A member's steps towards its target, as in ``CurrentAssignmentBuilderTest``."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.groups.consumer.members import ConsumerMember, Held, MemberState
from broker.groups.consumer.reconciliation import Owned, reconciled
from broker.protocol.errors import ErrorCode, KafkaError

T = UUID(int=1, version=4)
U = UUID(int=2, version=4)


def member(
    state: MemberState = MemberState.STABLE,
    assigned: Held | None = None,
    revoking: Held | None = None,
) -> ConsumerMember:
    return ConsumerMember(
        member_id="m",
        epoch=10,
        previous_epoch=9,
        state=state,
        assigned=assigned or {},
        revoking=revoking or {},
    )


def step(
    it: ConsumerMember,
    target: dict[UUID, set[int]],
    *,
    epoch: int = 11,
    owned: Owned = None,
    others: frozenset[tuple[UUID, int]] = frozenset(),
    subscribed: frozenset[UUID] = frozenset({T, U}),
    has_new_subscription: bool = False,
) -> ConsumerMember:
    own = {
        (topic, p)
        for held in (it.assigned, it.revoking)
        for topic in held
        for p in held[topic]
    }
    return reconciled(
        it,
        epoch,
        {topic: frozenset(partitions) for topic, partitions in target.items()},
        owned=owned,
        subscribed=subscribed,
        is_held=lambda topic, partition: (topic, partition) in own | others,
        has_new_subscription=has_new_subscription,
    )


def test_a_member_at_its_target_stays() -> None:
    it = member(assigned={T: {1: 10}})
    assert step(it, {T: {1}}, epoch=10) is it


def test_free_partitions_come_at_once() -> None:
    after = step(member(assigned={T: {1: 7}}), {T: {1, 2}, U: {3}})
    assert after.state is MemberState.STABLE
    assert (after.epoch, after.previous_epoch) == (11, 10)
    assert after.assigned == {T: {1: 7, 2: 11}, U: {3: 11}}


def test_partitions_are_revoked_first_and_the_epoch_stays() -> None:
    after = step(member(assigned={T: {1: 7, 2: 8}}), {T: {2, 3}})
    assert after.state is MemberState.UNREVOKED_PARTITIONS
    assert (after.epoch, after.previous_epoch) == (10, 10)
    assert after.assigned == {T: {2: 8}}
    assert after.revoking == {T: {1: 7}}


@pytest.mark.parametrize("owned", [None, {T: frozenset({1, 2})}])
def test_it_waits_until_the_owner_has_given_them_up(owned: Owned) -> None:
    it = member(MemberState.UNREVOKED_PARTITIONS, {T: {2: 8}}, {T: {1: 7}})
    assert step(it, {T: {2, 3}}, owned=owned) is it


def test_then_it_comes_to_its_target() -> None:
    it = member(MemberState.UNREVOKED_PARTITIONS, {T: {2: 8}}, {T: {1: 7}})
    after = step(it, {T: {2, 3}}, owned={T: frozenset({2})})
    assert after.state is MemberState.STABLE
    assert after.epoch == 11
    assert after.assigned == {T: {2: 8, 3: 11}}
    assert after.revoking == {}


def test_it_waits_for_partitions_of_others() -> None:
    others = frozenset({(T, 3)})
    after = step(member(assigned={T: {2: 8}}), {T: {2, 3, 4}}, others=others)
    assert after.state is MemberState.UNRELEASED_PARTITIONS
    assert after.epoch == 11
    assert after.assigned == {T: {2: 8, 4: 11}}
    still = step(after, {T: {2, 3, 4}}, others=others)
    assert still.assigned == after.assigned
    done = step(after, {T: {2, 3, 4}})
    assert (done.state, done.assigned[T].keys()) == (MemberState.STABLE, {2, 3, 4})


def test_partitions_that_it_gives_up_and_gets_back_are_free() -> None:
    it = member(MemberState.UNREVOKED_PARTITIONS, {T: {2: 8}}, {T: {1: 7}})
    after = step(it, {T: {1, 2}}, owned={T: frozenset({2})})
    assert after.state is MemberState.STABLE
    assert after.assigned == {T: {1: 11, 2: 8}}


def test_topics_without_a_subscription_are_revoked_before_a_new_target() -> None:
    it = member(assigned={T: {1: 7}, U: {3: 7}})
    after = step(
        it,
        {T: {1}, U: {3}},
        epoch=10,
        subscribed=frozenset({T}),
        has_new_subscription=True,
    )
    assert after.state is MemberState.UNREVOKED_PARTITIONS
    assert after.epoch == 10
    assert (after.assigned, after.revoking) == ({T: {1: 7}}, {U: {3: 7}})


def test_a_target_of_other_topics_is_void() -> None:
    after = step(member(), {T: {1}, U: {3}}, subscribed=frozenset({T}))
    assert after.assigned == {T: {1: 11}}


def test_a_state_of_a_later_version_is_fenced() -> None:
    it = member(MemberState.UNKNOWN, {T: {1: 7}})
    with pytest.raises(KafkaError) as refused:
        step(it, {T: {1}}, owned={T: frozenset({1})})
    assert refused.value.code is ErrorCode.fenced_member_epoch
    assert step(it, {T: {1}}, owned={}).state is MemberState.STABLE
