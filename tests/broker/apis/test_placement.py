"""Placement of replicas, compared with rules and examples of Kafka's ``AdminUtils``."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from broker.apis.common.placement import place
from broker.coordination.coordinator_roles import BrokerRack
from broker.protocol.errors import ErrorCode, KafkaError

FIVE = [BrokerRack(number) for number in range(5)]
# Kafka's AdminRackAwareTest: two brokers in each of three racks.
RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
SIX = [BrokerRack(*each) for each in RACKS.items()]


class FromZero(random.Random):
    """Draws are always 0: the first broker leads first, and the next one follows."""

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]  # one draw
        return 0


def test_kafkas_own_example_of_five_brokers_and_ten_partitions() -> None:
    # The table in the comment above AdminUtils.assignReplicasToBrokers.
    expected = [
        *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1)),
        *((0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2)),
    ]
    assert list(place(FIVE, 10, 3, FromZero())) == expected


@pytest.mark.parametrize("seed", range(20))
def test_leaders_and_followers_are_spread_evenly(seed: int) -> None:
    placed = place(FIVE, 20, 3, random.Random(seed))
    assert set(Counter(each[0] for each in placed).values()) == {4}
    assert set(Counter(id for each in placed for id in each).values()) == {12}
    assert all(len(set(each)) == 3 for each in placed)


@pytest.mark.parametrize("seed", range(20))
def test_replicas_stand_in_different_racks(seed: int) -> None:
    placed = place(SIX, 12, 3, random.Random(seed))
    assert all(len({RACKS[id] for id in each}) == 3 for each in placed)
    assert set(Counter(each[0] for each in placed).values()) == {2}
    assert set(Counter(id for each in placed for id in each).values()) == {6}


def test_more_replicas_than_racks_use_every_rack_first() -> None:
    placed = place(SIX, 12, 5, random.Random(1))
    assert all(len(set(each)) == 5 for each in placed)
    assert all({RACKS[id] for id in each} == set(RACKS.values()) for each in placed)


def test_a_rack_that_is_not_known_leaves_racks_out_of_it() -> None:
    some = [*SIX[:5], BrokerRack(5)]
    none = [BrokerRack(each.id) for each in SIX]
    assert place(some, 9, 3, random.Random(4)) == place(none, 9, 3, random.Random(4))


@pytest.mark.parametrize("first", range(6))
def test_partitions_added_within_the_first_round_go_on_as_the_topic_began(
    first: int,
) -> None:
    begun = place(FIVE, first, 2, FromZero())
    added = place(FIVE, 12 - first, 2, FromZero(), first=first, leader=0)
    assert begun + added == place(FIVE, 12, 2, FromZero())


@pytest.mark.parametrize("replicas", [0, -1, 6])
def test_a_factor_that_cannot_be_is_refused(replicas: int) -> None:
    with pytest.raises(KafkaError) as caught:
        place(FIVE, 1, replicas, random.Random(1))
    assert caught.value.code is ErrorCode.invalid_replication_factor
