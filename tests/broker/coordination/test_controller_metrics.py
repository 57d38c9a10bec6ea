"""Metrics of the controller: gauges of a small cluster, and timers of events."""

import pytest

from broker.coordination.controller_events import (
    ControllerEvent,
    ControllerMeters,
    ControllerState,
)
from broker.coordination.controller_metrics import controller_metrics, event_metrics
from broker.coordination.zookeeper.carrying_out import ControllerMoved
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
    # The leader of t-0 is its second replica, and t-1 has no leader.
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


# ---- events ------------------------------------------------------------------------

MS = 1_000_000
# The timers of Apache Kafka 3.9: one for each controller state except two.
TIMERS = (
    "ControllerChange",
    "LeaderElection",
    "TopicChange",
    "TopicDeletion",
    "PartitionReassignment",
    "AutoLeaderBalance",
    "ManualLeaderBalance",
    "ControlledShutdown",
    "IsrChange",
    "LeaderAndIsrResponseReceived",
    "LogDirChange",
    "ControllerShutdown",
    "UncleanLeaderElectionEnable",
    "TopicUncleanLeaderElectionEnable",
    "ListPartitionReassignment",
    "UpdateFeatures",
)


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.ns = 0

    def __call__(self):
        return self.ns


def events_told(meters, waiting=0):
    """Return the metrics of events by name, without quantiles."""
    return {
        it.name.rpartition("_")[2] + it.suffix: it.value
        for it in event_metrics(meters, waiting)
        if it and "quantile" not in it.labels
    }


async def test_an_event_is_told_of_while_it_is_handled_and_timed_afterwards():
    clock = Clock()
    meters = ControllerMeters(clock)
    clock.ns = 5 * MS

    async def handle():
        assert events_told(meters, 3)["controllerstate"] == 2
        assert events_told(meters, 3)["eventqueuesize"] == 3
        clock.ns += 7 * MS

    await meters.handle(ControllerEvent(ControllerState.BROKER_CHANGE, 2 * MS, handle))
    told = events_told(meters)
    assert (told["controllerstate"], told["eventqueuesize"]) == (0, 0)
    assert (told["eventqueuetimems_count"], told["eventqueuetimems_sum"]) == (1, 3)
    assert told["leaderelectionrateandtimems_count"] == 1
    assert told["leaderelectionrateandtimems_sum"] == 7
    assert told["isrchangerateandtimems_count"] == 0


async def test_an_event_that_fails_is_timed_too():
    meters = ControllerMeters(Clock())

    async def handle():
        raise ControllerMoved

    with pytest.raises(ControllerMoved):
        await meters.handle(ControllerEvent(ControllerState.ISR_CHANGE, 0, handle))
    assert meters.state is ControllerState.IDLE
    assert events_told(meters)["isrchangerateandtimems_count"] == 1


def test_every_timer_has_kafkas_name():
    told = events_told(ControllerMeters(Clock()))
    timers = {name.removesuffix("_count") for name in told if "rateandtime" in name}
    assert {it for it in timers if not it.endswith("_sum")} == {
        f"{name}rateandtimems".lower() for name in TIMERS
    }
