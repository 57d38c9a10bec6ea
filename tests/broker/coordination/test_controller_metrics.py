"""The controller's gauges beside a cluster in which everything can be counted."""

import pytest

from broker.coordination.controller_metrics import controller_metrics
from broker.observation.metric import PIECE
from tests.broker.controller.steps import reassign, stop
from tests.broker.controller.world import World


@pytest.fixture
def world():
    world = World(3)
    for number in world.brokers:
        world.start_broker(number)
    world.elect_controller()
    world.settle()
    return world


def told(world, queued=()):
    metrics = [it for it in controller_metrics(world.core.context, dict(queued)) if it]
    return {it.name.rpartition("_")[2]: it.value for it in metrics}


def test_a_broker_that_does_not_govern_says_nothing_but_zeros():
    metrics = list(controller_metrics(None, {}))
    assert len(metrics) == 12
    assert {it.value for it in metrics} == {0}


def test_leaders_that_are_gone_or_have_strayed_are_counted(world):
    world.create_topic("t", (1, 2), (1,), (2, 3))
    before = told(world, {1: 4})
    assert before["activecontrollercount"] == 1
    assert before["activebrokercount"] == 3
    assert (before["globaltopiccount"], before["globalpartitioncount"]) == (1, 3)
    assert before["preferredreplicaimbalancecount"] == 0
    assert before["queuesize"] == before["totalqueuesize"] == 4
    stop(world, 1)
    after = told(world)
    assert after["activebrokercount"] == 2
    # t-0 is led by its second replica, t-1 by nobody.
    assert after["preferredreplicaimbalancecount"] == 2
    assert after["offlinepartitionscount"] == 1


def test_a_replica_on_its_way_is_not_expected_to_lead(world):
    world.create_topic("t", (1, 2))
    reassign(world, (3, 1))
    assert told(world)["preferredreplicaimbalancecount"] == 0
    world.settle()
    broker, key, _ = next(world.led())
    world.propose(broker, key, (1, 2, 3))
    assert told(world)["preferredreplicaimbalancecount"] == 1


def test_deletions_are_counted_until_they_are_done(world):
    world.create_topic("t", (1, 2))
    world.settle()
    stop(world, 2)
    world.delete_topic("t")
    begun = told(world)
    assert begun["topicstodeletecount"] == begun["topicsineligibletodeletecount"] == 1
    assert begun["replicastodeletecount"] == 2
    assert begun["replicasineligibletodeletecount"] == 1
    world.settle()
    assert told(world)["replicastodeletecount"] == 1


def test_a_scrape_lets_others_run(world):
    world.create_topic("t", *([(1, 2)] * 300))
    pieces = list(controller_metrics(world.core.context, {}))
    assert pieces.count(None) == 300 // PIECE
