"""DescribeQuorum in a cluster of one broker."""

from __future__ import annotations

from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import World


def described(world: World) -> Any:
    wanted = {
        "topic_name": "__cluster_metadata",
        "partitions": [{"partition_index": 0}],
    }
    answer = world.send(ApiKey.DESCRIBE_QUORUM, 2, topics=[wanted])
    assert answer.error_code is ErrorCode.none
    ((partition,),) = (topic.partitions for topic in answer.topics)
    return partition


def test_the_only_voter_is_the_leader_and_has_all_changes() -> None:
    world = World({"node.id": "7"})
    partition = described(world)
    (voter,) = partition.current_voters
    assert partition.leader_id == voter.replica_id == 7
    assert partition.high_watermark == voter.log_end_offset > 0
    assert partition.observers == ()


def test_offsets_grow_with_changes_and_epochs_with_starts() -> None:
    world = World()
    before = described(world)
    world.create("t")
    created = described(world)
    assert created.high_watermark > before.high_watermark
    assert created.leader_epoch == before.leader_epoch
    restarted = described(world.restarted())
    assert restarted.high_watermark > created.high_watermark
    assert restarted.leader_epoch == created.leader_epoch + 1


def test_reading_changes_nothing() -> None:
    world = World()
    assert described(world).high_watermark == described(world).high_watermark
