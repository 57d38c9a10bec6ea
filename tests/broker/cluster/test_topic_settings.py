"""Settings are cached for topics with logs on this broker, and for no other topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from broker.cluster.topic_settings import TopicSettings
from broker.config import BrokerConfig
from broker.protocol.api_keys import ApiKey
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30


class Reads:
    """The configs of topics, and the topics whose configs were read."""

    def __init__(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        self.configs = configs
        self.asked: list[str] = []

    def __call__(self, topic: str) -> Mapping[str, str] | None:
        self.asked.append(topic)
        return self.configs.get(topic)


def settings(reads: Reads, is_here: Callable[[str], bool]) -> TopicSettings:
    config = BrokerConfig.load(None, {})
    return TopicSettings(reads, lambda: config, 7, is_here)


def test_configs_of_a_topic_with_logs_are_read_once_until_forgotten() -> None:
    reads = Reads({"t": {"min.insync.replicas": "3"}})
    known = settings(reads, lambda topic: True)
    assert [known.min_insync("t") for _ in range(3)] == [3, 3, 3]
    assert reads.asked == ["t"]
    reads.configs = {"t": {"min.insync.replicas": "2"}}
    known.discard("t")
    assert known.min_insync("t") == 2


@pytest.mark.parametrize("replica", ["0:7", "*"])
def test_configs_of_a_topic_without_logs_are_read_each_time(replica: str) -> None:
    reads = Reads({"t": {"leader.replication.throttled.replicas": replica}})
    known = settings(reads, lambda topic: False)
    assert known.throttles_leader(TopicPartition("t", 0))
    assert known.throttles_leader(TopicPartition("t", 0))
    assert not known.throttles_follower(TopicPartition("t", 0))
    assert reads.asked == ["t"] * 3
    known.check()


def test_logs_of_a_topic_that_is_not_known_are_neither_cut_nor_compacted() -> None:
    reads = Reads({})
    known = settings(reads, lambda topic: True)
    of_log = known.log_config("t")
    assert (of_log.deletes, of_log.compacts) == (False, False)
    reads.configs = {"t": {}}
    known.discard("t")
    assert (known.log_config("t").deletes, known.min_insync("t")) == (True, 1)


def test_topics_that_came_and_went_leave_nothing() -> None:
    world = World()
    world.create("stays", 2)
    for number in range(20):
        name = f"goes-{number}"
        world.create(name, 3)
        world.produce(name, b"x", partition=number % 3)
        answer = world.send(
            ApiKey.DELETE_TOPICS, 6, topics=[{"name": name}], timeout=SECONDS_30
        )
        assert answer.responses[0].error_code is NONE
        # A fetch from a deleted topic must not bring its settings back.
        world.fetch(name)
        world.check()
    world.produce("stays", b"x")
    world.check()
