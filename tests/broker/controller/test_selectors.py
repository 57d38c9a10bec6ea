"""Leaders that each selector elects, compared with a naive model and Kafka's cases.

The cases are those of Kafka's ``PartitionLeaderElectionAlgorithmsTest``.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.selectors import (
    leader_at_shutdown,
    offline_leader,
    preferred_leader,
    reassigned_leader,
    unclean_leader,
)

BROKERS = st.integers(1, 6)
REPLICAS = st.lists(BROKERS, unique=True)
SOME = st.frozensets(BROKERS)


@given(assignment=REPLICAS, isr=SOME, live=SOME)
def test_offline_elects_the_first_live_replica_in_sync(assignment, isr, live):
    able = [each for each in assignment if each in isr & live]
    assert offline_leader(assignment, isr, live) == (able[0] if able else None)
    assert reassigned_leader(assignment, isr, live) == (able[0] if able else None)


@given(assignment=REPLICAS, live=SOME)
def test_unclean_elects_the_first_live_replica(assignment, live):
    able = [each for each in assignment if each in live]
    assert unclean_leader(assignment, live) == (able[0] if able else None)


@given(assignment=REPLICAS, isr=SOME, live=SOME)
def test_preferred_elects_the_first_replica_or_none(assignment, isr, live):
    leader = preferred_leader(assignment, isr, live)
    able = bool(assignment) and assignment[0] in isr & live
    assert leader == (assignment[0] if able else None)


@given(assignment=REPLICAS, isr=SOME, up=SOME, stopping=SOME)
def test_at_a_shutdown_nobody_is_elected_who_stops(assignment, isr, up, stopping):
    able = [each for each in assignment if each in (isr & up) - stopping]
    leader = leader_at_shutdown(assignment, isr, up, stopping)
    assert leader == (able[0] if able else None)


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "leader"),
    [
        ([2, 4], [2, 4], {4}, 4),
        ([2, 4], [2], {4}, None),
        ([2, 4], [4, 2], {2, 4}, 2),
    ],
)
def test_offline_cases_of_kafka(assignment, isr, live, leader):
    assert offline_leader(assignment, isr, live) == leader


def test_unclean_cases_of_kafka():
    assert unclean_leader([2, 4], {4}) == 4
    assert unclean_leader([2, 4], set()) is None


@pytest.mark.parametrize(
    ("isr", "live", "leader"),
    [
        ([2, 4], {4}, 4),
        ([2], set(), None),
        ([2], {4}, None),
        ([4], {4}, 4),
    ],
)
def test_reassignment_cases_of_kafka(isr, live, leader):
    assert reassigned_leader([2, 4], isr, live) == leader


@pytest.mark.parametrize(
    ("isr", "live", "leader"),
    [
        ([2, 4], {2, 4}, 2),
        ([4], {2, 4}, None),
        ([2, 4], {4}, None),
        ([2, 4], set(), None),
    ],
)
def test_preferred_cases_of_kafka(isr, live, leader):
    assert preferred_leader([2, 4], isr, live) == leader


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "stopping", "leader"),
    [
        ([2, 4], [2, 4], {2, 4}, {2}, 4),
        ([2, 4], [2, 4], {2, 4}, {2, 4}, None),
        ([2, 4], [2], {2, 4}, {2}, None),
        ([2, 4, 6], [2, 4, 6], {2, 6}, {2}, 6),
    ],
)
def test_shutdown_cases_of_kafka(assignment, isr, live, stopping, leader):
    assert leader_at_shutdown(assignment, isr, live, stopping) == leader
