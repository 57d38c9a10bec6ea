"""Directories with partition numbers far beyond all others are set aside."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.cluster.cluster_topics import Topic
from broker.coordination.adoption import MISSING_MAX, reconcile
from broker.coordination.cluster_state import ClusterState
from broker.coordination.coordinator_roles import FoundLog

ID = UUID(int=7)
LOG = FoundLog(topic_id=ID, is_empty=False, latest_epoch=0, latest_producer_id=-1)
KNOWN = Topic(name="t", topic_id=ID, leader_epochs=(0, 0), configs={})


def state_of(*topics: Topic) -> ClusterState:
    return ClusterState(topics={topic.name: topic for topic in topics})


@pytest.mark.parametrize("index", [10**20 - 1, 2**31 - 1, MISSING_MAX + 4])
@pytest.mark.parametrize("state", [state_of(), state_of(KNOWN)], ids=["new", "known"])
def test_a_number_far_beyond_all_others_is_no_partition(
    state: ClusterState, index: int
) -> None:
    outcome = reconcile(state, {("t", 0): LOG, ("t", index): LOG}, lambda: ID)
    assert set(outcome.strays) == {("t", index)}
    assert len(outcome.state.topics["t"].leader_epochs) <= 2


def test_partitions_that_one_request_can_have_added_are_waited_for() -> None:
    outcome = reconcile(state_of(KNOWN), {("t", MISSING_MAX + 2): LOG}, lambda: ID)
    assert outcome.strays == {}
    assert len(outcome.state.topics["t"].leader_epochs) == MISSING_MAX + 3
